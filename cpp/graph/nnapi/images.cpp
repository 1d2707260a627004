#include "graph/nnapi/images.h"

#include <algorithm>
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
    const double size = e.dtype(i) == DType::int32 ? given : std::floor(given * static_cast<double>(e.size(0, axis)));
    if (!(size < 4294967296.0)) e.fail(i, "a size below 2^32 expected; given " + std::to_string(size));
    sizes.push_back(static_cast<int64_t>(size));
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

// x seen as parts of its axes, those in another order, and joined again.
ValueId rearranged(Expansion& e, ValueId x, const std::vector<int64_t>& parts, const std::vector<int64_t>& order,
                   const std::vector<int64_t>& joined) {
  const ValueId turned = e.add("Transpose", {e.add("Reshape", {x, e.integers(parts)})}, with({{"perm", order}}));
  return e.add("Reshape", {turned, e.integers(joined)});
}

// Blocks of places and batches: the two numbers of operand 1, of an image whose sizes are known.
struct Blocks {
  int64_t height, width;            // of a block
  int64_t rows, columns, channels;  // of the image
};

Blocks blocks_of(const Expansion& e, bool planes) {
  const auto given = e.list(1);
  if (e.rank(0) != 4) e.fail(0, "a rank of 4 expected; given " + to_string(e.shape(0)));
  if (given.size() != 2 || given[0] < 1 || given[1] < 1) e.fail(1, "two numbers above 0 expected; given " + to_string(given));
  return {given[0], given[1], e.size(0, planes ? 2 : 1), e.size(0, planes ? 3 : 2), e.size(0, planes ? 1 : 3)};
}

void batch_to_space(Expansion& e) {
  const bool planes = is_planes(e, 2);
  const auto [height, width, rows, columns, channels] = blocks_of(e, planes);
  if (const int64_t batch = e.shape(0)[0]; batch != kUnknownSize && batch % (height * width) != 0)
    e.fail(1, "numbers whose product divides a batch of " + std::to_string(batch) + " expected; given " + to_string(e.list(1)));
  const ValueId y = rearranged(e, planes_of(e, e[0], planes), {height, width, -1, channels, rows, columns}, {2, 3, 4, 0, 5, 1},
                               {-1, channels, checked_mul(rows, height, "height"), checked_mul(columns, width, "width")});
  e.give(image_of(e, y, planes), e.as_operand(0));
}

void space_to_batch(Expansion& e) {
  const bool planes = is_planes(e, 3);
  auto [height, width, rows, columns, channels] = blocks_of(e, planes);
  const auto around = e.list(2);
  if (around.size() != 4 || *std::ranges::min_element(around) < 0)
    e.fail(2, "two pairs of numbers of at least 0 expected; given " + to_string(around));
  rows += around[0] + around[1], columns += around[2] + around[3];
  if (rows % height != 0 || columns % width != 0)
    e.fail(1, "numbers that divide " + to_string(Shape{rows, columns}) + " expected; given " + to_string(e.list(1)));
  std::vector<ValueId> inputs{planes_of(e, e[0], planes), e.integers({0, 0, around[0], around[2], 0, 0, around[1], around[3]})};
  if (e.is_quantized(0)) inputs.push_back(e.scalar(e.quantization(0).zero_point.value_or(0), e.dtype(0)));
  const ValueId y = rearranged(e, e.add("Pad", inputs), {-1, channels, rows / height, height, columns / width, width}, {3, 5, 0, 1, 2, 4},
                               {-1, channels, rows / height, columns / width});
  e.give(image_of(e, y, planes), e.as_operand(0));
}

void channel_shuffle(Expansion& e) {
  const size_t axis = e.axis(2, e.rank(0));
  const int64_t groups = extent(e, 1), size = e.size(0, axis);
  if (size % groups != 0)
    e.fail(1, "a number that divides " + std::to_string(size) + " channels expected; given " + std::to_string(groups));
  int64_t inner = 1;
  for (size_t behind = axis + 1; behind < e.rank(0); ++behind) inner *= e.size(0, behind);
  const Shape shape = e.shape(0);  // Reshape finds a size that is not known
  e.give(rearranged(e, e[0], {-1, groups, size / groups, inner}, {0, 2, 1, 3}, shape), e.as_operand(0));
}

void instance_normalization(Expansion& e) {
  const bool planes = is_planes(e, 4);
  if (e.rank(0) != 4) e.fail(0, "a rank of 4 expected; given " + to_string(e.shape(0)));
  const int64_t channels = e.size(0, planes ? 1 : 3);
  const auto each = [&](size_t i) { return e.add("Expand", {e.scalar(e.real(i), e.dtype(0)), e.integers({channels})}); };
  const ValueId x = planes_of(e, e[0], planes);
  e.give(image_of(e, e.add("InstanceNormalization", {x, each(1), each(2)}, with({{"epsilon", e.real(3)}})), planes));
}

// ONNX divides alpha by the size of the window, and has the channels on axis 1.
void local_response_normalization(Expansion& e) {
  const size_t rank = e.rank(0), axis = e.axis(5, rank, -1);
  const int64_t radius = e.integer(1), size = 2 * radius + 1;
  if (radius < 0) e.fail(1, "a number of at least 0 expected; given " + std::to_string(radius));
  if (rank < 2) e.fail(0, "a rank of at least 2 expected; given " + to_string(e.shape(0)));
  std::vector<int64_t> order(rank);
  for (size_t k = 0; k < rank; ++k) order[k] = static_cast<int64_t>(k);
  std::swap(order[1], order[axis]);
  const ValueId y =
      e.add("LRN", {axis == 1 ? e[0] : e.transposed(e[0], order)},
            with({{"size", size}, {"bias", e.real(2)}, {"alpha", e.real(3) * static_cast<double>(size)}, {"beta", e.real(4)}}));
  e.give(axis == 1 ? y : e.transposed(y, order));
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
      {"nnapi::BATCH_TO_SPACE_ND",
       2,
       "Images of a batch laid out as blocks of pixels.",
       {tensor("x", reals), list("block_sizes"), flag},
       {tensor("y", reals)},
       batch_to_space},
      {"nnapi::SPACE_TO_BATCH_ND",
       2,
       "Blocks of pixels, with zeros around, laid out as images of a batch.",
       {tensor("x", reals), list("block_sizes"), tensor("paddings", kInt), flag},
       {tensor("y", reals)},
       space_to_batch},
      {"nnapi::CHANNEL_SHUFFLE",
       3,
       "The channels of an axis, by their place in their group first.",
       {tensor("x", reals), scalar("groups"), scalar("axis")},
       {tensor("y", reals)},
       channel_shuffle},
      {"nnapi::INSTANCE_NORMALIZATION",
       3,
       "Each channel of each image less its mean, by its deviation, times gamma, plus beta.",
       {tensor("x", kFloat), scalar("gamma", kFloat), scalar("beta", kFloat), scalar("epsilon", kFloat), scalar("nchw", kTruth)},
       {tensor("y", kFloat)},
       instance_normalization},
      {"nnapi::LOCAL_RESPONSE_NORMALIZATION",
       1,
       "x by (bias + alpha * the sum of the squares within the radius along the axis) to the power of beta.",
       {tensor("x", kFloat), scalar("radius"), scalar("bias", kFloat), scalar("alpha", kFloat), scalar("beta", kFloat),
        scalar("axis", kInt, true)},
       {tensor("y", kFloat)},
       local_response_normalization},
  };
}

}  // namespace pumice::nnapi
