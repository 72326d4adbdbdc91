// Typed access to the tensors of a file: type, shape, and what each number may be are checked here, once.
#pragma once

#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/view.h"
#include "file/gguf.h"

namespace bitedge {

class Tensors {
 public:
  explicit Tensors(const gguf::File& file) : file_(file) {}

  bool has(const std::string& name) const { return file_.tensors.count(name) != 0; }
  // The tensor as it is in the file; refused when it is missing.
  const gguf::Tensor& raw(const std::string& name);

  View<float> f32(const std::string& name, const std::vector<uint64_t>& shape);     // finite
  View<uint16_t> f16(const std::string& name, const std::vector<uint64_t>& shape);  // finite
  View<int32_t> i32(const std::string& name, const std::vector<uint64_t>& shape);
  // Packed bits: the last dimension counts words, of which each row of `channels` bits fills some; tail bits are 0.
  View<uint64_t> bits(const std::string& name, const std::vector<uint64_t>& shape, uint64_t channels);

  // Refuses the file if it has a tensor of this prefix that no getter read.
  void refuse_unread(std::string_view prefix) const;

  // Bytes of all tensors read since the last call.
  uint64_t take_bytes();

 private:
  const gguf::Tensor& get(const std::string& name, gguf::TensorType type, const std::vector<uint64_t>& shape);

  const gguf::File& file_;
  std::unordered_set<std::string> read_;
  uint64_t bytes_ = 0;
};

}  // namespace bitedge
