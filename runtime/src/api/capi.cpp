// The C API over the core. Every entry point runs inside `guarded`: no exception gets past it.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <system_error>

#include "api/model.h"
#include "base/cpu.h"
#include "base/error.h"
#include "base/text.h"
#include "bitedge/bitedge.h"
#include "graph/infer.h"
#include "graph/operators.h"
#include "kernels/kernels.h"
#include "kernels/table.h"
#include "run/context.h"

using bitedge::Error;
using bitedge::Kind;
using bitedge::Model;
using bitedge::Status;

struct bitedge_model {
  std::shared_ptr<const Model> model;
};

struct bitedge_context {
  bitedge_context(std::shared_ptr<const Model> shared, const bitedge_context_options& options)
      : model(std::move(shared)),
        context(model->program(), options.threads, options.keep_values != 0, model->context_limit(options.memory_limit),
                patience(options.spin_microseconds)),
        keep_values(options.keep_values != 0) {}

  static std::chrono::microseconds patience(int32_t asked) {
    return asked == 0 ? bitedge::Pool::kPatience : std::chrono::microseconds(std::max(asked, 0));
  }

  std::shared_ptr<const Model> model;  // before the context, which refers to it
  bitedge::Context context;
  bool keep_values;
  size_t last_batch = 0;
};

namespace {

constexpr int32_t kMostThreads = 256;

// A plain buffer: noting a failure must not itself fail for want of memory.
thread_local char last_error[2048] = "";

bitedge_status fail(Status code, const char* message) {
  std::snprintf(last_error, sizeof last_error, "%s", message);
  return static_cast<bitedge_status>(code);
}

template <typename Work>
bitedge_status guarded(const Work& work) noexcept {
  try {
    work();
    return BITEDGE_OK;
  } catch (const Error& error) {
    return fail(error.code, error.what());
  } catch (const std::bad_alloc&) {
    return fail(Status::kMemory, "out of memory");
  } catch (const std::system_error& error) {
    return fail(Status::kMemory, error.what());
  } catch (const std::exception& error) {
    return fail(Status::kInternal, error.what());
  } catch (...) {
    return fail(Status::kInternal, "unknown exception");
  }
}

void require(bool holds, const char* message) {
  if (!holds) throw Error(Status::kArgument, message);
}

// The caller's structure may be older and shorter, or newer and longer, than ours: only what both know is exchanged.
template <typename Struct>
Struct read_options(const Struct* given, const Struct& defaults) {
  Struct options = defaults;
  if (given == nullptr) return options;
  require(given->struct_size >= sizeof given->struct_size, "struct_size is not set");
  std::memcpy(&options, given, std::min(given->struct_size, sizeof options));
  return options;
}

template <typename Struct>
void write_struct(Struct* target, Struct source) {
  require(target != nullptr, "the structure to fill is NULL");
  require(target->struct_size >= sizeof target->struct_size, "struct_size is not set");
  source.struct_size = target->struct_size;
  std::memcpy(target, &source, std::min(target->struct_size, sizeof source));
}

template <typename Load>
bitedge_status load_model(const bitedge_load_options* options, bitedge_model** model, const Load& load) {
  return guarded([&] {
    require(model != nullptr, "the model pointer is NULL");
    const bitedge_load_options chosen =
        read_options(options, bitedge_load_options{sizeof(bitedge_load_options), nullptr, 0});
    auto handle = std::make_unique<bitedge_model>();
    handle->model = load(chosen);
    *model = handle.release();
  });
}

bitedge_kind kind_of(Kind kind) {
  return kind == Kind::kUint8 ? BITEDGE_UINT8 : kind == Kind::kFloat ? BITEDGE_FLOAT32 : BITEDGE_BITS;
}

// Throws unless `bytes` is exactly `batch` times `each`.
void require_bytes(const char* what, size_t bytes, size_t batch, size_t each) {
  if (bytes / each == batch && bytes % each == 0) return;
  throw Error(Status::kArgument,
              bitedge::join(what, " has ", bytes, " bytes, expected ", each, " for each of ", batch, " images"));
}

}  // namespace

uint32_t bitedge_api_version(void) { return BITEDGE_API_VERSION; }

const char* bitedge_version(void) { return BITEDGE_VERSION; }

const char* bitedge_last_error(void) { return last_error; }

const char* bitedge_cpu_features(void) {
  const char* text = "";
  guarded([&] {
    static const std::string names = bitedge::cpu_feature_names();
    text = names.c_str();
  });
  return text;
}

size_t bitedge_kernel_count(void) {
  size_t count = 0;
  guarded([&] { count = bitedge::built_kernels().size(); });
  return count;
}

bitedge_status bitedge_kernel(size_t index, bitedge_kernel_info* info) {
  return guarded([&] {
    const auto& sets = bitedge::built_kernels();
    const auto& available = bitedge::available_kernels();
    require(index < sets.size(), "there are fewer kernel sets");
    bitedge_kernel_info row{};
    row.name = sets[index]->name;
    row.built = 1;
    row.supported = std::find(available.begin(), available.end(), sets[index]) != available.end();
    try {
      row.chosen = sets[index] == &bitedge::select_kernels(nullptr);
    } catch (const Error&) {  // BITEDGE_KERNELS names none of them: loading a model will say so
    }
    write_struct(info, row);
  });
}

bitedge_status bitedge_model_load_file(const char* path, const bitedge_load_options* options, bitedge_model** model) {
  return load_model(options, model, [&](const bitedge_load_options& chosen) {
    require(path != nullptr, "the path is NULL");
    return Model::load_file(path, chosen.kernels, chosen.memory_limit);
  });
}

bitedge_status bitedge_model_load_memory(const void* data, size_t size, const bitedge_load_options* options,
                                         bitedge_model** model) {
  return load_model(options, model, [&](const bitedge_load_options& chosen) {
    require(data != nullptr || size == 0, "the data is NULL");
    return Model::load_memory(data, size, chosen.kernels, true, chosen.memory_limit);
  });
}

void bitedge_model_free(bitedge_model* model) { delete model; }

bitedge_status bitedge_model_get_info(const bitedge_model* model, bitedge_model_info* info) {
  return guarded([&] {
    require(model != nullptr, "the model is NULL");
    const Model& m = *model->model;
    const bitedge::Shape& in = m.input().shape;
    bitedge_model_info row{};
    row.input_kind = kind_of(m.input().kind);
    row.input_height = in.height;
    row.input_width = in.width;
    row.input_channels = in.channels;
    row.input_bytes = m.input_bytes();
    row.output_count = m.output().shape.elements();
    row.output_index = static_cast<size_t>(m.graph().output);
    row.value_count = m.graph().values.size();
    row.node_count = m.graph().nodes.size();
    row.label_count = m.metadata().labels.size();
    row.golden_count = m.metadata().golden.count;
    row.memory_bytes = m.memory_bytes();
    write_struct(info, row);
  });
}

const char* bitedge_model_label(const bitedge_model* model, size_t index) {
  if (model == nullptr || index >= model->model->metadata().labels.size()) return nullptr;
  return model->model->metadata().labels[index].c_str();
}

const char* bitedge_model_describe(const bitedge_model* model) {
  return model == nullptr ? nullptr : model->model->description().c_str();
}

bitedge_status bitedge_model_node(const bitedge_model* model, size_t index, bitedge_node_info* info) {
  return guarded([&] {
    require(model != nullptr, "the model is NULL");
    const Model& m = *model->model;
    require(index < m.graph().nodes.size(), "the model has fewer nodes");
    const bitedge::Node& node = m.graph().nodes[index];
    const bitedge::Value& output = m.graph().values[static_cast<size_t>(node.outputs[0])];
    bitedge_node_info row{};
    row.op = bitedge::op_name(node.op);
    row.name = output.name.c_str();
    row.kernel = m.program().node_kernel(index);
    row.output_index = static_cast<size_t>(node.outputs[0]);
    row.kind = kind_of(output.kind);
    row.height = output.shape.height;
    row.width = output.shape.width;
    row.channels = output.shape.channels;
    row.macs = bitedge::node_macs(m.graph(), node);
    row.file_bytes = m.metadata().node_bytes[index];
    write_struct(info, row);
  });
}

bitedge_status bitedge_model_check(const bitedge_model* model) {
  return guarded([&] {
    require(model != nullptr, "the model is NULL");
    model->model->check();
  });
}

bitedge_status bitedge_context_create(const bitedge_model* model, const bitedge_context_options* options,
                                      bitedge_context** context) {
  return guarded([&] {
    require(model != nullptr, "the model is NULL");
    require(context != nullptr, "the context pointer is NULL");
    const bitedge_context_options chosen =
        read_options(options, bitedge_context_options{sizeof(bitedge_context_options), 1, 0, 0, 0});
    if (chosen.threads < 1 || chosen.threads > kMostThreads) {
      throw Error(Status::kArgument, bitedge::join(chosen.threads, " threads, expected 1 to ", kMostThreads));
    }
    *context = new bitedge_context(model->model, chosen);
  });
}

void bitedge_context_free(bitedge_context* context) { delete context; }

bitedge_status bitedge_context_run(bitedge_context* context, const void* input, size_t input_bytes, size_t batch,
                                   float* output, size_t output_bytes) {
  return guarded([&] {
    require(context != nullptr, "the context is NULL");
    require(input != nullptr && output != nullptr, "the input or the output is NULL");
    require(batch > 0, "a batch of 0 images, expected at least 1");
    require_bytes("the input", input_bytes, batch, context->model->input_bytes());
    require_bytes("the output", output_bytes, batch, context->model->output().shape.elements() * sizeof(float));
    context->last_batch = 0;
    context->context.run(input, batch, output);
    context->last_batch = batch;
  });
}

bitedge_status bitedge_context_memory(const bitedge_context* context, bitedge_memory* memory) {
  return guarded([&] {
    require(context != nullptr, "the context is NULL");
    bitedge_memory row{};
    row.model = context->model->memory_bytes();
    row.arena = context->context.arena_bytes();
    row.scratch = context->context.scratch_bytes();
    write_struct(memory, row);
  });
}

bitedge_status bitedge_context_value(const bitedge_context* context, size_t index, bitedge_value* value) {
  return guarded([&] {
    require(context != nullptr, "the context is NULL");
    require(context->keep_values, "the context does not keep values: create it with keep_values");
    require(context->last_batch > 0, "the context has not run yet");
    const auto& values = context->model->graph().values;
    require(index < values.size(), "the model has fewer values");
    const bitedge::Value& source = values[index];
    const size_t each = source.kind == Kind::kBits    ? source.shape.pixels() * source.shape.words() * sizeof(uint64_t)
                        : source.kind == Kind::kFloat ? source.shape.elements() * sizeof(float)
                                                      : source.shape.elements();
    bitedge_value row{};
    row.name = source.name.c_str();
    row.kind = kind_of(source.kind);
    row.batch = context->last_batch;
    row.height = source.shape.height;
    row.width = source.shape.width;
    row.channels = source.shape.channels;
    row.data = context->context.value(index);
    row.bytes = each * context->last_batch;
    write_struct(value, row);
  });
}

bitedge_status bitedge_context_set_profiling(bitedge_context* context, int on) {
  return guarded([&] {
    require(context != nullptr, "the context is NULL");
    context->context.set_profiling(on != 0);
  });
}

bitedge_status bitedge_context_profile(const bitedge_context* context, uint64_t* nanoseconds, size_t count) {
  return guarded([&] {
    require(context != nullptr && nanoseconds != nullptr, "the context or the array is NULL");
    const auto& sums = context->context.node_nanoseconds();
    require(!sums.empty(), "profiling was never turned on");
    require(count == sums.size(), "the array does not have one element per node");
    std::copy(sums.begin(), sums.end(), nanoseconds);
  });
}
