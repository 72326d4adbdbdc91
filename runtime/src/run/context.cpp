#include "run/context.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <numeric>

#include "base/budget.h"
#include "base/error.h"

namespace bitedge {
namespace {

// Images run through the network together only while their values stay in this much memory, which is about what a
// core's share of the caches holds. Weights are read once per chunk, so dense layers gain from more than one.
constexpr size_t kChunkBytes = size_t(4) << 20;
constexpr size_t kChunkImages = 16;

}  // namespace

Context::Context(const Program& program, int threads, bool keep_values, MemoryLimit limit,
                 std::chrono::microseconds patience)
    : program_(program),
      keep_values_(keep_values),
      limit_(limit),
      most_images_(kChunkImages),
      pool_(threads, patience) {}

// Block i is value i; block values + t is the scratch of step t. A value lives from the step that makes it to the last
// one that reads it; the answer until the end. Scratch lives for its step only. A sum takes the place of its residual
// when nobody needs that any more: each element is read before it is written, and half the memory moves.
// What is refused by the limit leaves the old plan; what the system refuses leaves none, and the next run plans anew.
void Context::plan(size_t images) {
  const Graph& graph = program_.graph();
  const std::vector<Step>& steps = program_.steps(keep_values_);
  const int32_t end = int32_t(steps.size());
  const size_t values = graph.values.size();
  std::vector<Life> lives(values + steps.size());
  for (int32_t t = 0; t < end; t++) {
    const Step& step = steps[size_t(t)];
    for (const int32_t v : step.outputs) {
      lives[size_t(v)] = {uint64_t(graph.values[size_t(v)].bytes()) * images, t, keep_values_ ? end : t};
    }
    for (const int32_t v : step.inputs) lives[size_t(v)].last = std::max(lives[size_t(v)].last, t);
    lives[values + size_t(t)] = {step.layer->scratch_bytes(images, pool_.size()), t, t};
  }
  lives[size_t(graph.output)].last = end;

  std::vector<size_t> home(values);  // the value whose block it is
  std::iota(home.begin(), home.end(), size_t(0));
  for (int32_t t = 0; t < end; t++) {
    const Step& step = steps[size_t(t)];
    if (step.in_place <= 0 || lives[size_t(step.in_place)].last != t) continue;
    const size_t residual = size_t(step.in_place), sum = size_t(step.outputs[0]);
    home[sum] = home[residual];
    lives[home[sum]].last = lives[sum].last;
    lives[sum].bytes = 0;
  }

  uint64_t total = 0, scratch = 0;
  for (size_t i = values; i < lives.size(); i++) scratch = std::max(scratch, lives[i].bytes);
  const std::vector<uint64_t> offsets = place(lives, &total);
  if (total > limit_.of(images)) refuse_memory("a context for this batch", total, limit_.of(images));
  values_.reserve(lives.size());
  for (const Step& step : steps) {
    inputs_.resize(std::max(inputs_.size(), step.inputs.size()));
    outputs_.resize(std::max(outputs_.size(), step.outputs.size()));
  }
  planned_ = 0;
  arena_.reserve(total);
  values_.resize(lives.size());
  for (size_t i = 0; i < lives.size(); i++) values_[i] = arena_.data() + size_t(offsets[i < values ? home[i] : i]);
  scratch_ = size_t(scratch);
  planned_ = images;
}

bool Context::try_plan(size_t images) {
  try {
    plan(images);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  } catch (const Error&) {  // the limit
    return false;
  }
}

// Plans for as many images at a time as the batch has, caches hold and memory allows; with `keep_values` for all.
void Context::prepare(size_t batch) {
  pool_.restart_after_fork();
  if (keep_values_) {
    if (planned_ != batch) plan(batch);
    return;
  }
  if (planned_ == 0) plan(1);
  const size_t fit = std::max(size_t(1), kChunkBytes / std::max(arena_.bytes() / planned_, size_t(1)));
  for (size_t chunk = std::min({batch, most_images_, fit}); chunk > planned_; chunk /= 2) {
    if (try_plan(chunk)) return;
    most_images_ = std::max(size_t(1), chunk / 2);
  }
  if (planned_ == 0) plan(1);
}

void Context::run(const void* input, size_t batch, float* output) {
  const Graph& graph = program_.graph();
  if (batch == 0) throw Error(Status::kArgument, "expected at least one image, got a batch of 0");
  prepare(batch);
  const size_t in = graph.values[0].bytes(), out = graph.values[size_t(graph.output)].shape.elements();
  for (size_t done = 0; done < batch;) {
    const size_t images = std::min(planned_, batch - done);
    values_[0] = const_cast<unsigned char*>(static_cast<const unsigned char*>(input)) + done * in;
    run_chunk(images);
    std::memcpy(output + done * out, values_[size_t(graph.output)], images * out * sizeof(float));
    done += images;
  }
}

void Context::run_chunk(size_t images) {
  const std::vector<Step>& steps = program_.steps(keep_values_);
  const size_t scratch = program_.graph().values.size();
  using Clock = std::chrono::steady_clock;
  Clock::time_point before = profiling_ ? Clock::now() : Clock::time_point();
  for (size_t t = 0; t < steps.size(); t++) {
    for (size_t i = 0; i < steps[t].inputs.size(); i++) inputs_[i] = values_[size_t(steps[t].inputs[i])];
    for (size_t i = 0; i < steps[t].outputs.size(); i++) outputs_[i] = values_[size_t(steps[t].outputs[i])];
    Call call;
    call.images = images;
    call.inputs = inputs_.data();
    call.outputs = outputs_.data();
    call.scratch = values_[scratch + t];
    if (images == 1) call.ahead = steps[t].ahead;
    steps[t].layer->run(call, pool_);
    if (profiling_) {
      const Clock::time_point now = Clock::now();
      nanoseconds_[steps[t].node] +=
          uint64_t(std::chrono::duration_cast<std::chrono::nanoseconds>(now - before).count());
      before = now;
    }
  }
}

const void* Context::value(size_t index) const {
  return keep_values_ && planned_ && index < program_.graph().values.size() ? values_[index] : nullptr;
}

void Context::set_profiling(bool on) {
  profiling_ = on;
  if (on) nanoseconds_.assign(program_.graph().nodes.size(), 0);
}

}  // namespace bitedge
