#include "graph/nnapi/images.h"

#include <algorithm>
#include <cmath>

#include "graph/nnapi/operations.h"

namespace pumice::nnapi {

std::vector<Operand> make_window_operands(bool implicit, bool sized) {
  std::vector<Operand> operands;
  const auto append = [&](std::initializer_list<std::string_view> names) {
    for (const std::string_view name : names) operands.push_back(scalar_arg(name));
  };
  if (implicit)
    append({"padding_scheme"});
  else
    append({"padding_left", "padding_right", "padding_top", "padding_bottom"});
  append({"stride_width", "stride_height"});
  if (sized) append({"filter_width", "filter_height"});
  return operands;
}

// Returns a positive scalar operand; 1 if it is omitted.
static int64_t read_positive_int(const Expansion& e, size_t i) {
  const int64_t actual = e.read_int(i, 1);
  if (actual < 1) e.fail(i, "a positive number expected; given " + std::to_string(actual));
  return actual;
}

WindowParams read_window(const Expansion& e, size_t first, size_t numbers, bool sized) {
  WindowParams window{{}, first};
  if (e.is_implicit()) {
    const int64_t scheme = e.read_int(window.next);
    if (scheme != 1 && scheme != 2) e.fail(window.next, "1 (SAME) or 2 (VALID) expected; given " + std::to_string(scheme));
    window.attributes.set("auto_pad", scheme == 1 ? "SAME_UPPER" : "VALID");
    ++window.next;
  } else {
    std::vector<int64_t> pads;
    for (const size_t i : {2, 0, 3, 1}) {
      pads.push_back(e.read_int(first + i));
      if (pads.back() < 0) e.fail(first + i, "a non-negative number expected; given " + std::to_string(pads.back()));
    }
    window.attributes.set("pads", pads);
    window.next += 4;
  }
  const auto pair = [&](const std::string& name) {
    window.attributes.set(name, std::vector{read_positive_int(e, window.next + 1), read_positive_int(e, window.next)});
    window.next += 2;
  };
  pair("strides");
  if (sized) return pair("kernel_shape"), window;
  const size_t dilations = window.next + numbers + 2;
  window.attributes.set("dilations", std::vector{read_positive_int(e, dilations + 1), read_positive_int(e, dilations)});
  return window;
}

bool read_nchw_flag(const Expansion& e, size_t i) {
  return e.read_int(i) != 0;
}

ValueId to_nchw(Expansion& e, ValueId id, bool is_nchw) {
  return is_nchw ? id : e.transpose(id, {0, 3, 1, 2});
}

ValueId from_nchw(Expansion& e, ValueId id, bool is_nchw) {
  return is_nchw ? id : e.transpose(id, {0, 2, 3, 1});
}

namespace {

void check_image_rank(Operands& o) {
  o.expect_rank(0, 4);
}

enum class PoolKind : uint8_t { average, largest, l2 };

// Expands a pooling. A quantized tensor is pooled as integers.
template <PoolKind pool>
void expand_pool(Expansion& e) {
  const WindowParams window = read_window(e, 1, 0, true);
  const Activation activation = e.read_activation(window.next);
  const bool is_nchw = read_nchw_flag(e, window.next + 1);
  ValueId x = to_nchw(e, e[0], is_nchw);
  const Quantization quantization = e.operand_quantization(0), identity_quantization{{1}, 0, {}};
  if constexpr (pool == PoolKind::largest) {
    const ValueId y = e.add("MaxPool", {x}, window.attributes);
    return e.add_output(
        from_nchw(e, e.is_quantized(0) ? e.apply_activation(y, activation, quantization) : e.apply_activation(y, activation), is_nchw),
        quantization);
  }
  if constexpr (pool == PoolKind::l2) {
    const ValueId y = e.add("Sqrt", {e.add("AveragePool", {e.add("Mul", {x, x})}, window.attributes)});
    return e.add_output(from_nchw(e, e.apply_activation(y, activation), is_nchw));
  }
  if (!e.is_quantized(0))
    return e.add_output(from_nchw(e, e.apply_activation(e.add("AveragePool", {x}, window.attributes), activation), is_nchw));
  const ValueId y =
      e.quantize(e.add("AveragePool", {e.dequantize(x, identity_quantization)}, window.attributes), identity_quantization, e.dtype(0));
  e.add_output(from_nchw(e, e.apply_activation(y, activation, quantization), is_nchw), quantization);
}

// Returns the height and width of the result, which operands give as sizes or as scale factors.
std::vector<int64_t> read_output_sizes(const Expansion& e, bool is_nchw) {
  std::vector<int64_t> sizes;
  for (const size_t i : {2, 1}) {
    const size_t axis = (is_nchw ? 2 : 1) + (i == 2 ? 0 : 1);
    if (e.dtype(i) != e.dtype(1))
      e.fail(i, std::string(name(e.dtype(1))) + " expected, as operand 1; given " + std::string(name(e.dtype(i))));
    const double actual = e.read_real(i);
    if (!(actual > 0)) e.fail(i, "a positive number expected; given " + std::to_string(actual));
    const double size = e.dtype(i) == DType::int32 ? actual : std::floor(static_cast<float>(actual) * static_cast<float>(e.size(0, axis)));
    if (!(size < 4294967296.0)) e.fail(i, "a size below 2^32 expected; given " + std::to_string(size));
    sizes.push_back(static_cast<int64_t>(size));
  }
  return sizes;
}

void add_resize_output(Expansion& e, bool linear) {
  const bool is_nchw = read_nchw_flag(e, 3), corners = e.read_int(4) != 0, half_pixel = e.read_int(5) != 0;
  if (corners && half_pixel) e.fail(5, "false expected if align_corners is true; given true");
  Attributes attributes;
  attributes.set("mode", linear ? "linear" : "nearest");
  attributes.set("axes", std::vector<int64_t>{2, 3});
  attributes.set("coordinate_transformation_mode", corners ? "align_corners" : half_pixel ? "half_pixel" : "asymmetric");
  if (!linear) attributes.set("nearest_mode", corners || half_pixel ? "round_prefer_ceil" : "floor");
  const ValueId sizes = e.add_int64_vector(read_output_sizes(e, is_nchw));
  const Quantization quantization = e.operand_quantization(0), identity_quantization{{1}, 0, {}};
  ValueId x = to_nchw(e, e[0], is_nchw);
  const bool between = linear && e.is_quantized(0);
  if (between) x = e.dequantize(x, identity_quantization);
  ValueId y = e.add("Resize", {x, kAbsent, kAbsent, sizes}, attributes);
  if (between) y = e.quantize(y, identity_quantization, e.dtype(0));
  e.add_output(from_nchw(e, y, is_nchw), quantization);
}

void expand_resize_bilinear(Expansion& e) {
  add_resize_output(e, true);
}

void expand_resize_nearest(Expansion& e) {
  add_resize_output(e, false);
}

void add_block_output(Expansion& e, std::string_view op) {
  const bool is_nchw = read_nchw_flag(e, 2);
  const ValueId y = e.add(op, {to_nchw(e, e[0], is_nchw)}, make_attrs({{"blocksize", read_positive_int(e, 1)}}));
  e.add_output(from_nchw(e, y, is_nchw), e.operand_quantization(0));
}

// Reshapes x to `split_shape`, permutes the axes, and reshapes the result to `merged_shape`.
ValueId split_permute_merge(Expansion& e, ValueId x, const std::vector<AxisLength>& split_shape, const std::vector<int64_t>& order,
                            const std::vector<AxisLength>& merged_shape) {
  return e.reshape(e.add("Transpose", {e.reshape(x, split_shape)}, make_attrs({{"perm", order}})), merged_shape);
}

// The block size (operand 1), known or computed by the program.
struct BlockSize {
  AxisLength height, width;
};

BlockSize read_block_size(Expansion& e) {
  if (const auto actual = e.known_ints(1)) return {{actual->at(0)}, {actual->at(1)}};
  const ValueId list = e.cast_to_int64(1);
  return {e.get_element(list, 0), e.get_element(list, 1)};
}

// Checks the block size and returns its height and width, if known.
std::optional<std::vector<int64_t>> check_block_size(Operands& o) {
  const auto actual = o.known_ints(1);
  if (!actual) o.expect_length(1, 2, "positive numbers expected, the block's height and width");
  if (actual && (actual->size() != 2 || (*actual)[0] < 1 || (*actual)[1] < 1))
    o.fail(1, "two positive numbers expected; given " + to_string(*actual));
  return actual;
}

void check_batch_to_space(Operands& o) {
  check_image_rank(o);
  const auto block = check_block_size(o);
  const auto batch = o.size(0, 0);
  if (block && batch && *batch % checked_mul((*block)[0], (*block)[1], "the block") != 0)
    o.fail(1, "numbers whose product divides a batch of " + std::to_string(*batch) + " expected; given " + to_string(*o.known_ints(1)));
}

void expand_batch_to_space(Expansion& e) {
  const bool is_nchw = read_nchw_flag(e, 2);
  const auto [height, width] = read_block_size(e);
  const AxisLength rows = e.length(0, is_nchw ? 2 : 1), columns = e.length(0, is_nchw ? 3 : 2), channels = e.length(0, is_nchw ? 1 : 3);
  const ValueId y = split_permute_merge(e, to_nchw(e, e[0], is_nchw), {height, width, {}, channels, rows, columns}, {2, 3, 4, 0, 5, 1},
                                        {{}, channels, e.mul_lengths(rows, height), e.mul_lengths(columns, width)});
  e.add_output(from_nchw(e, y, is_nchw), e.operand_quantization(0));
}

void check_space_to_batch(Operands& o) {
  check_image_rank(o);
  const auto block = check_block_size(o);
  o.expect_rank(2, 2);
  for (const size_t axis : {0, 1}) o.expect_size(2, axis, 2);
  const auto paddings = o.known_ints(2);
  if (paddings && *std::ranges::min_element(*paddings) < 0)
    o.fail(2, "two pairs of non-negative numbers expected; given " + to_string(*paddings));
  if (!block || !paddings) return;
  const size_t first = o.read_int(3) != 0 ? 2 : 1;
  const auto padded = [&](size_t k) {
    const auto size = o.size(0, first + k);
    return size ? *size + (*paddings)[2 * k] + (*paddings)[2 * k + 1] : kUnknownSize;
  };
  const Shape image{padded(0), padded(1)};
  if ((image[0] != kUnknownSize && image[0] % (*block)[0] != 0) || (image[1] != kUnknownSize && image[1] % (*block)[1] != 0))
    o.fail(1, "numbers that divide " + to_string(image) + " expected; given " + to_string(*o.known_ints(1)));
}

// Returns operand 2 as ONNX pads of an NCHW image: begins, then ends.
ValueId read_block_pads(Expansion& e) {
  if (const auto paddings = e.known_ints(2))
    return e.add_int64_vector({0, 0, (*paddings)[0], (*paddings)[2], 0, 0, (*paddings)[1], (*paddings)[3]});
  const ValueId none = e.add_int64_vector({0, 0}),
                list = e.cast(e.add("Reshape", {e.add("Transpose", {e[2]}), e.add_int64_vector({4})}), DType::int64);
  const auto padding_pair = [&](int64_t first) {
    return e.add("Slice", {list, e.add_int64_vector({first}), e.add_int64_vector({first + 2})});
  };
  return e.add("Concat", {none, padding_pair(0), none, padding_pair(2)}, make_attrs({{"axis", int64_t{0}}}));
}

void expand_space_to_batch(Expansion& e) {
  const bool is_nchw = read_nchw_flag(e, 3);
  const auto [height, width] = read_block_size(e);
  std::vector<ValueId> inputs{to_nchw(e, e[0], is_nchw), read_block_pads(e)};
  if (e.is_quantized(0)) inputs.push_back(e.add_scalar(e.quantization(0).zero_point.value_or(0), e.dtype(0)));
  const ValueId padded = e.add("Pad", inputs);
  if (!e.known_ints(2)) e.refine_shape(padded, Shape(4, kUnknownSize));
  const AxisLength channels = e.length(0, is_nchw ? 1 : 3);
  const AxisLength rows = e.div_lengths(e.get_length(padded, 2), height), columns = e.div_lengths(e.get_length(padded, 3), width);
  const ValueId y =
      split_permute_merge(e, padded, {{}, channels, rows, height, columns, width}, {3, 5, 0, 1, 2, 4}, {{}, channels, rows, columns});
  e.add_output(from_nchw(e, y, is_nchw), e.operand_quantization(0));
}

void check_channel_shuffle(Operands& o) {
  const int64_t groups = o.read_int(1);
  if (groups < 1) o.fail(1, "a positive number expected; given " + std::to_string(groups));
  const auto rank = o.rank(0);
  const auto size = rank ? o.size(0, o.read_axis(2, *rank)) : std::nullopt;
  if (size && *size % groups != 0)
    o.fail(1, "a number that divides " + std::to_string(*size) + " channels expected; given " + std::to_string(groups));
}

void expand_channel_shuffle(Expansion& e) {
  const size_t axis = e.read_axis(2, e.rank(0));
  const int64_t groups = e.read_int(1);
  std::vector<AxisLength> shape;
  AxisLength inner{1};
  for (size_t k = 0; k < e.rank(0); ++k) {
    shape.push_back(e.length(0, k));
    if (k > axis) inner = e.mul_lengths(inner, shape[k]);
  }
  e.add_output(split_permute_merge(e, e[0], {{}, {groups}, e.div_lengths(shape[axis], {groups}), inner}, {0, 2, 1, 3}, shape),
               e.operand_quantization(0));
}

void expand_instance_normalization(Expansion& e) {
  const bool is_nchw = read_nchw_flag(e, 4);
  const ValueId channels = e.add_sizes({e.length(0, is_nchw ? 1 : 3)});
  const auto each = [&](size_t i) { return e.add("Expand", {e.add_scalar(e.read_real(i), e.dtype(0)), channels}); };
  const ValueId x = to_nchw(e, e[0], is_nchw);
  e.add_output(from_nchw(e, e.add("InstanceNormalization", {x, each(1), each(2)}, make_attrs({{"epsilon", e.read_real(3)}})), is_nchw));
}

void check_lrn(Operands& o) {
  o.expect_min_rank(0, 1);
}

// ONNX divides alpha by the window size, and expects channels on axis 1.
Attributes make_lrn_attributes(const Expansion& e, int64_t size) {
  return make_attrs(
      {{"size", size}, {"bias", e.read_real(2)}, {"alpha", e.read_real(3) * static_cast<double>(size)}, {"beta", e.read_real(4)}});
}

ValueId add_vector_lrn(Expansion& e, int64_t size) {
  const ValueId as_image = e.add("Unsqueeze", {e[0], e.add_int64_vector({0, 2})});
  return e.add("Squeeze", {e.add("LRN", {as_image}, make_lrn_attributes(e, size)), e.add_int64_vector({0, 2})});
}

void expand_lrn(Expansion& e) {
  const size_t rank = e.rank(0), axis = e.read_axis(5, rank, -1);
  const int64_t radius = e.read_int(1), size = 2 * radius + 1;
  if (radius < 0) e.fail(1, "a non-negative number expected; given " + std::to_string(radius));
  if (rank == 1) return e.add_output(add_vector_lrn(e, size));
  std::vector<int64_t> order(rank);
  for (size_t k = 0; k < rank; ++k) order[k] = static_cast<int64_t>(k);
  std::swap(order[1], order[axis]);
  const ValueId y = e.add("LRN", {axis == 1 ? e[0] : e.transpose(e[0], order)}, make_lrn_attributes(e, size));
  e.add_output(axis == 1 ? y : e.transpose(y, order));
}

void expand_depth_to_space(Expansion& e) {
  add_block_output(e, "DepthToSpace");
}

void expand_space_to_depth(Expansion& e) {
  add_block_output(e, "SpaceToDepth");
}

}  // namespace

Operations make_image_operations() {
  constexpr DTypeSet reals = kFloat | kQuant;
  const Operand flag = scalar_arg("nchw", kTruth, true);
  const auto pool = [&](std::string_view name, std::string_view summary, DTypeSet dtypes, void (*expand)(Expansion&)) {
    const auto form = [&](bool implicit) {
      std::vector<Operand> operands = make_window_operands(implicit, true);
      operands.insert(operands.begin(), tensor_arg("x", dtypes));
      operands.insert(operands.end(), {scalar_arg("activation"), flag});
      return operands;
    };
    return Operation{name, 1, summary, form(false), {tensor_arg("y", dtypes)}, expand, form(true), check_image_rank};
  };
  const auto resize = [&](std::string_view name, int level, std::string_view summary, void (*expand)(Expansion&)) {
    constexpr DTypeSet sizes = kInt | kFloat;
    return Operation{name,
                     level,
                     summary,
                     {tensor_arg("x", reals), scalar_arg("width", sizes), scalar_arg("height", sizes), flag,
                      scalar_arg("align_corners", kTruth, true), scalar_arg("half_pixel_centers", kTruth, true)},
                     {tensor_arg("y", reals)},
                     expand,
                     {},
                     check_image_rank};
  };
  const auto block = [&](std::string_view name, std::string_view summary, void (*expand)(Expansion&)) {
    return Operation{name,   1,  summary,         {tensor_arg("x", reals), scalar_arg("block_size"), flag}, {tensor_arg("y", reals)},
                     expand, {}, check_image_rank};
  };
  return {
      pool("nnapi::AVERAGE_POOL_2D", "The mean of each window, its padding left out, then the activation.", reals,
           expand_pool<PoolKind::average>),
      pool("nnapi::MAX_POOL_2D", "The largest of each window, then the activation.", reals, expand_pool<PoolKind::largest>),
      pool("nnapi::L2_POOL_2D", "The root of the mean of the squares of each window, then the activation.", kFloat,
           expand_pool<PoolKind::l2>),
      resize("nnapi::RESIZE_BILINEAR", 1, "An image of another size, given as integers or as multiples; between neighbours in a line.",
             expand_resize_bilinear),
      resize("nnapi::RESIZE_NEAREST_NEIGHBOR", 3, "An image of another size, given as integers or as multiples; the nearest neighbour.",
             expand_resize_nearest),
      block("nnapi::DEPTH_TO_SPACE", "Channels laid out as blocks of pixels.", expand_depth_to_space),
      block("nnapi::SPACE_TO_DEPTH", "Blocks of pixels laid out as channels.", expand_space_to_depth),
      {"nnapi::BATCH_TO_SPACE_ND",
       2,
       "Images of a batch laid out as blocks of pixels.",
       {tensor_arg("x", reals), list_arg("block_sizes"), flag},
       {tensor_arg("y", reals)},
       expand_batch_to_space,
       {},
       check_batch_to_space},
      {"nnapi::SPACE_TO_BATCH_ND",
       2,
       "Blocks of pixels, with zeros around, laid out as images of a batch.",
       {tensor_arg("x", reals), list_arg("block_sizes"), pairs_arg("paddings"), flag},
       {tensor_arg("y", reals)},
       expand_space_to_batch,
       {},
       check_space_to_batch},
      {"nnapi::CHANNEL_SHUFFLE",
       3,
       "The channels of an axis, by their place in their group first.",
       {tensor_arg("x", reals), scalar_arg("groups"), scalar_arg("axis")},
       {tensor_arg("y", reals)},
       expand_channel_shuffle,
       {},
       check_channel_shuffle},
      {"nnapi::INSTANCE_NORMALIZATION",
       3,
       "Each channel of each image less its mean, by its deviation, times gamma, plus beta.",
       {tensor_arg("x", kFloat), scalar_arg("gamma", kFloat), scalar_arg("beta", kFloat), scalar_arg("epsilon", kFloat),
        scalar_arg("nchw", kTruth)},
       {tensor_arg("y", kFloat)},
       expand_instance_normalization,
       {},
       check_image_rank},
      {"nnapi::LOCAL_RESPONSE_NORMALIZATION",
       1,
       "x by (bias + alpha * the sum of the squares within the radius along the axis) to the power of beta.",
       {tensor_arg("x", kFloat), scalar_arg("radius"), scalar_arg("bias", kFloat), scalar_arg("alpha", kFloat), scalar_arg("beta", kFloat),
        scalar_arg("axis", kInt, true)},
       {tensor_arg("y", kFloat)},
       expand_lrn,
       {},
       check_lrn},
  };
}

}  // namespace pumice::nnapi
