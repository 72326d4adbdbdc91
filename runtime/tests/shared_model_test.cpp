// Many threads on one model: each has its own context, all give the same bits. Also meant for ThreadSanitizer.
#include <atomic>
#include <cstring>
#include <thread>

#include "api/golden.h"
#include "api/model.h"
#include "bitedge/bitedge.h"
#include "check.h"
#include "files.h"
#include "run/context.h"

using bitedge::Context;
using bitedge::Model;
using namespace bitedge::testing;

namespace {

constexpr size_t kBatch = 5;

std::vector<uint8_t> images_of(const Model& model) {
  std::vector<uint8_t> images;
  for (size_t n = 0; n < kBatch; ++n) {
    const std::vector<uint8_t> image = bitedge::golden_input(model.input(), 100 + n);
    images.insert(images.end(), image.begin(), image.end());
  }
  return images;
}

std::vector<float> run(const Model& model, Context& context, const std::vector<uint8_t>& images) {
  std::vector<float> answer(kBatch * model.output().shape.elements());
  context.run(images.data(), kBatch, answer.data());
  return answer;
}

}  // namespace

TEST(contexts_run_side_by_side) {
  for (const char* name : kModels) {
    const auto model = Model::load_file(data_path(name), nullptr);
    const std::vector<uint8_t> images = images_of(*model);
    Context alone(model->program(), 1);
    const std::vector<float> expected = run(*model, alone, images);
    std::atomic<int> different{0};
    std::vector<std::thread> callers;
    for (int caller = 0; caller < 4; ++caller) {
      callers.emplace_back([&, caller] {
        Context context(model->program(), 1 + caller % 3, caller % 2 == 1);
        for (int i = 0; i < 8; ++i) different += run(*model, context, images) != expected;
        try {
          model->check();
        } catch (const bitedge::Error&) {
          ++different;
        }
      });
    }
    for (std::thread& caller : callers) caller.join();
    CHECK_EQ(different.load(), 0);
  }
}

TEST(models_load_and_vanish_side_by_side) {
  std::atomic<int> failed{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (const char* name : kModels) {
        bitedge_model* model = nullptr;
        bitedge_context* context = nullptr;
        failed += bitedge_model_load_file(data_path(name).c_str(), nullptr, &model) != BITEDGE_OK;
        failed += bitedge_context_create(model, nullptr, &context) != BITEDGE_OK;
        bitedge_model_free(model);
        bitedge_context_free(context);
        failed += bitedge_model_load_file("/nowhere", nullptr, &model) != BITEDGE_ERROR_IO;
        failed += std::strstr(bitedge_last_error(), "/nowhere") == nullptr;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  CHECK_EQ(failed.load(), 0);
}

// A thread hands its context over: allowed, as long as only one uses it at a time.
TEST(a_context_may_move_between_threads) {
  const auto model = Model::load_file(data_path("image.gguf"), nullptr);
  const std::vector<uint8_t> images = images_of(*model);
  Context context(model->program(), 2);
  const std::vector<float> expected = run(*model, context, images);
  for (int i = 0; i < 3; ++i) {
    std::vector<float> answer;
    std::thread([&] { answer = run(*model, context, images); }).join();
    CHECK(answer == expected);
  }
}
