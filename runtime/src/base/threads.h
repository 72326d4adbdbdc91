// A pool of threads that share one caller's work. The caller is one of them, so a pool of one has no thread at all.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace bitedge {

class Pool {
 public:
  explicit Pool(int threads);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int size() const { return int(workers_.size()) + 1; }

  // Calls task(i) once for each i below `count`, on any thread and in any order, and returns when all are done. Each
  // thread begins with its share of neighbours, which is the same for each call with the same count, so what it finds
  // in its cache may be its own; whoever ends early goes on with the others' shares.
  // What a task writes must not depend on the thread that runs it. A task must not throw.
  template <typename Task>
  void each(size_t count, const Task& task) {
    run(count, [](const void* self, size_t i, int) { (*static_cast<const Task*>(self))(i); }, &task);
  }

  // The same with task(i, thread), 0 <= thread < size(), for what a thread keeps to itself.
  template <typename Task>
  void each_on(size_t count, const Task& task) {
    run(count, [](const void* self, size_t i, int thread) { (*static_cast<const Task*>(self))(i, thread); }, &task);
  }

 private:
  using Function = void (*)(const void*, size_t, int);
  void run(size_t count, Function function, const void* task);
  void work(int thread);
  void serve(int thread);

  // Tasks [next, end) are left. A cache line of its own, which others touch only at the end.
  struct alignas(64) Share {
    std::atomic<size_t> next{0};
    size_t end = 0;
  };

  Function function_ = nullptr;
  const void* task_ = nullptr;
  std::vector<Share> shares_;     // one of each thread
  std::atomic<uint64_t> job_{0};  // odd while a job is open
  std::atomic<int> present_{0};   // workers at the open job
  std::atomic<int> asleep_{0};
  bool stop_ = false;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::thread> workers_;
};

}  // namespace bitedge
