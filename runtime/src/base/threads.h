// A pool of threads that share one caller's work. The caller is one of them, so a pool of one has no thread at all.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace bitedge {

class Team;

class Pool {
 public:
  // A thread that waits for work looks for it for so long before it sleeps: longer than the gap between two layers,
  // and than what a caller does between two images. Waking it takes tens of microseconds.
  static constexpr std::chrono::microseconds kPatience{100};

  // Throws Error{kMemory} when a thread cannot be started; none is left then.
  explicit Pool(int threads, std::chrono::microseconds patience = kPatience);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int size() const { return threads_; }

  // After a fork the child has none of the threads: starts them anew. To be called before a run's first job. Throws as
  // the constructor does.
  void restart_after_fork();

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

  const int threads_;
  const std::chrono::microseconds patience_;
  uint64_t process_;            // counts forks: whose threads they are
  std::unique_ptr<Team> team_;  // null when there is one thread
};

}  // namespace bitedge
