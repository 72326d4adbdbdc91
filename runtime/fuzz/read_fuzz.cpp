// Fuzz target: any bytes are either refused by an Error, or make a model that can be described and run; and then every
// way to run it gives the same bits: one node after the other or fused, one thread or three, image by image or as a
// batch, with or without a limit of memory.
//
// The size of the input chooses the kernels. The checksum is skipped, or nothing would get past it. Networks that would
// take long are read but not run: what is looked for here is memory errors, overflows and exceptions of other kinds.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
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

constexpr size_t kImages = 3;

// The answers to the images, `batch` at a time.
std::vector<float> answers(const bitedge::Model& model, bitedge::Context& context, const std::vector<uint8_t>& images,
                           size_t batch) {
  const size_t outputs = model.output().shape.elements();
  std::vector<float> all(kImages * outputs);
  for (size_t done = 0; done < kImages; done += batch) {
    const size_t count = std::min(batch, kImages - done);
    context.run(images.data() + done * model.input_bytes(), count, all.data() + done * outputs);
  }
  return all;
}

// The same bits; but any NaN is as good as another.
bool same(const std::vector<float>& a, const std::vector<float>& b) {
  for (size_t i = 0; i < a.size(); i++) {
    if (std::memcmp(&a[i], &b[i], sizeof(float)) != 0 && !(std::isnan(a[i]) && std::isnan(b[i]))) return false;
  }
  return true;
}

void run_every_way(const bitedge::Model& model) {
  std::vector<uint8_t> images;
  for (uint64_t seed = 1; seed <= kImages; seed++) {
    const std::vector<uint8_t> image = bitedge::golden_input(model.input(), seed);
    images.insert(images.end(), image.begin(), image.end());
  }
  bitedge::Context plain(model.program(), 1, true);
  const std::vector<float> expected = answers(model, plain, images, 1);
  const auto expect = [&](bitedge::Context& context, size_t batch) {
    if (!same(answers(model, context, images, batch), expected)) std::abort();
  };
  expect(plain, 2);  // plans anew for each batch
  bitedge::Context fused(model.program(), 1), threads(model.program(), 3), all(model.program(), 2, true);
  for (const size_t batch : {size_t(1), size_t(2), kImages}) expect(fused, batch);
  for (const size_t batch : {kImages, size_t(1)}) expect(threads, batch);
  expect(all, kImages);
  // Just as much as one image needs: a batch is run in parts.
  bitedge::Context single(model.program(), 1);
  expect(single, 1);
  bitedge::Context limited(model.program(), 1, false, {single.arena_bytes(), 0});
  expect(limited, kImages);
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
    run_every_way(*model);
    if (model->metadata().golden.count <= 4) model->check();
  } catch (const bitedge::Error&) {  // refused, as it should be; anything else is a finding
  }
  return 0;
}
