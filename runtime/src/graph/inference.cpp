#include "graph/inference.h"

#include <cmath>

#include "file/limits.h"
#include "graph/infer.h"
#include "graph/operators.h"

namespace bitedge {
namespace {

// Everything is at most 65,535 but `in`, which is below 2^28: 64 bits hold every product.
struct Axis {
  int64_t in, kernel, stride, before, after, dilation;

  int64_t padded() const { return in + before + after; }
  int64_t span() const { return dilation * (kernel - 1) + 1; }
  uint64_t outputs() const { return static_cast<uint64_t>((padded() - span()) / stride + 1); }
};

Axis rows_of(const Window& w, const Shape& in) {
  return {in.height, w.kernel_h, w.stride_h, w.pad_top, w.pad_bottom, w.dilation_h};
}
Axis columns_of(const Window& w, const Shape& in) {
  return {in.width, w.kernel_w, w.stride_w, w.pad_left, w.pad_right, w.dilation_w};
}

}  // namespace

Inference::Inference(Graph& graph, uint32_t version, uint32_t index, Attributes& attributes, Tensors& tensors)
    : graph_(graph),
      version_(version),
      index_(index),
      key_(join("bitedge.node.", index, ".")),
      tensor_(join("node.", index, ".")),
      attributes_(attributes),
      tensors_(tensors) {}

std::string Inference::head() const {
  return join("node ", index_, " (", op_name(node_.op), " ", quoted(names_[0]), "): ");
}

void Inference::run() {
  read_head();
  const Operator& row = operator_of(node_.op);
  if (row.version > version_) refuse("needs format version ", row.version, ", the file says ", version_);
  expect_inputs(row.least_inputs, row.most_inputs);
  row.infer(*this);
  if (node_.outputs.size() != names_.size()) {
    refuse("names ", names_.size(), " outputs but makes ", node_.outputs.size());
  }
  graph_.nodes.push_back(std::move(node_));
}

void Inference::read_head() {
  const std::string_view name = attributes_.string(key("op"));
  const Operator* row = find_operator(name);
  if (!row) throw Error(Status::kFormat, join("node ", index_, " has the unknown op ", quoted(name)));
  node_.op = row->op;
  names_ = attributes_.strings(key("outputs"));
  if (names_.empty()) throw Error(Status::kFormat, join("node ", index_, " has no outputs"));
  for (uint32_t value : attributes_.u32s(key("inputs"))) {
    if (value >= graph_.values.size()) refuse("input ", value, " is not an earlier value");
    node_.inputs.push_back(static_cast<int32_t>(value));
  }
}

void Inference::expect_inputs(size_t least, size_t most) const {
  if (inputs() >= least && inputs() <= most) return;
  refuse(inputs(), " inputs, expected ", least, most == least ? "" : " or more");
}

void Inference::expect_kind(bool uint8, bool floats, bool bits) const {
  const bool ok = kind() == Kind::kUint8 ? uint8 : kind() == Kind::kFloat ? floats : bits;
  if (ok) return;
  refuse("its input ", quoted(input(0).name), " is ", kind_name(kind()), ", expected ",
         uint8     ? "uint8"
         : !bits   ? "float32"
         : !floats ? "bits"
                   : "float32 or bits");
}

// Every extent is below 2^29 and at least 1, so a product of two fits; with the channels it may not.
void Inference::expect_size(uint64_t height, uint64_t width, uint64_t out_channels) const {
  if (height * width <= limits::kValueElements && height * width <= limits::kValueElements / out_channels) return;
  refuse("the output of ", height, " x ", width, " x ", out_channels, " has more than ", limits::kValueElements,
         " elements");
}

View<float> Inference::slope(std::string_view name, uint64_t count) {
  const bool one = tensors_.raw(tensor(name)).shape == std::vector<uint64_t>{1};
  return f32(name, one ? 1 : count);
}

float Inference::eps() {
  const float number = attributes_.f32(key("eps"));
  if (!std::isfinite(number) || number <= 0) refuse("eps is not a positive number");
  return number;
}

void Inference::read_window(bool groups, bool dilation) {
  const auto pair = [&](const char* name, uint32_t least, int32_t& first, int32_t& second) {
    const std::vector<uint32_t> numbers = attributes_.u32s(key(name), 2);
    for (uint32_t number : numbers) {
      if (number < least || number > limits::kWindow) {
        refuse(name, " is ", number, ", expected ", least, " to ", limits::kWindow);
      }
    }
    first = static_cast<int32_t>(numbers[0]);
    second = static_cast<int32_t>(numbers[1]);
  };
  Window& window = node_.window;
  pair("kernel", 1, window.kernel_h, window.kernel_w);
  pair("stride", 1, window.stride_h, window.stride_w);
  if (dilation) pair("dilation", 1, window.dilation_h, window.dilation_w);
  const std::vector<uint32_t> pads = attributes_.u32s(key("pads"), 4);
  for (uint32_t pad : pads) {
    if (pad > limits::kWindow) refuse("pads is ", pad, ", expected 0 to ", limits::kWindow);
  }
  window.pad_top = static_cast<int32_t>(pads[0]);
  window.pad_left = static_cast<int32_t>(pads[1]);
  window.pad_bottom = static_cast<int32_t>(pads[2]);
  window.pad_right = static_cast<int32_t>(pads[3]);
  if (groups) read_groups();
}

void Inference::read_groups() {
  const uint32_t count = attributes_.u32(key("groups"));
  if (count == 0 || channels() % count != 0) refuse("groups is ", count, ", which does not divide ", channels());
  node_.window.groups = static_cast<int32_t>(count);
}

Shape Inference::slide(uint64_t out_channels) const {
  const Axis rows = rows_of(node_.window, input(0).shape), columns = columns_of(node_.window, input(0).shape);
  if (rows.span() > rows.padded()) {
    refuse("the window spans ", rows.span(), " of a padded height of ", rows.padded());
  }
  if (columns.span() > columns.padded()) {
    refuse("the window spans ", columns.span(), " of a padded width of ", columns.padded());
  }
  const auto padded_height = static_cast<uint64_t>(rows.padded()),
             padded_width = static_cast<uint64_t>(columns.padded());
  if (padded_height * padded_width > limits::kValueElements / channels()) {
    refuse("the padded input of ", padded_height, " x ", padded_width, " x ", channels(), " has more than ",
           limits::kValueElements, " elements");
  }
  expect_size(rows.outputs(), columns.outputs(), out_channels);
  return {static_cast<int32_t>(rows.outputs()), static_cast<int32_t>(columns.outputs()),
          static_cast<int32_t>(out_channels)};
}

// A pooling window that sees only padding has no maximum and no mean.
void Inference::expect_real_pixels(const Shape& out) const {
  const auto check = [&](const Axis& axis, int32_t outputs) {
    for (int64_t i = 0; i < outputs; ++i) {
      const int64_t start = i * axis.stride - axis.before;
      // The first tap that is not before the map.
      const int64_t tap = start < 0 ? (-start + axis.dilation - 1) / axis.dilation : 0;
      if (tap >= axis.kernel || start + tap * axis.dilation >= axis.in) {
        refuse("window ", i, " of the pooling sees only padding");
      }
    }
  };
  check(rows_of(node_.window, input(0).shape), out.height);
  check(columns_of(node_.window, input(0).shape), out.width);
}

void Inference::add_value(Kind kind, Shape shape) {
  const size_t position = node_.outputs.size();
  if (position >= names_.size()) refuse("names ", names_.size(), " outputs but makes more");
  node_.outputs.push_back(static_cast<int32_t>(graph_.values.size()));
  graph_.values.push_back({std::string(names_[position]), kind, shape});
}

}  // namespace bitedge
