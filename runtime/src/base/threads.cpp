#include "base/threads.h"

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/text.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace bitedge {
namespace {

constexpr int kSpins = 64;  // between two looks at the clock

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb");  // about as long as a pause; `yield` is next to nothing on most cores
#endif
}

// Waits for `done` without sleeping; false when patience ends.
template <typename Done>
bool spin(std::chrono::microseconds patience, const Done& done) {
  const auto end = std::chrono::steady_clock::now() + patience;
  do {
    for (int i = 0; i < kSpins; i++) {
      if (done()) return true;
      relax();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

std::atomic<uint64_t> forks{0};

// How many forks lie between this process and the one that first asked.
uint64_t process() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1); });
  (void)registered;
  return forks.load(std::memory_order_relaxed);
}

}  // namespace

// The threads of a pool, and all that they share. After a fork nothing of it can be used, nor released: a mutex may be
// held by a thread that is not there.
class Team {
 public:
  using Function = void (*)(const void*, size_t, int);

  Team(int threads, std::chrono::microseconds patience) : patience_(patience), shares_(size_t(threads)) {
    workers_.reserve(size_t(threads));
    for (int i = 1; i < threads; i++) {
      try {
        workers_.emplace_back([this, i] { serve(i); });
      } catch (const std::system_error& error) {
        stop();
        throw Error(Status::kMemory, join("thread ", i + 1, " of ", threads, " cannot be started: ", error.what()));
      } catch (...) {
        stop();
        throw;
      }
    }
  }
  ~Team() { stop(); }

  void run(size_t count, Function function, const void* task);

 private:
  void stop();
  void work(int thread);
  void serve(int thread);

  // Tasks [next, end) are left. A cache line of its own, which others touch only at the end.
  struct alignas(64) Share {
    std::atomic<size_t> next{0};
    size_t end = 0;
  };

  const std::chrono::microseconds patience_;
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

void Team::stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void Team::run(size_t count, Function function, const void* task) {
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
  if (spin(patience_, [this] { return present_.load() == 0; })) return;
  while (present_.load() > 0) std::this_thread::yield();
}

void Team::work(int thread) {
  for (size_t s = 0; s < shares_.size(); s++) {
    Share& share = shares_[(size_t(thread) + s) % shares_.size()];
    for (size_t i; (i = share.next.fetch_add(1, std::memory_order_relaxed)) < share.end;) function_(task_, i, thread);
  }
}

void Team::serve(int thread) {
  uint64_t seen = 0;
  const auto open = [&] {
    const uint64_t now = job_.load(std::memory_order_relaxed);
    return now % 2 == 1 && now != seen;
  };
  while (true) {
    const uint64_t last = job_.load();
    if (!spin(patience_, open)) {
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

Pool::Pool(int threads, std::chrono::microseconds patience)
    : threads_(threads), patience_(patience), process_(process()) {
  if (threads > 1) team_ = std::make_unique<Team>(threads, patience);
}

Pool::~Pool() {
  if (process_ != process()) (void)team_.release();
}

void Pool::restart_after_fork() {
  if (!team_ || process_ == process()) return;
  auto fresh = std::make_unique<Team>(threads_, patience_);
  (void)team_.release();  // its threads were the parent's
  team_ = std::move(fresh);
  process_ = process();
}

void Pool::run(size_t count, Function function, const void* task) {
  if (team_ && count > 1) return team_->run(count, function, task);
  for (size_t i = 0; i < count; i++) function(task, i, 0);
}

}  // namespace bitedge
