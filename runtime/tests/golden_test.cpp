#include "api/golden.h"

#include <cstring>
#include <map>
#include <string>

#include "api/model.h"
#include "check.h"
#include "files.h"
#include "kernels/kernels.h"
#include "kernels/table.h"
#include "run/context.h"

using bitedge::Kind;
using bitedge::Model;
using bitedge::Status;
using namespace bitedge::testing;

// Sebastiano Vigna's splitmix64.c for the seed 1234567 starts with these words.
TEST(generates_splitmix64) {
  const std::vector<uint8_t> bytes = bitedge::golden_bytes(1234567, 20);
  const uint64_t words[] = {6457827717110365317u, 3203168211198807973u, 9817491932198370423u};
  CHECK(std::memcmp(bytes.data(), words, 20) == 0);
}

TEST(float_inputs_are_the_same_bytes_on_the_dyadic_grid) {
  const bitedge::Value image{"x", Kind::kUint8, {2, 3, 1}}, real{"x", Kind::kFloat, {2, 3, 1}};
  const std::vector<uint8_t> bytes = bitedge::golden_input(image, 9), floats = bitedge::golden_input(real, 9);
  CHECK_EQ(floats.size(), 4 * bytes.size());
  for (size_t i = 0; i < bytes.size(); ++i) {
    float number;
    std::memcpy(&number, floats.data() + 4 * i, 4);
    CHECK_EQ(number, (2 * float(bytes[i]) - 255) / 256);
  }
}

// The last 60 bytes of the file are the golden answers of small.gguf, before 4 bytes of padding: spoil one of them.
TEST(notices_a_wrong_answer) {
  std::vector<uint8_t> bytes = read_file(data_path("small.gguf"));
  const size_t last = bytes.size() - 4 - sizeof(float);
  float number;
  std::memcpy(&number, bytes.data() + last, sizeof number);
  for (const float change : {0.02f, -0.02f}) {
    const float wrong = number + change;
    std::memcpy(bytes.data() + last, &wrong, sizeof wrong);
    const auto model = Model::load_memory(bytes.data(), bytes.size(), nullptr, false);
    CHECK_ERROR(Status::kGolden, "golden vector 2: output 4 is", (model->check(), 0));
  }
}

// Files of version 1 and 2, written by hand, with the answers of a reference in numpy.
TEST(every_set_answers_for_files_written_by_hand) {
  for (const char* name : {"small.gguf", "image.gguf", "float.gguf", "steps.gguf"}) {
    for (const bitedge::KernelSet* set : bitedge::available_kernels()) {
      Model::load_file(data_path(name), set->name)->check();
    }
  }
}

// Networks that the exporter wrote, with torch's answers as golden vectors: the trained network of the digits recipe,
// and a narrow BiRealNet18 with random weights. Every set of this machine answers them, on one thread and on two; sets
// with vectors agree to the bit, and with the reference too where no first layer in floats is theirs to reorder.
TEST(every_set_answers_for_exported_networks) {
  const std::map<std::string, bool> files = {{data_path("../../bitedge/runtime/models/digits/1/model.gguf"), true},
                                             {data_path("birealnet18.gguf"), false}};
  for (const auto& [path, same_as_scalar] : files) {
    std::vector<float> first;
    for (const bitedge::KernelSet* set : bitedge::available_kernels()) {
      const auto model = Model::load_file(path, set->name);
      model->check();
      if (!set->binary && !same_as_scalar) continue;
      const std::vector<uint8_t> input = bitedge::golden_input(model->input(), 7);
      for (const int threads : {1, 2}) {
        bitedge::Context context(model->program(), threads, false);
        std::vector<float> answer(model->output().shape.elements());
        context.run(input.data(), 1, answer.data());
        if (first.empty()) first = answer;
        if (std::memcmp(first.data(), answer.data(), answer.size() * sizeof(float)) != 0) {
          fail(__FILE__, __LINE__, path + " on " + set->name + " differs");
        }
      }
    }
  }
}
