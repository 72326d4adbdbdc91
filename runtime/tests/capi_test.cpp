#include <cstring>
#include <thread>

#include "bitedge/bitedge.h"
#include "check.h"
#include "files.h"

using namespace bitedge::testing;

namespace {

bitedge_model* load(const char* name, const char* kernels = nullptr) {
  bitedge_model* model = nullptr;
  const bitedge_load_options options = {sizeof options, kernels, 0};
  CHECK_EQ(bitedge_model_load_file(data_path(name).c_str(), &options, &model), BITEDGE_OK);
  return model;
}

bitedge_context* make_context(const bitedge_model* model, int threads, bool keep) {
  bitedge_context* context = nullptr;
  const bitedge_context_options options = {sizeof options, threads, keep, 0, 0};
  CHECK_EQ(bitedge_context_create(model, &options, &context), BITEDGE_OK);
  return context;
}

bool last_error_has(const char* part) { return std::strstr(bitedge_last_error(), part) != nullptr; }

const std::vector<uint8_t> kImages(2 * 6 * 6 * 3, 100);

}  // namespace

TEST(versions) {
  CHECK_EQ(bitedge_api_version(), uint32_t(BITEDGE_API_VERSION));
  CHECK(std::strlen(bitedge_version()) >= 5);
}

TEST(lists_kernels) {
  int chosen = 0, runnable = 0;
  for (size_t i = 0; i < bitedge_kernel_count(); ++i) {
    bitedge_kernel_info info = {};
    info.struct_size = sizeof info;
    CHECK_EQ(bitedge_kernel(i, &info), BITEDGE_OK);
    chosen += info.chosen;
    if (!info.built || !info.supported) continue;
    ++runnable;
    bitedge_model* model = load("small.gguf", info.name);
    CHECK(std::strstr(bitedge_model_describe(model), ("\"kernels\":\"" + std::string(info.name) + "\"").c_str()));
    bitedge_model_free(model);
  }
  CHECK_EQ(chosen, 1);
  CHECK(runnable >= 1);
  bitedge_kernel_info info = {};
  info.struct_size = sizeof info;
  CHECK_EQ(bitedge_kernel(bitedge_kernel_count(), &info), BITEDGE_ERROR_ARGUMENT);
}

TEST(refuses_kernels_that_are_not_there) {
  bitedge_model* model = nullptr;
  const bitedge_load_options options = {sizeof options, "mmx", 0};
  CHECK_EQ(bitedge_model_load_file(data_path("small.gguf").c_str(), &options, &model), BITEDGE_ERROR_UNAVAILABLE);
  CHECK(last_error_has("mmx") && last_error_has("scalar"));
  CHECK(model == nullptr);
}

TEST(refuses_null) {
  bitedge_model* model = nullptr;
  bitedge_context* context = nullptr;
  bitedge_model_info info = {};
  info.struct_size = sizeof info;
  CHECK_EQ(bitedge_model_load_file(nullptr, nullptr, &model), BITEDGE_ERROR_ARGUMENT);
  CHECK_EQ(bitedge_model_load_file("x", nullptr, nullptr), BITEDGE_ERROR_ARGUMENT);
  CHECK_EQ(bitedge_model_load_memory(nullptr, 5, nullptr, &model), BITEDGE_ERROR_ARGUMENT);
  CHECK_EQ(bitedge_model_load_memory(nullptr, 0, nullptr, &model), BITEDGE_ERROR_FORMAT);
  CHECK_EQ(bitedge_model_get_info(nullptr, &info), BITEDGE_ERROR_ARGUMENT);
  CHECK_EQ(bitedge_model_check(nullptr), BITEDGE_ERROR_ARGUMENT);
  CHECK_EQ(bitedge_context_create(nullptr, nullptr, &context), BITEDGE_ERROR_ARGUMENT);
  CHECK_EQ(bitedge_context_run(nullptr, nullptr, 0, 0, nullptr, 0), BITEDGE_ERROR_ARGUMENT);
  CHECK(bitedge_model_describe(nullptr) == nullptr);
  CHECK(bitedge_model_label(nullptr, 0) == nullptr);
  CHECK(last_error_has("NULL"));
  bitedge_model_free(nullptr);
  bitedge_context_free(nullptr);
}

TEST(loads_from_memory_what_it_loads_from_a_file) {
  std::vector<uint8_t> bytes = read_file(data_path("small.gguf"));
  bitedge_model *copy = nullptr, *file = load("small.gguf");
  CHECK_EQ(bitedge_model_load_memory(bytes.data(), bytes.size(), nullptr, &copy), BITEDGE_OK);
  std::fill(bytes.begin(), bytes.end(), uint8_t(0));
  CHECK_EQ(std::string(bitedge_model_describe(copy)), bitedge_model_describe(file));
  CHECK_EQ(bitedge_model_check(copy), BITEDGE_OK);
  bitedge_model_free(copy);
  bitedge_model_free(file);
}

TEST(describes) {
  bitedge_model* model = load("small.gguf");
  bitedge_model_info info = {};
  info.struct_size = sizeof info;
  CHECK_EQ(bitedge_model_get_info(model, &info), BITEDGE_OK);
  CHECK_EQ(info.input_kind, BITEDGE_UINT8);
  CHECK_EQ(info.input_bytes, size_t(6 * 6 * 3));
  CHECK_EQ(info.output_count, 5u);
  CHECK_EQ(info.node_count, 4u);
  CHECK_EQ(info.value_count, 5u);
  CHECK_EQ(info.golden_count, 3u);
  CHECK_EQ(std::string(bitedge_model_label(model, 1)), "dog");
  CHECK(bitedge_model_label(model, 5) == nullptr);
  bitedge_model_free(model);
}

// A caller built against an older, shorter structure gets its fields and no more.
TEST(structures_may_be_shorter) {
  bitedge_model* model = load("small.gguf");
  bitedge_model_info info;
  std::memset(&info, 0x55, sizeof info);
  info.struct_size = offsetof(bitedge_model_info, output_count);
  CHECK_EQ(bitedge_model_get_info(model, &info), BITEDGE_OK);
  CHECK_EQ(info.input_bytes, size_t(6 * 6 * 3));
  CHECK_EQ(info.output_count, size_t(0x5555555555555555));
  info.struct_size = 0;
  CHECK_EQ(bitedge_model_get_info(model, &info), BITEDGE_ERROR_ARGUMENT);
  bitedge_model_free(model);
}

TEST(golden_vectors_pass) {
  for (const char* name : kModels) {
    bitedge_model* model = load(name);
    CHECK_EQ(bitedge_model_check(model), BITEDGE_OK);
    bitedge_model_free(model);
  }
}

TEST(checks_sizes) {
  bitedge_model* model = load("small.gguf");
  bitedge_context* context = make_context(model, 1, false);
  float answer[10];
  const size_t in = kImages.size(), out = sizeof answer;
  CHECK_EQ(bitedge_context_run(context, kImages.data(), in, 2, answer, out), BITEDGE_OK);
  CHECK_EQ(bitedge_context_run(context, kImages.data(), in - 1, 2, answer, out), BITEDGE_ERROR_ARGUMENT);
  CHECK(last_error_has("the input has 215 bytes, expected 108 for each of 2 images"));
  CHECK_EQ(bitedge_context_run(context, kImages.data(), in, 2, answer, out - 4), BITEDGE_ERROR_ARGUMENT);
  CHECK_EQ(bitedge_context_run(context, kImages.data(), in, 1, answer, out), BITEDGE_ERROR_ARGUMENT);
  CHECK_EQ(bitedge_context_run(context, kImages.data(), 0, 0, answer, 0), BITEDGE_ERROR_ARGUMENT);
  CHECK_EQ(bitedge_context_run(context, kImages.data(), in, SIZE_MAX / 108 + 3, answer, out), BITEDGE_ERROR_ARGUMENT);
  bitedge_context_free(context);
  bitedge_context* none = nullptr;
  for (int threads : {0, -1, 257}) {
    const bitedge_context_options options = {sizeof options, threads, 0, 0, 0};
    CHECK_EQ(bitedge_context_create(model, &options, &none), BITEDGE_ERROR_ARGUMENT);
  }
  bitedge_model_free(model);
}

TEST(a_context_outlives_its_model) {
  bitedge_model* model = load("small.gguf");
  bitedge_context* context = make_context(model, 2, true);
  bitedge_model_free(model);
  float answer[10];
  CHECK_EQ(bitedge_context_run(context, kImages.data(), kImages.size(), 2, answer, sizeof answer), BITEDGE_OK);
  CHECK(std::memcmp(answer, answer + 5, 5 * sizeof(float)) == 0);
  bitedge_context_free(context);
}

TEST(keeps_values) {
  bitedge_model* model = load("small.gguf");
  bitedge_context *keeping = make_context(model, 1, true), *other = make_context(model, 1, false);
  bitedge_value value = {};
  value.struct_size = sizeof value;
  CHECK_EQ(bitedge_context_value(keeping, 4, &value), BITEDGE_ERROR_ARGUMENT);
  CHECK(last_error_has("has not run yet"));
  float answer[10];
  for (bitedge_context* context : {keeping, other}) {
    CHECK_EQ(bitedge_context_run(context, kImages.data(), kImages.size(), 2, answer, sizeof answer), BITEDGE_OK);
  }
  CHECK_EQ(bitedge_context_value(other, 4, &value), BITEDGE_ERROR_ARGUMENT);
  CHECK(last_error_has("keep_values"));
  CHECK_EQ(bitedge_context_value(keeping, 5, &value), BITEDGE_ERROR_ARGUMENT);
  CHECK_EQ(bitedge_context_value(keeping, 4, &value), BITEDGE_OK);
  CHECK_EQ(std::string(value.name), "logits");
  CHECK_EQ(value.bytes, sizeof answer);
  CHECK(std::memcmp(value.data, answer, sizeof answer) == 0);
  CHECK_EQ(bitedge_context_value(keeping, 1, &value), BITEDGE_OK);
  CHECK_EQ(value.kind, BITEDGE_BITS);
  CHECK_EQ(value.bytes, size_t(2 * 6 * 6 * 8));
  bitedge_context_free(keeping);
  bitedge_context_free(other);
  bitedge_model_free(model);
}

TEST(profiles) {
  bitedge_model* model = load("small.gguf");
  bitedge_context* context = make_context(model, 1, false);
  float answer[10];
  uint64_t times[4] = {};
  CHECK_EQ(bitedge_context_profile(context, times, 4), BITEDGE_ERROR_ARGUMENT);
  CHECK_EQ(bitedge_context_set_profiling(context, 1), BITEDGE_OK);
  for (int i = 0; i < 5; ++i) {
    CHECK_EQ(bitedge_context_run(context, kImages.data(), kImages.size(), 2, answer, sizeof answer), BITEDGE_OK);
  }
  CHECK_EQ(bitedge_context_profile(context, times, 3), BITEDGE_ERROR_ARGUMENT);
  CHECK_EQ(bitedge_context_profile(context, times, 4), BITEDGE_OK);
  CHECK(times[0] + times[1] + times[2] + times[3] > 0);
  bitedge_context_free(context);
  bitedge_model_free(model);
}

TEST(messages_belong_to_their_thread) {
  bitedge_model* model = nullptr;
  CHECK_EQ(bitedge_model_load_file("/nowhere/a.gguf", nullptr, &model), BITEDGE_ERROR_IO);
  std::thread([] { CHECK_EQ(std::string(bitedge_last_error()), ""); }).join();
  CHECK_EQ(std::string(bitedge_last_error()), "/nowhere/a.gguf: cannot open: No such file or directory");
}
