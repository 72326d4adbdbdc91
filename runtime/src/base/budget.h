// The most memory that loading a model may take. While a Budget lives, what this thread allocates for the model, as
// aligned blocks, tables or text, is counted before it is allocated, so that no file, however small, makes a process
// that is larger than its owner wants.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitedge {

class Budget {
 public:
  explicit Budget(uint64_t limit) : limit_(limit), outer_(current_) { current_ = this; }
  ~Budget() { current_ = outer_; }
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  uint64_t used() const { return used_; }

  // Counts `bytes` that are about to be allocated. Throws Error{kMemory} when they are more than what is left.
  static void charge(uint64_t bytes) {
    if (current_) current_->take(bytes);
  }

 private:
  void take(uint64_t bytes);

  static thread_local Budget* current_;
  const uint64_t limit_;
  uint64_t used_ = 0;
  Budget* const outer_;
};

// The limit where none is given: in proportion to the file, and enough for any network on images of common sizes.
constexpr uint64_t default_limit(uint64_t file_bytes) { return (uint64_t(256) << 20) + 64 * file_bytes; }

// Throws Error{kMemory}: what `what` needs, what it may have, and what to do.
[[noreturn]] void refuse_memory(const char* what, uint64_t needed, uint64_t limit);

}  // namespace bitedge
