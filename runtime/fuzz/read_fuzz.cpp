// Fuzz target: any bytes are either refused by an Error, or make a model that can be described and run.
//
// The size of the input chooses the kernels. The checksum is skipped, or nothing would get past it. Networks that would
// take long are read but not run: what is looked for here is memory errors, overflows and exceptions of other kinds.
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "api/golden.h"
#include "api/model.h"
#include "base/error.h"
#include "base/json.h"
#include "graph/infer.h"
#include "kernels/kernels.h"
#include "kernels/table.h"
#include "run/context.h"

namespace {

constexpr uint64_t kMostMacs = 1 << 20, kMostElements = 1 << 16;

// Whether one image takes milliseconds at most.
bool quick(const bitedge::Graph& graph) {
  uint64_t macs = 0, elements = 0;
  for (const bitedge::Value& value : graph.values) elements += value.shape.elements();
  for (const bitedge::Node& node : graph.nodes) {
    const auto taps = static_cast<uint64_t>(node.window.kernel_h) * static_cast<uint64_t>(node.window.kernel_w);
    macs += bitedge::node_macs(graph, node);
    const bitedge::Window& w = node.window;
    const bitedge::Shape& in = graph.values[static_cast<size_t>(node.inputs[0])].shape;
    const auto height = static_cast<uint64_t>(in.height + w.pad_top + w.pad_bottom);
    const auto width = static_cast<uint64_t>(in.width + w.pad_left + w.pad_right);
    elements += height * width * static_cast<uint64_t>(in.channels);
    macs += taps * graph.values[static_cast<size_t>(node.outputs[0])].shape.elements();  // poolings count too
  }
  return macs <= kMostMacs && elements <= kMostElements;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const bitedge::Blob blob = bitedge::Blob::copy(data, size);
    const bitedge::Packed packed = bitedge::read_packed(blob.data(), blob.size(), false);
    if (!quick(packed.graph)) return 0;
    const auto& kernels = bitedge::available_kernels();
    const auto model = bitedge::Model::load_memory(data, size, kernels[size % kernels.size()]->name, false);
    if (!bitedge::is_json_object(model->description())) std::abort();
    bitedge::Context context(model->program(), 1, true);
    std::vector<float> answer(2 * model->output().shape.elements());
    std::vector<uint8_t> images = bitedge::golden_input(model->input(), 1);
    const std::vector<uint8_t> second = bitedge::golden_input(model->input(), 2);
    images.insert(images.end(), second.begin(), second.end());
    context.run(images.data(), 2, answer.data());
    if (model->metadata().golden.count <= 4) model->check();
  } catch (const bitedge::Error&) {  // refused, as it should be; anything else is a finding
  }
  return 0;
}
