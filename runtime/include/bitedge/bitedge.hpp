// bitedge for C++17: the C API of bitedge.h with objects that free themselves and errors that are thrown. Header only.
//
//     const bitedge::Model model("model.gguf");
//     bitedge::Context context(model, {.threads = 2});  // C++20; or a ContextOptions, filled field by field
//     const std::vector<float> logits = context.run(pixels);
//
// What bitedge.h says of threads, lifetimes, memory and processes holds here too.
#ifndef BITEDGE_HPP
#define BITEDGE_HPP

#include <bitedge/bitedge.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace bitedge {
// A name of its own, so that programs may link the static library, which has classes of the same names inside.
inline namespace api {

// What every failed call throws: the message of the library, and its code.
class Error : public std::runtime_error {
 public:
  Error(bitedge_status code, const char* message) : std::runtime_error(message), status(code) {}
  const bitedge_status status;
};

inline void check(bitedge_status status) {
  if (status != BITEDGE_OK) throw Error(status, bitedge_last_error());
}

namespace detail {
template <typename Struct>
Struct sized() {
  Struct row = {};
  row.struct_size = sizeof row;
  return row;
}
}  // namespace detail

struct LoadOptions {
  std::string kernels = {};   // empty: those of BITEDGE_KERNELS, or the best
  uint64_t memory_limit = 0;  // bytes; 0: in proportion to the file
};

// A loaded model. Copies share it, and any number of threads may use it.
class Model {
 public:
  explicit Model(const std::string& path, const LoadOptions& options = {}) {
    const bitedge_load_options chosen = convert(options);
    bitedge_model* model = nullptr;
    check(bitedge_model_load_file(path.c_str(), &chosen, &model));
    own(model);
  }

  // From the bytes of a file, which may be released afterwards.
  Model(const void* data, size_t size, const LoadOptions& options = {}) {
    const bitedge_load_options chosen = convert(options);
    bitedge_model* model = nullptr;
    check(bitedge_model_load_memory(data, size, &chosen, &model));
    own(model);
  }

  bitedge_model_info info() const {
    bitedge_model_info row = detail::sized<bitedge_model_info>();
    check(bitedge_model_get_info(get(), &row));
    return row;
  }

  bitedge_node_info node(size_t index) const {
    bitedge_node_info row = detail::sized<bitedge_node_info>();
    check(bitedge_model_node(get(), index, &row));
    return row;
  }

  // The name of an output; empty when there is none.
  std::string label(size_t index) const {
    const char* text = bitedge_model_label(get(), index);
    return text ? text : "";
  }

  std::string description() const { return bitedge_model_describe(get()); }  // JSON, see runtime/README.md

  // Runs the golden vectors of the file.
  void check_golden() const { check(bitedge_model_check(get())); }

  const bitedge_model* get() const { return model_.get(); }

 private:
  static bitedge_load_options convert(const LoadOptions& options) {
    bitedge_load_options chosen = detail::sized<bitedge_load_options>();
    chosen.kernels = options.kernels.empty() ? nullptr : options.kernels.c_str();
    chosen.memory_limit = options.memory_limit;
    return chosen;
  }
  void own(bitedge_model* model) { model_ = std::shared_ptr<bitedge_model>(model, bitedge_model_free); }

  std::shared_ptr<bitedge_model> model_;
};

struct ContextOptions {
  int32_t threads = 1;
  bool keep_values = false;
  uint64_t memory_limit = 0;      // bytes of the arena; 0: the model's, for each image
  int32_t spin_microseconds = 0;  // 0: 100; -1: none
};

// Memory and threads to run a model in, for one caller at a time. Keeps the model alive.
class Context {
 public:
  explicit Context(Model model, const ContextOptions& options = {}) : model_(std::move(model)), info_(model_.info()) {
    bitedge_context_options chosen = detail::sized<bitedge_context_options>();
    chosen.threads = options.threads;
    chosen.keep_values = options.keep_values;
    chosen.memory_limit = options.memory_limit;
    chosen.spin_microseconds = options.spin_microseconds;
    bitedge_context* context = nullptr;
    check(bitedge_context_create(model_.get(), &chosen, &context));
    context_.reset(context);
  }

  const Model& model() const { return model_; }

  // Runs `batch` images of info().input_bytes each into `output`, which takes info().output_count floats for each.
  void run(const void* images, size_t batch, float* output) {
    check(bitedge_context_run(context_.get(), images, batch * info_.input_bytes, batch, output,
                              batch * info_.output_count * sizeof(float)));
  }

  // The same with vectors, of bytes or floats as the model's input is; the number of images follows from the size.
  template <typename T>
  std::vector<float> run(const std::vector<T>& images) {
    const size_t bytes = images.size() * sizeof(T), batch = bytes / info_.input_bytes;
    std::vector<float> output(batch * info_.output_count);
    check(
        bitedge_context_run(context_.get(), images.data(), bytes, batch, output.data(), output.size() * sizeof(float)));
    return output;
  }

  bitedge_value value(size_t index) const {
    bitedge_value row = detail::sized<bitedge_value>();
    check(bitedge_context_value(context_.get(), index, &row));
    return row;
  }

  bitedge_memory memory() const {
    bitedge_memory row = detail::sized<bitedge_memory>();
    check(bitedge_context_memory(context_.get(), &row));
    return row;
  }

  bitedge_context* get() const { return context_.get(); }

 private:
  struct Free {
    void operator()(bitedge_context* context) const { bitedge_context_free(context); }
  };

  Model model_;
  bitedge_model_info info_;
  std::unique_ptr<bitedge_context, Free> context_;
};

}  // namespace api
}  // namespace bitedge

#endif  // BITEDGE_HPP
