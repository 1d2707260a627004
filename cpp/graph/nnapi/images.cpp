#include "graph/nnapi/images.h"

#include <cmath>

namespace pumice::nnapi {

std::vector<Operand> window_operands(bool implicit, bool sized) {
  std::vector<Operand> operands;
  const auto append = [&](std::initializer_list<std::string_view> names) {
    for (const std::string_view name : names) operands.push_back(scalar(name));
  };
  if (implicit)
    append({"padding_scheme"});
  else
    append({"padding_left", "padding_right", "padding_top", "padding_bottom"});
  append({"stride_width", "stride_height"});
  if (sized) append({"filter_width", "filter_height"});
  return operands;
}

// A number above 0, or 1 where it is left out.
static int64_t extent(const Expansion& e, size_t i) {
  const int64_t given = e.integer(i, 1);
  if (given < 1) e.fail(i, "a number above 0 expected; given " + std::to_string(given));
  return given;
}

Window window_of(const Expansion& e, size_t first, size_t numbers, bool sized) {
  Window window{{}, first};
  if (e.is_implicit()) {
    const int64_t scheme = e.integer(window.next);
    if (scheme != 1 && scheme != 2) e.fail(window.next, "1 (SAME) or 2 (VALID) expected; given " + std::to_string(scheme));
    window.attributes.set("auto_pad", scheme == 1 ? "SAME_UPPER" : "VALID");
    ++window.next;
  } else {
    std::vector<int64_t> pads;
    for (const size_t i : {2, 0, 3, 1}) {
      pads.push_back(e.integer(first + i));
      if (pads.back() < 0) e.fail(first + i, "a number of at least 0 expected; given " + std::to_string(pads.back()));
    }
    window.attributes.set("pads", pads);
    window.next += 4;
  }
  const auto pair = [&](const std::string& name) {
    window.attributes.set(name, std::vector{extent(e, window.next + 1), extent(e, window.next)});
    window.next += 2;
  };
  pair("strides");
  if (sized) return pair("kernel_shape"), window;
  const size_t dilations = window.next + numbers + 2;
  window.attributes.set("dilations", std::vector{extent(e, dilations + 1), extent(e, dilations)});
  return window;
}

bool is_planes(const Expansion& e, size_t i) {
  return e.integer(i) != 0;
}

ValueId planes_of(Expansion& e, ValueId id, bool planes) {
  return planes ? id : e.transposed(id, {0, 3, 1, 2});
}

ValueId image_of(Expansion& e, ValueId id, bool planes) {
  return planes ? id : e.transposed(id, {0, 2, 3, 1});
}

namespace {

enum class Pool : uint8_t { average, largest, l2 };

// The integers of a quantized tensor are pooled as they are.
template <Pool pool>
void pooled(Expansion& e) {
  const Window window = window_of(e, 1, 0, true);
  const Activation activation = e.activation(window.next);
  const bool planes = is_planes(e, window.next + 1);
  if (e.rank(0) != 4) e.fail(0, "a rank of 4 expected; given " + to_string(e.shape(0)));
  ValueId x = planes_of(e, e[0], planes);
  const Quantization quantization = e.as_operand(0), one{{1}, 0, {}};
  if constexpr (pool == Pool::largest) {
    const ValueId y = e.add("MaxPool", {x}, window.attributes);
    return e.give(image_of(e, e.is_quantized(0) ? e.activated(y, activation, quantization) : e.activated(y, activation), planes),
                  quantization);
  }
  if constexpr (pool == Pool::l2) {
    const ValueId y = e.add("Sqrt", {e.add("AveragePool", {e.add("Mul", {x, x})}, window.attributes)});
    return e.give(image_of(e, e.activated(y, activation), planes));
  }
  if (!e.is_quantized(0)) return e.give(image_of(e, e.activated(e.add("AveragePool", {x}, window.attributes), activation), planes));
  const ValueId y = e.quantized(e.add("AveragePool", {e.dequantized(x, one)}, window.attributes), one, e.dtype(0));
  e.give(image_of(e, e.activated(y, activation, quantization), planes), quantization);
}

// Height and width of the result: given as numbers, or as multiples of what they were.
std::vector<int64_t> resized_sizes(const Expansion& e, bool planes) {
  std::vector<int64_t> sizes;
  for (const size_t i : {2, 1}) {
    const size_t axis = (planes ? 2 : 1) + (i == 2 ? 0 : 1);
    if (e.dtype(i) != e.dtype(1))
      e.fail(i, std::string(name(e.dtype(1))) + " expected, as operand 1; given " + std::string(name(e.dtype(i))));
    const double given = e.real(i);
    if (!(given > 0)) e.fail(i, "a number above 0 expected; given " + std::to_string(given));
    sizes.push_back(static_cast<int64_t>(e.dtype(i) == DType::int32 ? given : std::floor(given * static_cast<double>(e.size(0, axis)))));
  }
  return sizes;
}

void resized(Expansion& e, bool linear) {
  if (e.rank(0) != 4) e.fail(0, "a rank of 4 expected; given " + to_string(e.shape(0)));
  const bool planes = is_planes(e, 3), corners = e.integer(4) != 0, half = e.integer(5) != 0;
  if (corners && half) e.fail(5, "false expected where align_corners is true; given true");
  Attributes attributes;
  attributes.set("mode", linear ? "linear" : "nearest");
  attributes.set("axes", std::vector<int64_t>{2, 3});
  attributes.set("coordinate_transformation_mode", corners ? "align_corners" : half ? "half_pixel" : "asymmetric");
  if (!linear) attributes.set("nearest_mode", corners || half ? "round_prefer_ceil" : "floor");
  const ValueId sizes = e.integers(resized_sizes(e, planes));
  const Quantization quantization = e.as_operand(0), one{{1}, 0, {}};
  ValueId x = planes_of(e, e[0], planes);
  const bool between = linear && e.is_quantized(0);
  if (between) x = e.dequantized(x, one);
  ValueId y = e.add("Resize", {x, kAbsent, kAbsent, sizes}, attributes);
  if (between) y = e.quantized(y, one, e.dtype(0));
  e.give(image_of(e, y, planes), quantization);
}

void resize_bilinear(Expansion& e) {
  resized(e, true);
}

void resize_nearest(Expansion& e) {
  resized(e, false);
}

void blocks(Expansion& e, std::string_view op) {
  if (e.rank(0) != 4) e.fail(0, "a rank of 4 expected; given " + to_string(e.shape(0)));
  const bool planes = is_planes(e, 2);
  const ValueId y = e.add(op, {planes_of(e, e[0], planes)}, with({{"blocksize", extent(e, 1)}}));
  e.give(image_of(e, y, planes), e.as_operand(0));
}

void depth_to_space(Expansion& e) {
  blocks(e, "DepthToSpace");
}

void space_to_depth(Expansion& e) {
  blocks(e, "SpaceToDepth");
}

}  // namespace

Operations image_operations() {
  constexpr DTypeSet reals = kFloat | kQuant;
  const Operand flag = scalar("nchw", kTruth, true);
  const auto pool = [&](std::string_view name, std::string_view summary, DTypeSet dtypes, void (*expand)(Expansion&)) {
    const auto form = [&](bool implicit) {
      std::vector<Operand> operands = window_operands(implicit, true);
      operands.insert(operands.begin(), tensor("x", dtypes));
      operands.insert(operands.end(), {scalar("activation"), flag});
      return operands;
    };
    return Operation{name, 1, summary, form(false), {tensor("y", dtypes)}, expand, form(true)};
  };
  const auto resize = [&](std::string_view name, int level, std::string_view summary, void (*expand)(Expansion&)) {
    constexpr DTypeSet sizes = kInt | kFloat;
    return Operation{name,
                     level,
                     summary,
                     {tensor("x", reals), scalar("width", sizes), scalar("height", sizes), flag, scalar("align_corners", kTruth, true),
                      scalar("half_pixel_centers", kTruth, true)},
                     {tensor("y", reals)},
                     expand};
  };
  const auto block = [&](std::string_view name, std::string_view summary, void (*expand)(Expansion&)) {
    return Operation{name, 1, summary, {tensor("x", reals), scalar("block_size"), flag}, {tensor("y", reals)}, expand};
  };
  return {
      pool("nnapi::AVERAGE_POOL_2D", "The mean of each window, its padding left out, then the activation.", reals, pooled<Pool::average>),
      pool("nnapi::MAX_POOL_2D", "The largest of each window, then the activation.", reals, pooled<Pool::largest>),
      pool("nnapi::L2_POOL_2D", "The root of the mean of the squares of each window, then the activation.", kFloat, pooled<Pool::l2>),
      resize("nnapi::RESIZE_BILINEAR", 1, "An image of another size, given as integers or as multiples; between neighbours in a line.",
             resize_bilinear),
      resize("nnapi::RESIZE_NEAREST_NEIGHBOR", 3, "An image of another size, given as integers or as multiples; the nearest neighbour.",
             resize_nearest),
      block("nnapi::DEPTH_TO_SPACE", "Channels laid out as blocks of pixels.", depth_to_space),
      block("nnapi::SPACE_TO_DEPTH", "Blocks of pixels laid out as channels.", space_to_depth),
  };
}

}  // namespace pumice::nnapi
