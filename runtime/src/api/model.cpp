#include "api/model.h"

#include <utility>

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

std::shared_ptr<const Model> Model::load_file(const std::string& path, const char* kernels) {
  return named(path, [&] { return std::shared_ptr<const Model>(new Model(Blob::map(path), kernels, true)); });
}

std::shared_ptr<const Model> Model::load_memory(const void* data, size_t size, const char* kernels,
                                                bool verify_checksum) {
  return named("model in memory", [&] {
    return std::shared_ptr<const Model>(new Model(Blob::copy(data, size), kernels, verify_checksum));
  });
}

size_t Model::input_bytes() const {
  return input().shape.elements() * (input().kind == Kind::kFloat ? sizeof(float) : 1);
}

}  // namespace bitedge
