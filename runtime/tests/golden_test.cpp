#include "golden.h"

#include <cstring>

#include "check.h"
#include "files.h"
#include "model.h"

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
