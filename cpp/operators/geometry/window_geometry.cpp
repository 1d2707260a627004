#include "operators/geometry/window_geometry.h"

#include <algorithm>
#include <string>

#include "core/error.h"

namespace pumice {
namespace {

using Integers = std::vector<int64_t>;

enum class AutoPad : uint8_t { notset, valid, same_upper, same_lower };

// Reads a node's window attributes and checks them against the number of spatial axes.
class WindowAttributeReader {
 public:
  WindowAttributeReader(const Attributes& attributes, std::string_view node, const Shape& x) : attributes_(attributes), node_(node) {
    if (x.size() < 3) fail("an input of [N, C, and at least one spatial axis]; given " + to_string(x));
    spatial_.assign(x.begin() + 2, x.end());
  }

  const Integers& spatial_sizes() const { return spatial_; }
  size_t num_axes() const { return spatial_.size(); }

  // Returns the `count` values of an attribute, each at least `min_value`. If it is not set, each value is `fallback`.
  Integers read_integers(std::string_view name, size_t count, int64_t fallback, int64_t min_value) const {
    const Integers values = attributes_.integers(name);
    if (values.empty()) return Integers(count, fallback);
    if (values.size() != count) fail("'" + std::string(name) + "' needs " + std::to_string(count) + " values; given " + to_string(values));
    if (*std::min_element(values.begin(), values.end()) < min_value)
      fail("'" + std::string(name) + "' needs values of at least " + std::to_string(min_value) + "; given " + to_string(values));
    return values;
  }

  AutoPad read_auto_pad() const {
    const std::string text = attributes_.text("auto_pad", "NOTSET");
    if (text.empty() || text == "NOTSET") return AutoPad::notset;
    if (text == "VALID") return AutoPad::valid;
    if (text == "SAME_UPPER") return AutoPad::same_upper;
    if (text == "SAME_LOWER") return AutoPad::same_lower;
    fail("'auto_pad' is NOTSET, VALID, SAME_UPPER or SAME_LOWER; given '" + text + "'");
  }

  // Returns the window with its strides, dilations and explicit pads. With `auto_pad`, the pads are set later.
  WindowGeometry read_window(Integers kernel) const {
    WindowGeometry window;
    if (std::any_of(kernel.begin(), kernel.end(), [](int64_t size) { return size < 1; }))
      fail("a kernel of at least one element; given " + to_string(kernel));
    window.kernel = std::move(kernel);
    window.strides = read_integers("strides", num_axes(), 1, 1);
    window.dilations = read_integers("dilations", num_axes(), 1, 1);
    const Integers pads = read_auto_pad() == AutoPad::notset ? read_integers("pads", 2 * num_axes(), 0, 0) : Integers(2 * num_axes(), 0);
    window.pads_begin.assign(pads.begin(), pads.begin() + static_cast<std::ptrdiff_t>(num_axes()));
    window.pads_end.assign(pads.begin() + static_cast<std::ptrdiff_t>(num_axes()), pads.end());
    return window;
  }

  [[noreturn]] void fail(const std::string& message) const { throw GraphError(std::string(node_), "expected " + message); }

 private:
  const Attributes& attributes_;
  std::string_view node_;
  Integers spatial_;
};

// Returns the number of input elements that a window spans.
int64_t get_dilated_kernel_size(const WindowGeometry& window, size_t i) {
  return checked_add(checked_mul(window.kernel[i] - 1, window.dilations[i], "kernel"), 1, "kernel");
}

// Distributes the total padding of `auto_pad` to both ends. An odd element goes to the end with SAME_UPPER, else to the start.
void set_same_padding(WindowGeometry& window, size_t i, int64_t total, bool upper) {
  const int64_t padding = std::max<int64_t>(total, 0), smaller_half = padding / 2;
  window.pads_begin[i] = upper ? smaller_half : padding - smaller_half;
  window.pads_end[i] = padding - window.pads_begin[i];
}

// Divide by a positive divisor and round down (or up).
int64_t floor_div_signed(int64_t a, int64_t b) {
  return a >= 0 ? a / b : -((b - 1 - a) / b);
}
int64_t ceil_div_signed(int64_t a, int64_t b) {
  return -floor_div_signed(-a, b);
}

// Returns the number of windows on a padded axis. `ceil`: also count a partial last window, if it starts inside the input or its front
// padding.
int64_t count_windows(const WindowGeometry& window, size_t i, int64_t size, bool ceil) {
  const int64_t from_front = checked_add(size, window.pads_begin[i], "pads"), stride = window.strides[i];
  const int64_t span = checked_add(from_front, window.pads_end[i], "pads") - get_dilated_kernel_size(window, i);
  if (!ceil) return floor_div_signed(span, stride) + 1;
  const int64_t count = ceil_div_signed(span, stride) + 1;
  return (count - 1) * stride >= from_front ? count - 1 : count;
}

void compute_output_sizes(const WindowAttributeReader& reader, WindowGeometry& window, bool ceil) {
  const AutoPad mode = reader.read_auto_pad();
  for (size_t i = 0; i < reader.num_axes(); ++i) {
    const int64_t size = reader.spatial_sizes()[i], stride = window.strides[i];
    if (mode == AutoPad::same_upper || mode == AutoPad::same_lower) {
      window.output.push_back((size + stride - 1) / stride);
      set_same_padding(window, i, checked_mul(window.output[i] - 1, stride, "strides") + get_dilated_kernel_size(window, i) - size,
                       mode == AutoPad::same_upper);
    } else {
      window.output.push_back(count_windows(window, i, size, ceil && mode == AutoPad::notset));
    }
    // With SAME_UPPER and SAME_LOWER, an empty axis has no windows, and any window size is valid.
    if (window.output[i] <= 0 && (size > 0 || mode == AutoPad::notset || mode == AutoPad::valid))
      reader.fail("a window of at most the padded size of spatial axis " + std::to_string(i) + ", " +
                  std::to_string(size + window.pads_begin[i] + window.pads_end[i]) + "; given " +
                  std::to_string(get_dilated_kernel_size(window, i)));
    window.output[i] = std::max<int64_t>(window.output[i], 0);
  }
}

// Returns the kernel sizes, which are the trailing sizes of the weights. The attribute 'kernel_shape' must equal them if it is set.
Integers get_kernel_sizes(const WindowAttributeReader& reader, const Shape& w) {
  if (w.size() != reader.num_axes() + 2)
    reader.fail("weights of rank " + std::to_string(reader.num_axes() + 2) + "; given " + to_string(w));
  const Integers kernel(w.begin() + 2, w.end()), declared = reader.read_integers("kernel_shape", reader.num_axes(), 0, 1);
  if (declared[0] != 0 && declared != kernel)
    reader.fail("'kernel_shape' to be that of the weights, " + to_string(kernel) + "; given " + to_string(declared));
  return kernel;
}

}  // namespace

WindowGeometry compute_conv_geometry(const Attributes& attributes, std::string_view node, const Shape& x, const Shape& w) {
  const WindowAttributeReader reader(attributes, node, x);
  WindowGeometry window = reader.read_window(get_kernel_sizes(reader, w));
  compute_output_sizes(reader, window, false);
  return window;
}

void check_pool_input(std::string_view node, const Shape& x) {
  if (x.size() > 2 && x[0] != 0 && element_count(x) == 0)
    throw GraphError(std::string(node), "pooling needs at least one element on every axis after the batch axis; given " + to_string(x));
}

WindowGeometry compute_pool_geometry(const Attributes& attributes, std::string_view node, const Shape& x) {
  const WindowAttributeReader reader(attributes, node, x);
  check_pool_input(node, x);
  WindowGeometry window = reader.read_window(reader.read_integers("kernel_shape", reader.num_axes(), 0, 1));
  compute_output_sizes(reader, window, attributes.integer("ceil_mode", 0) != 0);
  return window;
}

WindowGeometry compute_unpool_geometry(const Attributes& attributes, std::string_view node, const Shape& x) {
  const WindowAttributeReader reader(attributes, node, x);
  WindowGeometry window = reader.read_window(reader.read_integers("kernel_shape", reader.num_axes(), 0, 1));
  for (size_t i = 0; i < reader.num_axes(); ++i) {
    const int64_t full = checked_add(checked_mul(reader.spatial_sizes()[i] - 1, window.strides[i], "strides"), window.kernel[i], "kernel");
    window.output.push_back(std::max<int64_t>(full - window.pads_begin[i] - window.pads_end[i], 0));
  }
  return window;
}

WindowGeometry compute_conv_transpose_geometry(const Attributes& attributes, std::string_view node, const Shape& x, const Shape& w) {
  const WindowAttributeReader reader(attributes, node, x);
  WindowGeometry window = reader.read_window(get_kernel_sizes(reader, w));
  const AutoPad mode = reader.read_auto_pad();
  const Integers extra = reader.read_integers("output_padding", reader.num_axes(), 0, 0),
                 requested = reader.read_integers("output_shape", reader.num_axes(), -1, 0);
  const bool same = mode == AutoPad::same_upper || mode == AutoPad::same_lower;
  for (size_t i = 0; i < reader.num_axes(); ++i) {
    const int64_t size = reader.spatial_sizes()[i];
    const int64_t full =
        checked_add(checked_mul(window.strides[i], size - 1, "strides"), extra[i] + get_dilated_kernel_size(window, i), "output");
    if (requested[i] >= 0 || same) {
      window.output.push_back(requested[i] >= 0 ? requested[i] : checked_mul(size, window.strides[i], "strides"));
      set_same_padding(window, i, full - window.output[i], mode == AutoPad::same_upper);
    } else {
      window.output.push_back(full - window.pads_begin[i] - window.pads_end[i]);
    }
    if (size == 0) window.output[i] = std::max<int64_t>(window.output[i], 0);
    if (window.output[i] < 0)
      reader.fail("pads of at most the result's size on spatial axis " + std::to_string(i) + ", " + std::to_string(full));
  }
  return window;
}

}  // namespace pumice
