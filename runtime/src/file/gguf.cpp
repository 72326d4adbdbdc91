#include "file/gguf.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "base/error.h"
#include "base/text.h"
#include "file/limits.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "The packed format is little-endian and used in place: this host cannot run it."
#endif

namespace bitedge::gguf {
namespace {

template <typename... T>
[[noreturn]] void refuse(const T&... parts) {
  throw Error(Status::kFormat, join(parts...));
}

constexpr uint64_t kLargest = uint64_t(1) << 56;  // no sum of sizes and offsets below it overflows

// Bytes of one element; 0 for strings and arrays, and for numbers that GGUF does not know.
size_t type_bytes(uint32_t type) {
  constexpr size_t kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return type < std::size(kBytes) ? kBytes[type] : 0;
}

size_t type_bytes(TensorType type) {
  switch (type) {
    case TensorType::kF16:
      return 2;
    case TensorType::kF32:
    case TensorType::kI32:
      return 4;
    case TensorType::kI64:
      return 8;
  }
  return 0;
}

// Reads forward through the header and never past its end.
class Cursor {
 public:
  Cursor(const File& file, size_t at) : data_(file.data), size_(file.size), at_(at) {}

  size_t position() const { return at_; }

  const uint8_t* take(size_t bytes, const std::string& what) {
    if (bytes > size_ - at_) {
      refuse("truncated: ", what, " needs bytes up to ", at_ + bytes, ", the file has ", size_);
    }
    at_ += bytes;
    return data_ + (at_ - bytes);
  }

  template <typename T>
  T number(const std::string& what) {
    T value;
    std::memcpy(&value, take(sizeof(T), what), sizeof(T));
    return value;
  }

  std::string_view string(const std::string& what) {
    const auto length = number<uint64_t>(what);
    if (length > limits::kStringBytes) {
      refuse(what, " is a string of ", length, " bytes, at most ", limits::kStringBytes, " are allowed");
    }
    const uint8_t* bytes = take(length, what);
    const std::string_view text(reinterpret_cast<const char*>(bytes), length);
    if (!valid_utf8(text) || text.find('\0') != text.npos) refuse(what, " is not UTF-8 text");
    return text;
  }

 private:
  const uint8_t* data_;
  size_t size_;
  size_t at_;
};

Type read_type(Cursor& cursor, const std::string& what) {
  const auto type = cursor.number<uint32_t>(what);
  if (type > static_cast<uint32_t>(Type::kF64)) refuse(what, " has the unknown value type ", type);
  return static_cast<Type>(type);
}

KeyValue read_value(Cursor& cursor, const std::string& what) {
  KeyValue value;
  value.type = read_type(cursor, what);
  if (value.type == Type::kArray) {
    value.array = true;
    value.type = read_type(cursor, what);
    if (value.type == Type::kArray) refuse(what, " is an array of arrays, which a packed model does not use");
    value.count = cursor.number<uint64_t>(what);
    if (value.count > limits::kArrayElements) {
      refuse(what, " has ", value.count, " elements, at most ", limits::kArrayElements, " are allowed");
    }
  }
  if (value.type == Type::kString) {
    for (uint64_t i = 0; i < value.count; ++i) value.strings.push_back(cursor.string(what));
    return value;
  }
  // At most 2^20 elements of 8 bytes: no overflow.
  value.data = cursor.take(value.count * type_bytes(static_cast<uint32_t>(value.type)), what);
  if (value.type == Type::kBool) {
    for (uint64_t i = 0; i < value.count; ++i) {
      if (value.data[i] > 1) refuse(what, " is a bool of value ", int(value.data[i]), ", which is neither 0 nor 1");
    }
  }
  return value;
}

// A tensor's entry in the header; `offset` counts from the start of the tensor data.
struct Entry {
  std::string_view name;
  Tensor tensor;
  uint64_t offset = 0;
};

Entry read_entry(Cursor& cursor, uint64_t index) {
  Entry entry;
  entry.name = cursor.string(join("the name of tensor ", index));
  const std::string what = join("tensor ", quoted(entry.name));
  const auto dimensions = cursor.number<uint32_t>(what);
  if (dimensions == 0 || dimensions > limits::kDimensions) {
    refuse(what, " has ", dimensions, " dimensions, expected 1 to ", limits::kDimensions);
  }
  Tensor& tensor = entry.tensor;
  tensor.elements = 1;
  for (uint32_t i = 0; i < dimensions; ++i) {
    const auto extent = cursor.number<uint64_t>(what);
    if (extent == 0) refuse(what, " has a dimension of size 0");
    if (extent > kLargest / tensor.elements) refuse(what, " has a size or offset that overflows");
    tensor.elements *= extent;
    tensor.shape.push_back(extent);
  }
  std::reverse(tensor.shape.begin(), tensor.shape.end());
  const auto type = cursor.number<uint32_t>(what);
  tensor.type = static_cast<TensorType>(type);
  if (type_bytes(tensor.type) == 0) refuse(what, " has the type ", type, ", expected F32, F16, I32 or I64");
  tensor.bytes = tensor.elements * type_bytes(tensor.type);
  entry.offset = cursor.number<uint64_t>(what);
  if (entry.offset % limits::kAlignment != 0) {
    refuse(what, " starts at offset ", entry.offset, ", which is no multiple of ", limits::kAlignment);
  }
  if (entry.offset > kLargest || tensor.bytes > kLargest) refuse(what, " has a size or offset that overflows");
  return entry;
}

void check_overlap(std::vector<Entry>& entries) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.offset < b.offset; });
  for (size_t i = 1; i < entries.size(); ++i) {
    const Entry &a = entries[i - 1], &b = entries[i];
    if (a.offset + a.tensor.bytes > b.offset) refuse("tensors ", quoted(a.name), " and ", quoted(b.name), " overlap");
  }
}

void read_keys(Cursor& cursor, uint64_t count, File& file) {
  for (uint64_t i = 0; i < count; ++i) {
    const std::string_view key = cursor.string(join("key ", i));
    if (key.empty()) refuse("key ", i, " has an empty name");
    KeyValue value = read_value(cursor, join("key ", quoted(key)));
    if (!file.keys.emplace(key, std::move(value)).second) refuse("the key ", quoted(key), " appears twice");
  }
  const auto alignment = file.keys.find("general.alignment");
  if (alignment == file.keys.end()) return;
  uint32_t bytes = 0;
  const KeyValue& value = alignment->second;
  if (value.type == Type::kU32 && !value.array) std::memcpy(&bytes, value.data, sizeof bytes);
  if (bytes != limits::kAlignment) refuse("the key 'general.alignment' is not the u32 ", limits::kAlignment);
}

}  // namespace

const char* type_name(Type type) {
  constexpr const char* kNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                    "bool", "string", "array", "u64", "i64", "f64"};
  return kNames[static_cast<uint32_t>(type)];
}

const char* type_name(TensorType type) {
  switch (type) {
    case TensorType::kF32:
      return "F32";
    case TensorType::kF16:
      return "F16";
    case TensorType::kI32:
      return "I32";
    case TensorType::kI64:
      return "I64";
  }
  return "?";
}

std::string KeyValue::type_text() const { return join(type_name(type), array ? "[]" : ""); }

std::string shape_text(const std::vector<uint64_t>& shape) {
  std::string text = "[";
  for (uint64_t extent : shape) text += join(text.size() > 1 ? ", " : "", extent);
  return text + "]";
}

File parse_keys(const uint8_t* data, size_t size) {
  File file;
  file.data = data;
  file.size = size;
  if (size < 4 || std::memcmp(data, "GGUF", 4) != 0) refuse("not a packed model: it does not start with 'GGUF'");
  Cursor cursor(file, 4);
  const auto version = cursor.number<uint32_t>("the header");
  if (version != 3) refuse("GGUF version ", version, ", expected 3 (little-endian)");
  file.tensor_count = cursor.number<uint64_t>("the header");
  if (file.tensor_count > limits::kTensors) {
    refuse(file.tensor_count, " tensors, at most ", limits::kTensors, " are allowed");
  }
  const auto keys = cursor.number<uint64_t>("the header");
  if (keys > limits::kKeyValues) refuse(keys, " key-values, at most ", limits::kKeyValues, " are allowed");
  read_keys(cursor, keys, file);
  file.keys_end = cursor.position();
  return file;
}

void parse_tensors(File& file) {
  Cursor cursor(file, file.keys_end);
  std::vector<Entry> entries;
  std::unordered_set<std::string_view> names;
  for (uint64_t i = 0; i < file.tensor_count; ++i) {
    entries.push_back(read_entry(cursor, i));
    if (!names.insert(entries[i].name).second) refuse("the tensor ", quoted(entries[i].name), " appears twice");
  }
  const uint64_t start = (cursor.position() + limits::kAlignment - 1) / limits::kAlignment * limits::kAlignment;
  for (Entry& entry : entries) {
    const uint64_t bytes = entry.tensor.bytes;
    if (entry.offset > file.size || bytes > file.size || start + entry.offset + bytes > file.size) {
      refuse("truncated: tensor ", quoted(entry.name), " needs bytes up to ", start + entry.offset + bytes,
             ", the file has ", file.size);
    }
    entry.tensor.data = file.data + start + entry.offset;
  }
  check_overlap(entries);
  for (Entry& entry : entries) file.tensors.emplace(entry.name, std::move(entry.tensor));
}

}  // namespace bitedge::gguf
