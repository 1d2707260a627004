#include "operators/window_geometry.h"

#include <algorithm>

#include "core/error.h"

namespace pumice {
namespace {

constexpr int64_t kLargest = 0x7fffffff;  // of a kernel size, stride, dilation or padding

// Reads the attributes of one node and checks them against its number of spatial axes.
class Reader {
 public:
  Reader(const Attributes& attributes, std::string_view node, const Shape& input) : attributes_(attributes), node_(node) {
    if (input.size() < 3) fail("an input of rank 3 or more expected, [N, C, spatial..]; given " + to_string(input));
    spatial_.assign(input.begin() + 2, input.end());
  }

  const Shape& spatial() const { return spatial_; }
  size_t axes() const { return spatial_.size(); }
  [[noreturn]] void fail(const std::string& message) const { throw GraphError(std::string(node_), message); }

  // One value per axis, each in least .. kLargest; `fallback` for every axis where the attribute is absent.
  std::vector<int64_t> per_axis(std::string_view name, int64_t fallback, int64_t least, size_t each = 1) const {
    std::vector<int64_t> values = attributes_.integers(name);
    if (values.empty()) values.assign(axes() * each, fallback);
    if (values.size() != axes() * each)
      fail(std::string(name) + " has " + std::to_string(values.size()) + " values; " + std::to_string(axes() * each) + " expected for " + std::to_string(axes()) + " spatial axes");
    for (const int64_t value : values)
      if (value < least || value > kLargest) fail(std::string(name) + " holds " + std::to_string(value) + "; " + std::to_string(least) + " or more expected");
    return values;
  }

  std::string auto_pad() const {
    const std::string mode = attributes_.text("auto_pad", "NOTSET");
    if (mode != "NOTSET" && mode != "VALID" && mode != "SAME_UPPER" && mode != "SAME_LOWER")
      fail("auto_pad '" + mode + "'; there are NOTSET, VALID, SAME_UPPER and SAME_LOWER");
    return mode;
  }

  WindowGeometry common(std::vector<int64_t> kernel) const {
    WindowGeometry geometry;
    geometry.kernel = std::move(kernel);
    geometry.strides = per_axis("strides", 1, 1);
    geometry.dilations = per_axis("dilations", 1, 1);
    geometry.pads_begin.assign(axes(), 0);
    geometry.pads_end.assign(axes(), 0);
    return geometry;
  }

  void explicit_pads(WindowGeometry& geometry) const {
    const auto pads = per_axis("pads", 0, 0, 2);
    const auto middle = pads.begin() + static_cast<std::ptrdiff_t>(axes());
    geometry.pads_begin.assign(pads.begin(), middle);
    geometry.pads_end.assign(middle, pads.end());
  }

  // The kernel of a convolution: the weight's, which kernel_shape must repeat where it is given.
  std::vector<int64_t> weight_kernel(const Shape& weight) const {
    if (weight.size() != axes() + 2) fail("a weight of rank " + std::to_string(axes() + 2) + " expected; given " + to_string(weight));
    const std::vector<int64_t> kernel(weight.begin() + 2, weight.end()), given = attributes_.integers("kernel_shape");
    if (!given.empty() && given != kernel) fail("kernel_shape " + to_string(given) + " is not that of the weight " + to_string(weight));
    for (const int64_t size : kernel)
      if (size < 1 || size > kLargest) fail("a kernel of " + to_string(kernel));
    return kernel;
  }

  const Attributes& attributes() const { return attributes_; }

 private:
  const Attributes& attributes_;
  std::string_view node_;
  Shape spatial_;
};

// Elements from the first to the last tap.
int64_t extent(const WindowGeometry& geometry, size_t axis) { return (geometry.kernel[axis] - 1) * geometry.dilations[axis] + 1; }

// Half of `total` on each side; the odd one at the end, or at the start for SAME_LOWER.
void share_pads(WindowGeometry& geometry, size_t axis, int64_t total, bool lower) {
  const int64_t half = total / 2;
  geometry.pads_begin[axis] = lower ? total - half : half;
  geometry.pads_end[axis] = total - geometry.pads_begin[axis];
}

void slide(const Reader& reader, WindowGeometry& geometry, bool ceil_mode) {
  const std::string mode = reader.auto_pad();
  if (mode == "NOTSET") reader.explicit_pads(geometry);
  for (size_t axis = 0; axis < reader.axes(); ++axis) {
    const int64_t size = reader.spatial()[axis], stride = geometry.strides[axis];
    if (mode == "SAME_UPPER" || mode == "SAME_LOWER") {
      const int64_t output = (size + stride - 1) / stride;
      share_pads(geometry, axis, std::max<int64_t>((output - 1) * stride + extent(geometry, axis) - size, 0), mode == "SAME_LOWER");
    }
    const int64_t padded = size + geometry.pads_begin[axis] + geometry.pads_end[axis], room = padded - extent(geometry, axis);
    if (room < 0) reader.fail("a window of " + std::to_string(extent(geometry, axis)) + " elements on an axis of " + std::to_string(padded) + " with its padding");
    int64_t output = room / stride + 1;
    // A window that ceil_mode adds has to start in the input or its padding before it.
    if (ceil_mode && room % stride != 0 && output * stride < size + geometry.pads_begin[axis]) ++output;
    geometry.output.push_back(output);
  }
}

}  // namespace

WindowGeometry conv_geometry(const Attributes& attributes, std::string_view node, const Shape& input, const Shape& weight) {
  const Reader reader(attributes, node, input);
  WindowGeometry geometry = reader.common(reader.weight_kernel(weight));
  slide(reader, geometry, false);
  return geometry;
}

WindowGeometry pool_geometry(const Attributes& attributes, std::string_view node, const Shape& input) {
  const Reader reader(attributes, node, input);
  if (attributes.integers("kernel_shape").empty()) reader.fail("kernel_shape is missing");
  WindowGeometry geometry = reader.common(reader.per_axis("kernel_shape", 1, 1));
  slide(reader, geometry, attributes.integer("ceil_mode", 0) != 0);
  for (size_t axis = 0; axis < reader.axes(); ++axis)
    if (std::max(geometry.pads_begin[axis], geometry.pads_end[axis]) >= extent(geometry, axis))
      reader.fail("padding of " + std::to_string(std::max(geometry.pads_begin[axis], geometry.pads_end[axis])) + " elements leaves whole windows of " + std::to_string(extent(geometry, axis)) + " in it");
  return geometry;
}

WindowGeometry conv_transpose_geometry(const Attributes& attributes, std::string_view node, const Shape& input, const Shape& weight) {
  const Reader reader(attributes, node, input);
  WindowGeometry geometry = reader.common(reader.weight_kernel(weight));
  const std::string mode = reader.auto_pad();
  const auto added = reader.per_axis("output_padding", 0, 0);
  auto wanted = attributes.integers("output_shape");
  if (wanted.size() == reader.axes() + 2) wanted.erase(wanted.begin(), wanted.begin() + 2);  // some files give all axes
  if (!wanted.empty() && wanted.size() != reader.axes()) reader.fail("output_shape has " + std::to_string(wanted.size()) + " values; " + std::to_string(reader.axes()) + " expected");
  if (mode == "NOTSET" && wanted.empty()) reader.explicit_pads(geometry);
  for (size_t axis = 0; axis < reader.axes(); ++axis) {
    const int64_t size = reader.spatial()[axis], stride = geometry.strides[axis];
    if (added[axis] >= std::max(stride, geometry.dilations[axis])) reader.fail("output_padding of " + std::to_string(added[axis]) + " with a stride of " + std::to_string(stride));
    const int64_t full = size == 0 ? 0 : (size - 1) * stride + added[axis] + extent(geometry, axis);
    const bool same = mode == "SAME_UPPER" || mode == "SAME_LOWER";
    if (!wanted.empty() || same) {
      const int64_t output = wanted.empty() ? size * stride : wanted[axis];
      // The rule of ConvTranspose: the odd element goes to the end for SAME_UPPER alone.
      share_pads(geometry, axis, std::max<int64_t>(full - output, 0), mode != "SAME_UPPER");
      geometry.output.push_back(output);
    } else {
      geometry.output.push_back(full - geometry.pads_begin[axis] - geometry.pads_end[axis]);
    }
    if (geometry.output.back() < 0 || (geometry.output.back() == 0 && size != 0)) reader.fail("an output of " + std::to_string(geometry.output.back()) + " elements on spatial axis " + std::to_string(axis));
  }
  return geometry;
}

}  // namespace pumice
