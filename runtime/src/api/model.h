// A loaded model: its bytes, its graph, and the program that runs it. Immutable, shared by all contexts.
#pragma once

#include <memory>
#include <string>

#include "file/blob.h"
#include "graph/reader.h"
#include "plan/program.h"
#include "run/context.h"

namespace bitedge {

class Model {
 public:
  // Messages start with the name: a path, or what the caller calls the memory. Throws Error{kMemory} when the model
  // would take more than `memory_limit` bytes; 0 is a default in proportion to the file.
  static std::shared_ptr<const Model> load_file(const std::string& path, const char* kernels,
                                                uint64_t memory_limit = 0);
  static std::shared_ptr<const Model> load_memory(const void* data, size_t size, const char* kernels,
                                                  bool verify_checksum = true, uint64_t memory_limit = 0);

  const Graph& graph() const { return packed_.graph; }
  const Metadata& metadata() const { return packed_.metadata; }
  const Program& program() const { return *program_; }
  const Value& input() const { return graph().values[0]; }
  const Value& output() const { return graph().values[static_cast<size_t>(graph().output)]; }
  size_t input_bytes() const;  // of one image
  const std::string& description() const { return description_; }

  // Bytes that the model holds: weights, tables, texts, and what is still read from the file.
  uint64_t memory_bytes() const { return memory_bytes_; }
  // What its contexts may take: `asked` bytes, or when that is 0, for each image of a batch, what the model might.
  MemoryLimit context_limit(uint64_t asked) const;

  // Runs the golden vectors. Throws Error{kGolden} naming the first answer that differs, or when there are none.
  void check() const;

 private:
  Model(Blob blob, const char* kernels, bool verify_checksum);
  static std::shared_ptr<const Model> make(Blob blob, const char* kernels, bool verify_checksum, uint64_t memory_limit);
  uint64_t drop_weights();

  Blob blob_;
  Packed packed_;
  std::unique_ptr<const Program> program_;
  std::string description_;
  uint64_t limit_ = 0, memory_bytes_ = 0;
};

// The description that the C API hands out: one JSON object.
std::string describe(const Graph& graph, const Metadata& metadata, const Program& program);

}  // namespace bitedge
