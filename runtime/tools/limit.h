// The bare loop on as many pixels, channels and words as a layer has, rounded to its tile.
#pragma once

#include <random>

#include "bare_loop.h"
#include "src/aligned.h"

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
  }

  void run() { bare_loop(a_.data(), w_.data(), out_.data(), pixels_, channels_, words_); }
  double macs() const { return 64.0 * pixels_ * channels_ * words_; }

 private:
  int pixels_, channels_, words_;
  Aligned<uint64_t> a_, w_;
  Aligned<int32_t> out_;
};

}  // namespace bitedge
