#include "base/threads.h"

#include <chrono>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace bitedge {
namespace {

// How long a thread looks for work before it sleeps: longer than the gap between two layers, and than what a caller
// does between two images. Waking it takes tens of microseconds.
constexpr std::chrono::microseconds kPatience(100);
constexpr int kSpins = 64;  // between two looks at the clock

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// Waits for `done` without sleeping; false when patience ends.
template <typename Done>
bool spin(const Done& done) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  do {
    for (int i = 0; i < kSpins; i++) {
      if (done()) return true;
      relax();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

}  // namespace

Pool::Pool(int threads) : shares_(size_t(threads)) {
  for (int i = 1; i < threads; i++) workers_.emplace_back([this, i] { serve(i); });
}

Pool::~Pool() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void Pool::run(size_t count, Function function, const void* task) {
  if (workers_.empty() || count < 2) {
    for (size_t i = 0; i < count; i++) function(task, i, 0);
    return;
  }
  function_ = function;
  task_ = task;
  for (size_t i = 0; i < shares_.size(); i++) {
    shares_[i].next.store(count * i / shares_.size(), std::memory_order_relaxed);
    shares_[i].end = count * (i + 1) / shares_.size();
  }
  // Opens the job. Sequentially consistent with `asleep_`: a worker either sees the new job or is seen asleep.
  job_.fetch_add(1);
  if (asleep_.load() > 0) {
    const std::lock_guard<std::mutex> lock(mutex_);
    wake_.notify_all();
  }
  work(0);
  // Closes it. A worker that has not come yet, because its core is another's, is not waited for: either it is seen in
  // `present_`, or it sees that the job is closed.
  job_.fetch_add(1);
  if (spin([this] { return present_.load() == 0; })) return;
  while (present_.load() > 0) std::this_thread::yield();
}

void Pool::work(int thread) {
  for (size_t s = 0; s < shares_.size(); s++) {
    Share& share = shares_[(size_t(thread) + s) % shares_.size()];
    for (size_t i; (i = share.next.fetch_add(1, std::memory_order_relaxed)) < share.end;) function_(task_, i, thread);
  }
}

void Pool::serve(int thread) {
  uint64_t seen = 0;
  const auto open = [&] {
    const uint64_t now = job_.load(std::memory_order_relaxed);
    return now % 2 == 1 && now != seen;
  };
  while (true) {
    const uint64_t last = job_.load();
    if (!spin(open)) {
      std::unique_lock<std::mutex> lock(mutex_);
      asleep_.fetch_add(1);
      wake_.wait(lock, [&] { return stop_ || job_.load() != last; });
      asleep_.fetch_sub(1);
      if (stop_) return;
      continue;
    }
    present_.fetch_add(1);
    const uint64_t now = job_.load();
    if (now % 2 == 1) work(thread);
    present_.fetch_sub(1);
    seen = now;
  }
}

}  // namespace bitedge
