// Memory ends at the n-th allocation, for every n, over loading, planning and running: each time an error code, nothing
// lost, and the next attempt works. Here, and nowhere else, operator new is replaced.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>

#include "bitedge/bitedge.h"
#include "check.h"
#include "files.h"

using namespace bitedge::testing;

namespace {

std::atomic<long> countdown{-1};  // allocations until one fails; negative: none does
std::atomic<long> living{0};      // blocks not yet released

void* allocate(size_t bytes, size_t alignment) {
  if (countdown.load() >= 0 && countdown.fetch_sub(1) == 0) return nullptr;
  void* block = nullptr;
  if (posix_memalign(&block, std::max(alignment, sizeof(void*)), bytes ? bytes : 1) != 0) return nullptr;
  ++living;
  return block;
}

void* allocate_or_throw(size_t bytes, size_t alignment) {
  void* block = allocate(bytes, alignment);
  if (!block) throw std::bad_alloc();
  return block;
}

void release(void* block) {
  if (block) --living;
  std::free(block);
}

constexpr size_t kAlignment = alignof(std::max_align_t);

}  // namespace

void* operator new(size_t bytes) { return allocate_or_throw(bytes, kAlignment); }
void* operator new[](size_t bytes) { return allocate_or_throw(bytes, kAlignment); }
void* operator new(size_t bytes, std::align_val_t to) { return allocate_or_throw(bytes, size_t(to)); }
void* operator new[](size_t bytes, std::align_val_t to) { return allocate_or_throw(bytes, size_t(to)); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes, kAlignment); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes, kAlignment); }
void operator delete(void* block) noexcept { release(block); }
void operator delete[](void* block) noexcept { release(block); }
void operator delete(void* block, size_t) noexcept { release(block); }
void operator delete[](void* block, size_t) noexcept { release(block); }
void operator delete(void* block, std::align_val_t) noexcept { release(block); }
void operator delete[](void* block, std::align_val_t) noexcept { release(block); }
void operator delete(void* block, size_t, std::align_val_t) noexcept { release(block); }
void operator delete[](void* block, size_t, std::align_val_t) noexcept { release(block); }

namespace {

// Calls `attempt` with memory that ends after 0, 1, 2 ... allocations, until it has enough; `undo` takes back what a
// success made before that. Returns how often an allocation failed.
template <typename Attempt, typename Undo>
long until_it_works(const Attempt& attempt, const Undo& undo) {
  for (long n = 0;; ++n) {
    const long before = living;
    countdown = n;
    const bitedge_status status = attempt();
    const bool enough = countdown.exchange(-1) >= 0;
    if (enough || status == BITEDGE_ERROR_INTERNAL) {
      CHECK_EQ(status, BITEDGE_OK);
      return n;
    }
    if (status == BITEDGE_OK) {
      undo();
    } else {
      CHECK_EQ(status, BITEDGE_ERROR_MEMORY);
    }
    CHECK_EQ(living.load(), before);
  }
}

bitedge_context_options options_of(int threads, bool keep) {
  bitedge_context_options options = {};
  options.struct_size = sizeof options;
  options.threads = threads;
  options.keep_values = keep;
  return options;
}

}  // namespace

// First, while nothing is cached yet: these return no code.
TEST(names_without_memory_are_empty) {
  countdown = 0;
  CHECK_EQ(bitedge_kernel_count(), 0u);
  countdown = 0;
  const char* features = bitedge_cpu_features();
  const bool allocates = countdown.exchange(-1) < 0;  // a short text ("neon dotprod") lives in the string itself
  CHECK(!allocates || std::strcmp(features, "") == 0);
  CHECK(bitedge_kernel_count() > 0);
  CHECK(bitedge_cpu_features() != nullptr);
  bitedge_kernel_info info = {};
  info.struct_size = sizeof info;
  CHECK_EQ(bitedge_kernel(0, &info), BITEDGE_OK);  // now all is cached that stays
}

TEST(loading_survives_every_failure) {
  for (const char* name : {"small.gguf", "image.gguf", "float.gguf"}) {
    const std::string path = data_path(name);
    const std::vector<uint8_t> bytes = read_file(path);
    bitedge_model* model = nullptr;
    const auto from_file = [&] { return bitedge_model_load_file(path.c_str(), nullptr, &model); };
    const auto from_memory = [&] { return bitedge_model_load_memory(bytes.data(), bytes.size(), nullptr, &model); };
    const auto free_model = [&] { bitedge_model_free(model); };
    CHECK(until_it_works(from_file, free_model) > 50);
    free_model();
    until_it_works(from_memory, free_model);
    until_it_works([&] { return bitedge_model_check(model); }, [] {});
    free_model();
  }
}

TEST(planning_and_running_survive_every_failure) {
  constexpr size_t kIn = 6 * 6 * 3, kOut = 5;
  bitedge_model* model = nullptr;
  CHECK_EQ(bitedge_model_load_file(data_path("small.gguf").c_str(), nullptr, &model), BITEDGE_OK);
  const std::vector<uint8_t> images(kIn * 40, 100);
  for (const int threads : {1, 3}) {
    for (const bool keep : {false, true}) {
      bitedge_context* context = nullptr;
      const bitedge_context_options options = options_of(threads, keep);
      until_it_works([&] { return bitedge_context_create(model, &options, &context); },
                     [&] { bitedge_context_free(context); });
      std::vector<float> expected(kOut);
      for (const size_t batch : {size_t(1), size_t(40), size_t(3)}) {
        std::vector<float> answer(kOut * batch);
        bool enough = false;
        for (long n = 0; !enough; ++n) {
          countdown = n;
          const bitedge_status status = bitedge_context_run(context, images.data(), kIn * batch, batch, answer.data(),
                                                            answer.size() * sizeof(float));
          enough = countdown.exchange(-1) >= 0;
          if (status != BITEDGE_OK) CHECK_EQ(status, BITEDGE_ERROR_MEMORY);
          if (enough) CHECK_EQ(status, BITEDGE_OK);
        }
        if (batch == 1) expected = answer;
        for (size_t i = 0; i < answer.size(); i++) CHECK_EQ(answer[i], expected[i % kOut]);
      }
      until_it_works([&] { return bitedge_context_set_profiling(context, 1); }, [] {});
      bitedge_context_free(context);
    }
  }
  bitedge_model_free(model);
}
