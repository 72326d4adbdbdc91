#include "graph/reader.h"

#include <cstring>

#include "check.h"
#include "file/blob.h"
#include "files.h"
#include "graph/infer.h"
#include "graph/operators.h"

using bitedge::Blob;
using bitedge::Error;
using bitedge::Packed;
using bitedge::Status;
using namespace bitedge::testing;

namespace {

// Reads and drops; the status tells how it went.
Status outcome(const std::vector<uint8_t>& bytes, bool checksum) {
  const Blob blob = Blob::copy(bytes.data(), bytes.size());
  try {
    bitedge::read_packed(blob.data(), blob.size(), checksum);
    return Status::kOk;
  } catch (const Error& error) {
    return error.code;
  }
}

}  // namespace

TEST(reads_the_graph) {
  const Blob blob = Blob::read(data_path("small.gguf"), ~uint64_t(0));
  const Packed packed = bitedge::read_packed(blob.data(), blob.size());
  const bitedge::Graph& graph = packed.graph;
  CHECK_EQ(graph.name, "by hand");
  CHECK_EQ(graph.values.size(), 5u);
  CHECK_EQ(graph.output, 4);
  const char* ops[] = {"image_conv2d", "binary_conv2d", "avg_pool2d", "conv2d"};
  for (size_t i = 0; i < 4; ++i) CHECK_EQ(std::string(bitedge::op_name(graph.nodes[i].op)), ops[i]);
  const bitedge::Shape& conv = graph.values[2].shape;
  CHECK_EQ(conv.height, 3);
  CHECK_EQ(conv.width, 3);
  CHECK_EQ(conv.channels, 8);
  CHECK_EQ(bitedge::node_macs(graph, graph.nodes[1]), 3u * 3 * 8 * 3 * 3 * 4);
  CHECK_EQ(graph.nodes[0].epilogue.threshold[3], 900);
  CHECK_EQ(packed.metadata.labels[2], "Z\xc3\xbcrich");
  CHECK_EQ(packed.metadata.golden.count, 3u);
  CHECK_EQ(packed.metadata.node_bytes[0], 4u * 9 * 8 + 16);
}

TEST(tensors_are_aligned) {
  const Blob blob = Blob::read(data_path("image.gguf"), ~uint64_t(0));
  const Packed packed = bitedge::read_packed(blob.data(), blob.size());
  for (const bitedge::Node& node : packed.graph.nodes) {
    CHECK_EQ(reinterpret_cast<uintptr_t>(node.bits.data) % 32, 0u);
    for (const bitedge::EpilogueStep& step : node.epilogue.steps) {
      CHECK_EQ(reinterpret_cast<uintptr_t>(step.scale.data) % 32, 0u);
    }
  }
}

TEST(refuses_a_file_cut_at_any_byte) {
  const std::vector<uint8_t> bytes = read_file(data_path("small.gguf"));
  for (size_t size = 0; size < bytes.size(); ++size) {
    const Status status = outcome({bytes.begin(), bytes.begin() + static_cast<long>(size)}, true);
    CHECK(status == Status::kFormat || status == Status::kChecksum);
  }
}

// With the checksum every flipped bit is found. Without it the reader must still not fall over.
TEST(refuses_a_file_with_a_bit_of_any_byte_flipped) {
  std::vector<uint8_t> bytes = read_file(data_path("small.gguf"));
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto bit = static_cast<uint8_t>(1 << i % 8);
    bytes[i] ^= bit;
    CHECK(outcome(bytes, true) != Status::kOk);
    outcome(bytes, false);
    bytes[i] ^= bit;
  }
  CHECK(outcome(bytes, true) == Status::kOk);
}

TEST(reads_nothing_from_a_folder) {
  CHECK_ERROR(Status::kIo, "not a regular file", Blob::read(BITEDGE_TEST_DATA, ~uint64_t(0)));
  CHECK_ERROR(Status::kIo, "No such file", Blob::read(data_path("none.gguf"), ~uint64_t(0)));
}
