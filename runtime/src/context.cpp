#include "context.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "error.h"

namespace bitedge {
namespace {

// Images run through the network together only while their values stay in this much memory, which is about what a
// core's share of the caches holds. Weights are read once per chunk, so dense layers gain from more than one.
constexpr size_t kChunkBytes = size_t(4) << 20;
constexpr size_t kChunkImages = 16;

size_t value_bytes(const Value& value) {
  const size_t pixel = value.kind == Kind::kBits    ? value.shape.words() * sizeof(uint64_t)
                       : value.kind == Kind::kFloat ? size_t(value.shape.channels) * sizeof(float)
                                                    : size_t(value.shape.channels);
  return value.shape.pixels() * pixel;
}

}  // namespace

Context::Context(const Program& program, int threads, bool keep_values)
    : program_(program), keep_values_(keep_values), pool_(threads) {}

// Block i is value i; block values + n is the scratch of node n. A value lives from the node that makes it to the last
// one that reads it; the answer until the end. Scratch lives for its node only.
void Context::plan(size_t images) {
  const Graph& graph = program_.graph();
  const int32_t end = int32_t(graph.nodes.size());
  std::vector<Life> lives(graph.values.size() + graph.nodes.size());
  for (int32_t n = 0; n < end; n++) {
    const Node& node = graph.nodes[size_t(n)];
    for (const int32_t v : node.outputs) {
      lives[size_t(v)] = {value_bytes(graph.values[size_t(v)]) * images, n, keep_values_ ? end : n};
    }
    for (const int32_t v : node.inputs) lives[size_t(v)].last = std::max(lives[size_t(v)].last, n);
    lives[graph.values.size() + size_t(n)] = {program_.layer(size_t(n)).scratch_bytes(images), n, n};
  }
  lives[size_t(graph.output)].last = end;

  size_t total = 0;
  const std::vector<size_t> offsets = place(lives, &total);
  arena_.reserve(total);
  values_.resize(lives.size());
  for (size_t i = 0; i < lives.size(); i++) values_[i] = arena_.data() + offsets[i];
  planned_ = images;
}

void Context::run(const void* input, size_t batch, float* output) {
  const Graph& graph = program_.graph();
  if (batch == 0) throw Error(Status::kArgument, "expected at least one image, got a batch of 0");
  if (keep_values_) {
    if (planned_ != batch) plan(batch);
  } else if (planned_ == 0) {
    plan(1);
  }
  if (!keep_values_ && planned_ < std::min(batch, kChunkImages)) {
    const size_t fit = std::max(size_t(1), kChunkBytes / std::max(arena_.bytes() / planned_, size_t(1)));
    const size_t chunk = std::min({batch, kChunkImages, fit});
    if (chunk > planned_) plan(chunk);
  }
  const size_t in = value_bytes(graph.values[0]), out = graph.values[size_t(graph.output)].shape.elements();
  for (size_t done = 0; done < batch;) {
    const size_t images = std::min(planned_, batch - done);
    values_[0] = const_cast<unsigned char*>(static_cast<const unsigned char*>(input)) + done * in;
    run_chunk(images);
    std::memcpy(output + done * out, values_[size_t(graph.output)], images * out * sizeof(float));
    done += images;
  }
}

void Context::run_chunk(size_t images) {
  const Graph& graph = program_.graph();
  using Clock = std::chrono::steady_clock;
  Clock::time_point before = profiling_ ? Clock::now() : Clock::time_point();
  for (size_t n = 0; n < graph.nodes.size(); n++) {
    const Node& node = graph.nodes[n];
    Call call;
    call.images = images;
    call.input = values_[size_t(node.inputs[0])];
    call.residual = node.inputs.size() > 1 ? values_[size_t(node.inputs[1])] : nullptr;
    call.first = values_[size_t(node.outputs[0])];
    call.second = node.outputs.size() > 1 ? values_[size_t(node.outputs[1])] : nullptr;
    call.scratch = values_[graph.values.size() + n];
    program_.layer(n).run(call, pool_);
    if (profiling_) {
      const Clock::time_point now = Clock::now();
      nanoseconds_[n] += uint64_t(std::chrono::duration_cast<std::chrono::nanoseconds>(now - before).count());
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
