// A loaded model: its bytes, its graph, and the program that runs it. Immutable, shared by all contexts.
#pragma once

#include <memory>
#include <string>

#include "file/blob.h"
#include "graph/reader.h"
#include "plan/program.h"

namespace bitedge {

class Model {
 public:
  // Messages start with the name: a path, or what the caller calls the memory.
  static std::shared_ptr<const Model> load_file(const std::string& path, const char* kernels);
  static std::shared_ptr<const Model> load_memory(const void* data, size_t size, const char* kernels,
                                                  bool verify_checksum = true);

  const Graph& graph() const { return packed_.graph; }
  const Metadata& metadata() const { return packed_.metadata; }
  const Program& program() const { return *program_; }
  const Value& input() const { return graph().values[0]; }
  const Value& output() const { return graph().values[static_cast<size_t>(graph().output)]; }
  size_t input_bytes() const;  // of one image
  const std::string& description() const { return description_; }

  // Runs the golden vectors. Throws Error{kGolden} naming the first answer that differs, or when there are none.
  void check() const;

 private:
  Model(Blob blob, const char* kernels, bool verify_checksum);

  Blob blob_;
  Packed packed_;
  std::unique_ptr<const Program> program_;
  std::string description_;
};

// The description that the C API hands out: one JSON object.
std::string describe(const Graph& graph, const Metadata& metadata, const Program& program);

}  // namespace bitedge
