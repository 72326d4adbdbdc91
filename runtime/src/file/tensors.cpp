#include "file/tensors.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace bitedge {
namespace {

using gguf::TensorType;

template <typename T>
View<T> view(const gguf::Tensor& tensor) {
  return {reinterpret_cast<const T*>(tensor.data), static_cast<size_t>(tensor.elements)};
}

// An exponent of all ones is infinity or not a number. On integers, so that no compiler flag can break it.
template <typename Bits>
void refuse_nonfinite(const std::string& name, const gguf::Tensor& tensor, Bits exponent) {
  const auto* numbers = reinterpret_cast<const Bits*>(tensor.data);
  for (uint64_t i = 0; i < tensor.elements; ++i) {
    if ((numbers[i] & exponent) == exponent) {
      throw Error(Status::kFormat, join("tensor ", quoted(name), " has a number that is not finite, at ", i));
    }
  }
}

}  // namespace

const gguf::Tensor& Tensors::raw(const std::string& name) {
  const auto found = file_.tensors.find(name);
  if (found == file_.tensors.end()) throw Error(Status::kFormat, join("the tensor ", quoted(name), " is missing"));
  if (read_.insert(name).second) bytes_ += found->second.bytes;
  return found->second;
}

const gguf::Tensor& Tensors::get(const std::string& name, TensorType type, const std::vector<uint64_t>& shape) {
  const gguf::Tensor& tensor = raw(name);
  if (tensor.type != type) {
    throw Error(Status::kFormat, join("tensor ", quoted(name), " is ", gguf::type_name(tensor.type), ", expected ",
                                      gguf::type_name(type)));
  }
  if (tensor.shape != shape) {
    throw Error(Status::kFormat, join("tensor ", quoted(name), " has the shape ", gguf::shape_text(tensor.shape),
                                      ", expected ", gguf::shape_text(shape)));
  }
  return tensor;
}

View<float> Tensors::f32(const std::string& name, const std::vector<uint64_t>& shape) {
  const gguf::Tensor& tensor = get(name, TensorType::kF32, shape);
  refuse_nonfinite<uint32_t>(name, tensor, 0x7f800000u);
  return view<float>(tensor);
}

View<uint16_t> Tensors::f16(const std::string& name, const std::vector<uint64_t>& shape) {
  const gguf::Tensor& tensor = get(name, TensorType::kF16, shape);
  refuse_nonfinite<uint16_t>(name, tensor, 0x7c00u);
  return view<uint16_t>(tensor);
}

View<int32_t> Tensors::i32(const std::string& name, const std::vector<uint64_t>& shape) {
  return view<int32_t>(get(name, TensorType::kI32, shape));
}

View<uint64_t> Tensors::bits(const std::string& name, const std::vector<uint64_t>& shape, uint64_t channels) {
  const gguf::Tensor& tensor = get(name, TensorType::kI64, shape);
  const auto words = view<uint64_t>(tensor);
  const uint64_t used = channels % 64;
  if (used == 0) return words;
  const uint64_t row = shape.back(), tail = ~uint64_t(0) << used;
  for (uint64_t i = row - 1; i < words.size; i += row) {
    if (words[i] & tail) throw Error(Status::kFormat, join("tensor ", quoted(name), " has tail bits that are not 0"));
  }
  return words;
}

void Tensors::refuse_unread(std::string_view prefix) const {
  std::vector<std::string> unread;
  for (const auto& [key, tensor] : file_.tensors) {
    const std::string name(key);
    if (key.substr(0, prefix.size()) == prefix && read_.count(name) == 0) unread.push_back(name);
  }
  if (unread.empty()) return;
  const auto first = std::min_element(unread.begin(), unread.end());
  throw Error(Status::kFormat, join("the tensor ", quoted(*first), " belongs to no node, or not to its operator"));
}

uint64_t Tensors::take_bytes() {
  const uint64_t bytes = bytes_;
  bytes_ = 0;
  return bytes;
}

}  // namespace bitedge
