// Classify what a camera sees, on several cores, and never fall behind.
//
//     camera model.gguf [workers] [frames] [frames per second]
//
// Each worker has its own context of one thread: that gives the most images per second, since nobody waits for anybody.
// (One context of several threads gives the earliest answer to a single image.) A frame that comes while all workers
// are busy takes the place of the one that waits: the answer is always to the newest picture. Instead of a camera there
// is a source of moving patterns, so that this runs anywhere.
#include <bitedge/bitedge.hpp>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

namespace {

using Clock = std::chrono::steady_clock;

struct Frame {
  std::vector<char> pixels;
  Clock::time_point taken;
};

// The newest frame, or none. Frames and workers meet here.
class Slot {
 public:
  void put(Frame frame) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      dropped_ += full_;
      frame_ = std::move(frame);
      full_ = true;
    }
    ready_.notify_one();
  }

  // False when there will be no more.
  bool take(Frame* frame) {
    std::unique_lock<std::mutex> lock(mutex_);
    ready_.wait(lock, [this] { return full_ || closed_; });
    if (!full_) return false;
    *frame = std::move(frame_);
    full_ = false;
    return true;
  }

  void close() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      closed_ = true;
    }
    ready_.notify_all();
  }

  int dropped() const { return dropped_; }  // after the workers have ended

 private:
  std::mutex mutex_;
  std::condition_variable ready_;
  Frame frame_;
  bool full_ = false, closed_ = false;
  int dropped_ = 0;
};

struct Tally {
  int frames = 0;
  double slowest_ms = 0;
  std::string error = {};
};

void serve(const bitedge::Model& model, Slot& slot, Tally& tally) {
  try {
    bitedge::Context context(model);
    std::vector<float> logits(model.info().output_count);
    for (Frame frame; slot.take(&frame); ++tally.frames) {
      context.run(frame.pixels.data(), 1, logits.data());
      const std::chrono::duration<double, std::milli> took = Clock::now() - frame.taken;
      if (took.count() > tally.slowest_ms) tally.slowest_ms = took.count();
    }
  } catch (const bitedge::Error& error) {
    tally.error = error.what();
  }
}

Frame take_picture(size_t bytes, bool floats, int number) {
  Frame frame{std::vector<char>(bytes), Clock::now()};
  if (!floats) {
    for (size_t i = 0; i < bytes; ++i) frame.pixels[i] = char(i * 7 + size_t(number) * 3);
  }
  return frame;
}

int run(const char* path, int workers, int frames, int rate) {
  const bitedge::Model model(path);
  const bitedge_model_info info = model.info();
  Slot slot;
  std::vector<Tally> tallies(static_cast<size_t>(workers));
  std::vector<std::thread> threads;
  for (Tally& tally : tallies) threads.emplace_back([&model, &slot, &tally] { serve(model, slot, tally); });
  auto next = Clock::now();
  for (int i = 0; i < frames; ++i) {
    std::this_thread::sleep_until(next);
    slot.put(take_picture(info.input_bytes, info.input_kind == BITEDGE_FLOAT32, i));
    next += std::chrono::microseconds(1000000 / rate);
  }
  slot.close();
  for (std::thread& thread : threads) thread.join();
  Tally all;
  for (const Tally& tally : tallies) {
    all.frames += tally.frames;
    if (tally.slowest_ms > all.slowest_ms) all.slowest_ms = tally.slowest_ms;
    if (!tally.error.empty()) throw std::runtime_error(tally.error);
  }
  std::printf("%d frames, %d answered, %d dropped, slowest answer %.1f ms\n", frames, all.frames, slot.dropped(),
              all.slowest_ms);
  return all.frames + slot.dropped() == frames ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int i, int otherwise) { return argc > i ? std::atoi(argv[i]) : otherwise; };
  const int workers = number(2, 2), frames = number(3, 100), rate = number(4, 30);
  if (argc < 2 || workers < 1 || frames < 1 || rate < 1) {
    std::fprintf(stderr, "usage: camera model.gguf [workers] [frames] [frames per second]\n");
    return 2;
  }
  try {
    return run(argv[1], workers, frames, rate);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
