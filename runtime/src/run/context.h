// One caller's place to run a program: arena, scratch, threads.
//
// A Context serves one caller at a time. Everything is planned and allocated when a batch size is first seen;
// after that `run` neither allocates nor locks (but for the hand-off to its own threads).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/threads.h"
#include "plan/arena.h"
#include "plan/program.h"

namespace bitedge {

// The most memory that a plan may take: so much in all, and so much for each image of the batch.
struct MemoryLimit {
  uint64_t fixed = 0, each_image = 0;
  static MemoryLimit none() { return {~uint64_t(0), 0}; }
  uint64_t of(uint64_t images) const {
    return each_image > (~uint64_t(0) - fixed) / images ? ~uint64_t(0) : fixed + each_image * images;
  }
};

class Context {
 public:
  // `program` must outlive the context. With `keep_values`, every value of the last run stays readable.
  explicit Context(const Program& program, int threads = 1, bool keep_values = false,
                   MemoryLimit limit = MemoryLimit::none(), std::chrono::microseconds patience = Pool::kPatience);

  // `input` holds `batch` images, HWC, uint8 or float32 as value 0 says; `output` takes [batch, elements of the
  // answer]. The answers do not depend on the number of threads, nor on what else is in the batch. Throws
  // Error{kMemory} or std::bad_alloc when a plan does not fit; the context can be used again afterwards.
  void run(const void* input, size_t batch, float* output);

  // Value `index` of the last run, [batch, height, width, channels], bits packed into words; null unless
  // `keep_values`, and before the first run. Value 0 is the caller's own input.
  const void* value(size_t index) const;

  // While on, node_nanoseconds() holds the wall time of each node, summed over the runs since it was turned on.
  void set_profiling(bool on);
  const std::vector<uint64_t>& node_nanoseconds() const { return nanoseconds_; }

  int threads() const { return pool_.size(); }
  size_t arena_bytes() const { return arena_.bytes(); }
  size_t scratch_bytes() const { return scratch_; }  // of the arena: what the neediest layer works in

 private:
  void prepare(size_t batch);
  bool try_plan(size_t images);
  void plan(size_t images);
  void run_chunk(size_t images);

  const Program& program_;
  const bool keep_values_;
  const MemoryLimit limit_;
  size_t planned_ = 0;  // images at a time that the arena holds; 0: there is no plan
  size_t most_images_;  // at a time, as far as memory has been found to go
  size_t scratch_ = 0;
  bool profiling_ = false;
  Arena arena_;
  std::vector<void*> values_;
  std::vector<const void*> inputs_;  // of the step that runs
  std::vector<void*> outputs_;
  Pool pool_;
  std::vector<uint64_t> nanoseconds_;
};

}  // namespace bitedge
