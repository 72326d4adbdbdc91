// The bare loop on as many pixels, channels and words as a layer has, rounded to its tile.
#pragma once

#include <bitset>
#include <random>

#include "bare_loop.h"
#include "base/aligned.h"
#include "base/error.h"

namespace bitedge {

class Limit {
 public:
  Limit(int pixels, int channels, int words)
      : pixels_((pixels + 3) / 4 * 4),
        channels_((channels + 15) / 16 * 16),
        words_(words),
        a_(size_t(pixels_) * size_t(words_)),
        w_(size_t(channels_) * size_t(words_)),
        out_(size_t(pixels_) * size_t(channels_)) {
    std::mt19937_64 random(1);
    for (size_t i = 0; i < a_.size(); i++) a_[i] = random();
    for (size_t i = 0; i < w_.size(); i++) w_[i] = random();
    if (!has_bare_loop()) return;
    run();
    for (const int channel : {0, channels_ - 1}) check(pixels_ - 1, channel);
  }

  void run() { bare_loop(a_.data(), w_.data(), out_.data(), pixels_, channels_, words_); }
  double macs() const { return 64.0 * pixels_ * channels_ * words_; }

 private:
  // A yardstick that measures something else is worse than none.
  void check(int pixel, int channel) const {
    int32_t sum = 0;
    for (int k = 0; k < words_; k++) {
      const size_t at = (size_t(channel / 8) * size_t(words_) + size_t(k)) * 8 + size_t(channel % 8);
      sum += int32_t(std::bitset<64>(a_[size_t(pixel * words_ + k)] ^ w_[at]).count());
    }
    if (out_[size_t(pixel * channels_ + channel)] != sum) throw Error(Status::kInternal, "the bare loop miscounts");
  }

  int pixels_, channels_, words_;
  Aligned<uint64_t> a_, w_;
  Aligned<int32_t> out_;
};

}  // namespace bitedge
