// What happens when the system says no: no memory, no thread, a fork, a file that changes. Nothing here may crash or
// hang, and what is left must still work. Whatever could crash runs in a child of its own.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>

#include "bitedge/bitedge.h"
#include "check.h"
#include "files.h"

using namespace bitedge::testing;

namespace {

constexpr size_t kIn = 6 * 6 * 3, kOut = 5;  // of small.gguf
constexpr unsigned kPatience = 60;           // seconds, then SIGALRM: it hangs

// Runs `work` in a child and returns what it returns, or 128 and the signal that ended it.
int in_child(const std::function<int()>& work) {
  std::cout.flush();
  const pid_t child = fork();
  if (child == 0) {
    alarm(kPatience);
    _exit(work());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

bitedge_model* load(const std::string& path) {
  bitedge_model* model = nullptr;
  CHECK_EQ(bitedge_model_load_file(path.c_str(), nullptr, &model), BITEDGE_OK);
  return model;
}

bitedge_context* make_context(const bitedge_model* model, int threads, bool keep, uint64_t limit = 0) {
  bitedge_context* context = nullptr;
  bitedge_context_options options = {};
  options.struct_size = sizeof options;
  options.threads = threads;
  options.keep_values = keep;
  options.memory_limit = limit;
  CHECK_EQ(bitedge_context_create(model, &options, &context), BITEDGE_OK);
  return context;
}

struct Batch {
  explicit Batch(size_t count) : images(count * kIn, 100), answer(count * kOut), size(count) {}
  bitedge_status run(bitedge_context* context) {
    return bitedge_context_run(context, images.data(), images.size(), size, answer.data(),
                               answer.size() * sizeof(float));
  }
  std::vector<uint8_t> images;
  std::vector<float> answer;
  size_t size;
};

// A copy of a model's file that a test may destroy.
struct Copy {
  explicit Copy(const char* name) {
    const char* folder = std::getenv("TMPDIR");
    path = std::string(folder && *folder ? folder : P_tmpdir) + "/bitedge-XXXXXX";
    close(mkstemp(path.data()));
    bytes = read_file(data_path(name));
    std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), long(bytes.size()));
  }
  ~Copy() { unlink(path.c_str()); }
  std::string path;
  std::vector<uint8_t> bytes;
};

}  // namespace

TEST(a_limit_refuses_a_batch_and_the_context_goes_on) {
  bitedge_model* model = load(data_path("small.gguf"));
  bitedge_context* context = make_context(model, 2, true, 64 << 10);
  Batch one(1), many(640);
  CHECK_EQ(one.run(context), BITEDGE_OK);
  const std::vector<float> expected = one.answer;
  CHECK_EQ(many.run(context), BITEDGE_ERROR_MEMORY);
  CHECK(std::strstr(bitedge_last_error(), "memory_limit") != nullptr);
  one.answer.assign(kOut, 0);
  CHECK_EQ(one.run(context), BITEDGE_OK);
  CHECK(one.answer == expected);
  bitedge_context_free(context);
  context = make_context(model, 1, false, 64 << 10);  // needs not all images at once
  CHECK_EQ(many.run(context), BITEDGE_OK);
  CHECK(std::equal(expected.begin(), expected.end(), many.answer.end() - kOut));
  bitedge_context_free(context);
  context = make_context(model, 1, false, 64);
  CHECK_EQ(one.run(context), BITEDGE_ERROR_MEMORY);
  bitedge_context_free(context);
  bitedge_model_free(model);
}

TEST(a_limit_refuses_a_model) {
  bitedge_model* model = nullptr;
  bitedge_load_options options = {};
  options.struct_size = sizeof options;
  options.memory_limit = 100 << 10;
  const std::string path = data_path("birealnet18.gguf");
  CHECK_EQ(bitedge_model_load_file(path.c_str(), &options, &model), BITEDGE_ERROR_MEMORY);
  CHECK(std::strstr(bitedge_last_error(), "more than the limit of 102400: raise memory_limit") != nullptr);
  CHECK(model == nullptr);
}

#if !defined(BITEDGE_SANITIZED) && !defined(BITEDGE_EMULATED)
// The address space ends: sanitizers need all of it, and qemu does not keep this limit.
TEST(out_of_memory_leaves_the_context_usable) {
  bitedge_model* model = load(data_path("small.gguf"));
  const int result = in_child([&] {
    bitedge_context* context = make_context(model, 1, true);
    Batch some(2000), many(200000);  // enough that a lost arena is gone from the address space
    if (some.run(context) != BITEDGE_OK) return 1;
    const std::vector<float> expected = some.answer;
    std::ifstream statm("/proc/self/statm");
    rlim_t pages = 0;
    statm >> pages;
    const rlim_t most = pages * rlim_t(sysconf(_SC_PAGESIZE)) + (8 << 20);
    const rlimit limit = {most, most};
    if (setrlimit(RLIMIT_AS, &limit) != 0) return 2;
    for (int i = 0; i < 2; i++) {
      if (many.run(context) != BITEDGE_ERROR_MEMORY) return 3;
      some.answer.assign(some.answer.size(), 0);
      if (some.run(context) != BITEDGE_OK || some.answer != expected) return 4;
    }
    bitedge_context_free(context);
    return 0;
  });
  CHECK_EQ(result, 0);
  bitedge_model_free(model);
}
#endif

// The limit counts what a user runs, and root is free of it: so another user, who runs nothing else.
TEST(a_thread_that_cannot_start_is_an_error) {
  bitedge_model* model = load(data_path("small.gguf"));
  const int result = in_child([&] {
    const rlimit limit = {3, 3};
    if (setrlimit(RLIMIT_NPROC, &limit) != 0) return 1;
    if (geteuid() == 0 && setuid(54321) != 0) return 2;
    bitedge_context_options options = {};
    options.struct_size = sizeof options;
    options.threads = 8;
    bitedge_context* context = nullptr;
    if (bitedge_context_create(model, &options, &context) != BITEDGE_ERROR_MEMORY || context) return 3;
    if (std::strstr(bitedge_last_error(), "of 8 cannot be started") == nullptr) return 4;
    options.threads = 1;
    if (bitedge_context_create(model, &options, &context) != BITEDGE_OK) return 5;
    Batch one(1);
    return one.run(context) == BITEDGE_OK ? 0 : 6;
  });
  CHECK_EQ(result, 0);
  bitedge_model_free(model);
}

// ThreadSanitizer does not allow threads that start after a fork from a process that had some ("dup thread with used
// id").
#ifdef __SANITIZE_THREAD__
constexpr int kForkThreads = 1;
#else
constexpr int kForkThreads = 3;
#endif

TEST(a_context_works_on_both_sides_of_a_fork) {
  bitedge_model* model = load(data_path("small.gguf"));
  bitedge_context* context = make_context(model, kForkThreads, false);
  Batch batch(7);
  CHECK_EQ(batch.run(context), BITEDGE_OK);
  const std::vector<float> expected = batch.answer;
  const auto works = [&] {
    batch.answer.assign(batch.answer.size(), 0);
    return batch.run(context) == BITEDGE_OK && batch.answer == expected;
  };
  const auto child_of_child = [&] { return in_child([&] { return works() ? 0 : 2; }); };
  const int result = in_child([&] {
    for (int i = 0; i < 3; i++) {
      if (!works()) return 1;
    }
    const int deeper = child_of_child();
    bitedge_context_free(context);
    bitedge_model_free(model);
    return deeper;
  });
  CHECK_EQ(result, 0);
  const auto only_free = [&] {
    bitedge_context_free(context);
    return 0;
  };
  CHECK_EQ(in_child(only_free), 0);
  CHECK(works());
  bitedge_context_free(context);
  bitedge_model_free(model);
}

// Of a sanitizer's own handler for SIGBUS nothing must be left, or it would report instead of dying.
TEST(a_file_may_be_truncated_or_overwritten_under_a_model) {
  for (const char* name : {"small.gguf", "float.gguf", "image.gguf", "birealnet18.gguf"}) {
    const Copy copy(name);
    for (const char* kernels : {static_cast<const char*>(nullptr), "scalar"}) {
      if (kernels && std::strcmp(name, "birealnet18.gguf") == 0) continue;  // takes seconds
      std::ofstream(copy.path, std::ios::binary)
          .write(reinterpret_cast<const char*>(copy.bytes.data()), long(copy.bytes.size()));
      bitedge_model* model = nullptr;
      bitedge_load_options options = {};
      options.struct_size = sizeof options;
      options.kernels = kernels;
      CHECK_EQ(bitedge_model_load_file(copy.path.c_str(), &options, &model), BITEDGE_OK);
      std::ofstream(copy.path, std::ios::binary).write("overwritten", 11);
      CHECK_EQ(in_child([&] { return int(bitedge_model_check(model)); }), 0);
      CHECK_EQ(truncate(copy.path.c_str(), 0), 0);
      CHECK_EQ(in_child([&] { return int(bitedge_model_check(model)); }), 0);
      bitedge_model_free(model);
    }
  }
}

TEST(a_file_that_is_not_one_is_refused) {
  bitedge_model* model = nullptr;
  CHECK_EQ(bitedge_model_load_file("/tmp", nullptr, &model), BITEDGE_ERROR_IO);
  CHECK_EQ(bitedge_model_load_file("/dev/zero", nullptr, &model), BITEDGE_ERROR_IO);
  CHECK(std::strstr(bitedge_last_error(), "not a regular file") != nullptr);
}
