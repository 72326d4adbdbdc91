#include "api/model.h"

#include <utility>

#include "base/budget.h"
#include "base/error.h"
#include "base/text.h"

namespace bitedge {
namespace {

// Runs `load`, and puts the name in front of the message of whatever it throws about the file.
template <typename Load>
auto named(const std::string& name, const Load& load) {
  try {
    return load();
  } catch (const Error& error) {
    if (error.code == Status::kUnavailable) throw;
    throw Error(error.code, join(name, ": ", error.message));
  }
}

}  // namespace

Model::Model(Blob blob, const char* kernels, bool verify_checksum)
    : blob_(std::move(blob)),
      packed_(read_packed(blob_.data(), blob_.size(), verify_checksum)),
      program_(Program::make(packed_.graph, kernels)),
      description_(describe(packed_.graph, packed_.metadata, *program_)) {}

std::shared_ptr<const Model> Model::make(Blob blob, const char* kernels, bool verify_checksum, uint64_t memory_limit) {
  const uint64_t limit = memory_limit ? memory_limit : default_limit(blob.size());
  Budget budget(limit);
  Budget::charge(blob.size());
  const std::shared_ptr<Model> model(new Model(std::move(blob), kernels, verify_checksum));
  model->limit_ = limit;
  model->memory_bytes_ = budget.used() - model->drop_weights();
  return model;
}

std::shared_ptr<const Model> Model::load_file(const std::string& path, const char* kernels, uint64_t memory_limit) {
  return named(path, [&] {
    Blob blob = Blob::read(path, memory_limit ? memory_limit : ~uint64_t(0));
    return make(std::move(blob), kernels, true, memory_limit);
  });
}

std::shared_ptr<const Model> Model::load_memory(const void* data, size_t size, const char* kernels,
                                                bool verify_checksum, uint64_t memory_limit) {
  return named("model in memory", [&] {
    if (memory_limit && size > memory_limit) refuse_memory("the model", size, memory_limit);
    return make(Blob::copy(data, size), kernels, verify_checksum, memory_limit);
  });
}

uint64_t Model::drop_weights() {
  uint64_t bytes = 0;
  const auto drop = [&](const auto& view) { bytes += blob_.drop(view.data, view.size * sizeof *view.data); };
  for (size_t n = 0; n < graph().nodes.size(); ++n) {
    const Node& node = graph().nodes[n];
    if (!program_->owns_weights(n)) continue;
    drop(node.bits);
    drop(node.weight_f32);
    drop(node.weight_f16);
  }
  return bytes;
}

MemoryLimit Model::context_limit(uint64_t asked) const {
  return asked ? MemoryLimit{asked, 0} : MemoryLimit{0, limit_};
}

size_t Model::input_bytes() const {
  return input().shape.elements() * (input().kind == Kind::kFloat ? sizeof(float) : 1);
}

}  // namespace bitedge
