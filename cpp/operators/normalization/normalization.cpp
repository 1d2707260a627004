// Lowers normalisations.
#include <algorithm>
#include <bit>

#include "core/error.h"
#include "core/number_format.h"
#include "core/rounding.h"
#include "operators/common/composition.h"
#include "operators/common/row_registers.h"
#include "operators/common/mixed_precision.h"
#include "operators/common/planes.h"
#include "operators/normalization/lowerings.h"
#include "operators/reduction/reduce.h"
#include "operators/table/operator_table.h"

namespace pumice {
namespace {

constexpr int64_t kMostStretches = 256;
constexpr int64_t kMostHeldChannels = 128;  // maximum number of channels per group
constexpr int64_t kFewestInStretch = 4096;  // minimum number of elements per workgroup
constexpr int64_t kFewestPixels = 32;       // minimum number of pixels per invocation, if many run in parallel

int64_t axis_of(const LowerContext& node, int64_t fallback) {
  const int64_t axis = node.attributes->integer("axis", fallback);
  return axis < 0 ? axis + node.input(0).rank() : axis;
}

std::string flag(bool set) {
  return set ? "1" : "0";
}

// Whether planes are dense and aligned, with a multiple of four elements.
bool has_quad_planes(const LowerContext& node, const Planes& x) {
  return node.input(0).is_packed() && node.output(0).is_packed() && x.h * x.w % 4 == 0 && begins_in_fours(node);
}

// Adds the macro for the epilogue's residual, if there is one.
void tell_residual(const LowerContext& node, Macros& macros) {
  if (node.residual()) macros.emplace_back("RESIDUAL", "1");
}
void bind_residual(const LowerContext& node, StepBuilder& step) {
  if (const Operand* residual = node.residual()) step.bind("residual", *residual);
}

// Adds y = (x - mean) * factor + bias per channel; factors are vec4s of [batch, channels] or [channels].
void add_apply(LowerContext& node, const Planes& x, const Planes& y, const Operand& factors, int64_t factor_stride_n) {
  const bool planes = has_quad_planes(node, x), vec4 = !planes && x.has_vector_channels(4) && y.has_vector_channels(4);
  const int64_t unit = planes || vec4 ? 4 : 1;
  const DType dtype = node.input(0).dtype;
  const MixedArrays arrays = mixed_arrays({{"X", dtype}, {"Y", node.output(0).dtype}, {"R", node.residual_dtype(dtype)}});
  Macros macros = {{"PLANES", flag(planes)}, {"VEC4", flag(vec4)}, {"EPILOGUE(x)", node.epilogue()}};
  arrays.tell(macros);
  tell_residual(node, macros);
  StepBuilder step(node.kernel("norm_apply.comp", arrays.storage, macros));
  bind_residual(node, step);
  step.bind("x", node.in(0)).bind("factors", factors).bind("y", node.out(0)).set("elements", y.elements() / unit);
  step.set("channels", vec4 ? y.c / 4 : y.c).set("factor_stride_n", factor_stride_n);
  if (planes) {
    step.set("quads", y.h * y.w / 4);
  } else {
    step.set("height", y.h).set("width", y.w).set("channels_fastest", y.sc == 1 && y.c > 1 ? 1 : 0);
    set_strides(step, 'x', x);
    set_strides(step, 'y', y);
  }
  const int64_t each = planes && is_half_width(arrays.storage) ? 2 : 1;
  node.add(step.threads(static_cast<uint64_t>(ceil_div(y.elements() / unit, each))).build());
}

}  // namespace

bool pack_instance_norm(const PackContext& node, size_t input, PackedWeight& packed) {
  if (input != 1 && input != 2) return false;
  pack_floats(node, input, 1, packed);
  return true;
}

namespace {

// Register caching of pixels in channels-last layout: a team processes four channels of a batch item.
struct HeldChannels {
  int64_t team, teams, held;
  bool halves;
};

constexpr int64_t kLeastTeam = 128, kMostTeams = 4;
constexpr int64_t kStretch = 1024;  // number of pixels that a team of kLeastTeam caches when it processes part of an image

// Whether the channels-last kernels, in which a team processes four contiguous channels, support this node: no mixed dtypes.
bool has_teams_of_channels(const LowerContext& node, const Planes& x, const Planes& y) {
  const bool is_dense = x.sh == x.w * x.sw && y.sh == y.w * y.sw;
  const DType dtype = node.input(0).dtype;
  if (node.output(0).dtype != dtype || node.residual_dtype(dtype) != dtype) return false;
  return !node.prefers_lanes() && is_dense && x.has_vector_channels(4) && y.has_vector_channels(4) && begins_in_fours(node);
}

std::optional<HeldChannels> held_channels(const LowerContext& node, const Planes& x) {
  constexpr int64_t kFewHeld = 8, kMostHeld = 8, kMostHalves = 16;
  const bool halves = is_half_width(node.input(0).dtype);
  const int64_t pixels = x.h * x.w, fours = x.c / 4, most_held = halves ? kMostHalves : kMostHeld, largest = node.most_invocations();
  // Teams of a workgroup share memory sectors. Use several only if enough workgroups remain to fill the device.
  for (int64_t teams = node.subgroup() > 0 ? kMostTeams : 1; teams >= 1; teams /= 2) {
    if (teams > 1 && (fours % teams != 0 || x.n * fours / teams < node.multiprocessors())) continue;
    int64_t team = kLeastTeam;
    while (team * 2 * teams <= largest && ceil_div(pixels, team) > kFewHeld) team *= 2;
    const auto held = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(ceil_div(pixels, team))));
    if (team * teams <= largest && held <= most_held) return HeldChannels{team, teams, held, halves};
  }
  return {};
}

// Normalises each channel of a batch item in one dispatch.
void add_held_channels(LowerContext& node, const Planes& x, const Planes& y, const HeldChannels& how, double epsilon) {
  const auto number = [](int64_t value) { return std::to_string(value) + "u"; };
  Macros macros = {{"TEAM", number(how.team)},
                   {"TEAMS", number(how.teams)},
                   {"HELD", number(how.held)},
                   {"HOLDS_HALVES", flag(how.halves)},
                   {"SUBGROUP", std::to_string(node.subgroup())},
                   {"EPILOGUE(x)", node.epilogue()}};
  tell_residual(node, macros);
  StepBuilder step(node.kernel("norm_nhwc_registers.comp", node.input(0).dtype, macros));
  bind_residual(node, step);
  step.bind("x", node.in(0)).bind("y", node.out(0)).bind("scale", node.packed(1)).bind("bias", node.packed(2));
  step.set("images", x.n).set("fours", x.c / 4).set("pixels", x.h * x.w).set("epsilon", epsilon);
  step.set("x_stride_n", x.sn).set("x_stride_w", x.sw).set("y_stride_n", y.sn).set("y_stride_w", y.sw);
  node.tell_additions(how.held + meeting_additions(how.team, node.subgroup(), false));
  node.add(step.groups(static_cast<uint64_t>(ceil_div(x.n * x.c / 4, how.teams))).build());
}

// Partial statistics over chunks of pixels: vec2s of [batch][chunks][channels or groups].
struct Stretches {
  Operand parts;
  int64_t pixels, count;  // pixels per chunk, and chunks per image
};

// Adds partial statistics for channels-last images: a team processes four channels and caches a chunk's pixels in registers.
Stretches add_channel_parts(LowerContext& node, const Planes& x) {
  const int64_t fours = x.c / 4, pixels = x.h * x.w, stretch = kStretch, count = ceil_div(pixels, stretch), units = x.n * count * fours;
  int64_t teams = node.subgroup() > 0 ? kMostTeams : 1;  // teams per workgroup, which share memory sectors
  while (teams > 1 && (fours % teams != 0 || units / teams < node.multiprocessors() || teams * kLeastTeam > node.most_invocations()))
    teams /= 2;
  const auto number = [](int64_t value) { return std::to_string(value) + "u"; };
  const Operand parts = node.temporary(static_cast<uint64_t>(x.n * count * x.c) * 8);
  StepBuilder step(node.kernel("norm_nhwc_statistics.comp", node.input(0).dtype,
                               {{"TEAM", number(kLeastTeam)},
                                {"TEAMS", number(teams)},
                                {"HELD", number(kStretch / kLeastTeam)},
                                {"SUBGROUP", std::to_string(node.subgroup())}}));
  step.bind("x", node.in(0)).bind("y", parts).set("images", x.n).set("fours", fours).set("pixels", pixels).set("stretches", count);
  step.set("x_stride_n", x.sn).set("x_stride_w", x.sw);
  node.add(step.groups(static_cast<uint64_t>(ceil_div(units, teams))).build());
  return {parts, stretch, count};
}

// Normalises channels-last images with partial statistics, which each workgroup merges for its channels.
void add_channel_apply(LowerContext& node, const Planes& x, const Planes& y, const Stretches& stretches, double epsilon) {
  constexpr int64_t kHeld = 4, kPixels = 64 * kHeld, kFours = 4;  // number of pixels and of vec4s of channels per workgroup
  Macros macros = {{"HELD", std::to_string(kHeld) + "u"}, {"SUBGROUP", std::to_string(node.subgroup())}, {"EPILOGUE(x)", node.epilogue()}};
  tell_residual(node, macros);
  StepBuilder step(node.kernel("norm_nhwc_apply.comp", node.input(0).dtype, macros));
  bind_residual(node, step);
  step.bind("x", node.in(0)).bind("parts", stretches.parts).bind("scale", node.packed(1)).bind("bias", node.packed(2));
  step.bind("y", node.out(0)).set("images", x.n).set("fours", x.c / 4).set("pixels", x.h * x.w).set("epsilon", epsilon);
  step.set("stretch", stretches.pixels).set("stretches", stretches.count);
  step.set("x_stride_n", x.sn).set("x_stride_w", x.sw).set("y_stride_n", y.sn).set("y_stride_w", y.sw);
  node.add(step.groups(static_cast<uint64_t>(x.n * ceil_div(x.h * x.w, kPixels) * ceil_div(x.c / 4, kFours))).build());
}

// Normalises each of `groups` channel groups of a batch item; groups of several channels are dense.
void add_group_norm(LowerContext& node, const Planes& x, const Planes& y, int64_t groups) {
  const int64_t channels = x.c / groups, pixels = channels * x.h * x.w;
  const double epsilon = node.attributes->real("epsilon", 1e-5);
  const Operand scale = node.packed(1), bias = node.packed(2);
  const bool quads = has_quad_planes(node, x) && !node.prefers_lanes();
  if (const auto held = quads && channels <= kMostHeldChannels ? held_rows(node, pixels, true) : std::nullopt) {
    Macros macros = {{"CHANNELS", channels == 1 ? "1" : "2"},
                     {"HAS_BIAS", "1"},
                     {"CENTRED", "1"},
                     {"EPILOGUE(x)", node.epilogue()},
                     {"MOST_CHANNELS", std::to_string(kMostHeldChannels)}};
    tell_residual(node, macros);
    StepBuilder step = held_step(node, *held, "layer_norm_registers.comp", macros, x.n * groups, pixels);
    bind_residual(node, step);
    step.bind("scale", scale).bind("bias", bias).set("groups", groups).set("epsilon", epsilon);
    const double plane = static_cast<double>(x.h * x.w) / 4;  // it is a multiple of four if there are several channels
    node.tell_additions(held_additions(node, *held));
    return node.add(step.set("channels", channels).set("plane_inverse", 1 / plane).build());
  }
  if (groups == x.c && has_teams_of_channels(node, x, y)) {
    constexpr int64_t kMostMerged = 64,
                      kFewStretches =
                          8;  // maximum number of chunks that every workgroup merges; number of chunks that a team can also process alone
    const bool has_few = ceil_div(x.h * x.w, kStretch) <= kMostMerged && node.most_invocations() >= 256;
    // A few teams with large images would leave most of a device idle.
    const bool is_idle = x.h * x.w > kFewStretches * kStretch && x.n * x.c < node.multiprocessors();
    const auto held = has_few && is_idle ? std::nullopt : held_channels(node, x);
    if (held) return add_held_channels(node, x, y, *held, epsilon);
    if (has_few) return add_channel_apply(node, x, y, add_channel_parts(node, x), epsilon);
  }
  // Planes are split into chunks, so that one large plane still occupies many invocations; partial statistics are merged afterwards. Chunks
  // of 60,000 stay below the 65,535 iterations after which lavapipe ends a loop.
  const int64_t least = quads ? kFewestInStretch : node.prefers_lanes() ? 64 : kFewestPixels;
  const int64_t most = node.prefers_lanes() || quads ? kMostStretches : kMostStretches * 4;
  const int64_t stretch = round_up(std::clamp<int64_t>(ceil_div(pixels, most), std::min(pixels, least), 60000), 4);
  const int64_t stretches = ceil_div(pixels, stretch);
  const Operand parts = node.temporary(static_cast<uint64_t>(x.n * stretches * groups) * 8),
                factors = node.temporary(static_cast<uint64_t>(x.n * x.c) * 16);
  StepBuilder statistics(
      node.kernel("norm_statistics.comp", node.input(0).dtype, {{"PLANES", flag(quads)}, {"SUBGROUP", std::to_string(node.subgroup())}}));
  statistics.bind("x", node.in(0))
      .bind("y", parts)
      .set("images", x.n)
      .set("channels", groups)
      .set("pixels", pixels)
      .set("stretch", stretch)
      .set("stretches", stretches);
  if (!quads) {
    const Planes rows = channels == 1 ? x : Planes{x.n, groups, 1, pixels, x.sn, channels * x.sc, 0, 1};
    statistics.set("width", rows.w);
    set_strides(statistics, 'x', rows);
  }
  const auto units = static_cast<uint64_t>(x.n * stretches * groups);
  node.add((quads ? statistics.groups(units) : statistics.threads(units)).build());
  constexpr int64_t kInGroup = 64, kTeam = 16;  // workgroup size, and size of the smallest team that shares chunks
  const int64_t team = node.prefers_lanes() || stretches <= kTeam ? 1 : stretches <= kInGroup ? kTeam : kInGroup;
  StepBuilder combine(
      node.kernel("norm_combine.comp", DType::float32, {{"TEAM", std::to_string(team)}, {"SUBGROUP", std::to_string(node.subgroup())}}));
  combine.bind("x", parts).bind("scale", scale).bind("bias", bias).bind("y", factors);
  combine.set("images", x.n).set("channels", x.c).set("groups", groups).set("pixels", pixels).set("stretch", stretch);
  combine.set("stretches", stretches);
  combine.set("epsilon", epsilon);
  const auto factors_made = static_cast<uint64_t>(x.n * x.c);
  if (team == 1)
    node.add(combine.threads(factors_made).build());
  else
    node.add(combine.groups(ceil_div(factors_made, static_cast<uint64_t>(kInGroup / team))).build());
  add_apply(node, x, y, factors, x.c);
}

}  // namespace

void lower_instance_norm(LowerContext& node) {
  const Planes x = planes_of(node, node.input(0)), y = planes_of(node, node.output(0));
  if (x.elements() != 0) add_group_norm(node, x, y, x.c);
}

bool pack_batch_norm(const PackContext& node, size_t input, PackedWeight& packed) {
  if (input == 0) return false;
  pack_floats(node, input, 1, packed);
  return true;
}

void lower_batch_norm(LowerContext& node) {
  const Planes x = planes_of(node, node.input(0)), y = planes_of(node, node.output(0));
  if (x.elements() == 0) return;
  const Operand factors = node.temporary(static_cast<uint64_t>(x.c) * 16);
  StepBuilder step(node.kernel("batch_norm_factors.comp", DType::float32));
  step.bind("scale", node.packed(1))
      .bind("bias", node.packed(2))
      .bind("mean", node.packed(3))
      .bind("variance", node.packed(4))
      .bind("y", factors);
  node.add(step.set("channels", x.c).set("epsilon", node.attributes->real("epsilon", 1e-5)).threads(static_cast<uint64_t>(x.c)).build());
  add_apply(node, x, y, factors, 0);
}

// Layer normalisation in several passes, if scale or bias broadcast or rows exceed the kernel's limit.
static void lower_broadcast_norm(LowerContext& node, bool centred) {
  Composition parts(node);
  Piece from = parts.input(0);
  std::vector<int64_t> axes;
  int64_t count = 1;
  for (int64_t axis = axis_of(node, -1); axis < from.desc.rank(); ++axis) {
    axes.push_back(axis);
    count *= from.desc.shape[static_cast<size_t>(axis)];
  }
  if (centred) {
    const Piece distance = parts.scratch(DType::float32, from.desc.shape), mean = parts.reduce("ReduceMean", from, axes);
    parts.map("a0 - a1", {from, mean}, distance);
    if (node.has_output(1)) parts.map("a0", {mean}, parts.output(1));
    from = distance;
  }
  const Piece squares = parts.reduce("ReduceSumSquare", from, axes);
  const auto root = [&](const std::string& sum) {
    return "sqrt(" + sum + " / " + std::to_string(count) + ".0 + " + real_text(node.attributes->real("epsilon", 1e-5), 17) + ")";
  };
  if (node.has_output(2)) parts.map("1 / " + root("a0"), {squares}, parts.output(2));
  const auto packed = [&](size_t i) { return Piece{TensorDesc(DType::float32, node.input(i).shape), node.packed(i)}; };
  std::vector<Piece> operands{from, squares, packed(1)};
  if (node.has_input(2)) operands.push_back(packed(2));
  parts.map("a0 / " + root("a1") + (node.has_input(2) ? " * a2 + a3" : " * a2"), operands, parts.output(0), true);
}

bool pack_layer_norm(const PackContext& node, size_t input, PackedWeight& packed) {
  if (input != 1 && input != 2) return false;
  pack_floats(node, input, 1, packed);
  return true;
}

void lower_layer_norm(LowerContext& node) {
  const TensorDesc &x = node.input(0), &y = node.output(0);
  if (x.elements() == 0) return;
  if (!x.is_packed() || !y.is_packed())
    throw UnsupportedError("node '" + std::string(node.node) + "': layer normalisation of a strided tensor");
  int64_t size = 1;
  for (size_t i = static_cast<size_t>(axis_of(node, -1)); i < x.shape.size(); ++i) size *= x.shape[i];
  const bool has_bias = node.has_input(2), centred = node.row->form == kCentredNorm;
  const int64_t iterations = size / 8 * 3 + 16, row_bytes = size * static_cast<int64_t>(bits(x.dtype)) / 8;
  const bool is_long = iterations > node.loop_limit().value_or(iterations) || row_bytes > largest_range(*node.context);
  const bool broadcasts = node.input(1).elements() != size || (has_bias && node.input(2).elements() != size);
  if (broadcasts || (is_long && !node.has_output(1) && !node.has_output(2))) return lower_broadcast_norm(node, centred);
  Macros macros = {{"HAS_BIAS", flag(has_bias)},
                   {"CENTRED", flag(centred)},
                   {"HAS_MEAN", flag(node.has_output(1))},
                   {"HAS_DEVIATION", flag(node.has_output(2))},
                   {"EPILOGUE(x)", node.epilogue()}};
  for (const size_t i : {1, 2}) {
    if (!node.has_output(i)) continue;
    const bool wide = node.output(i).dtype == DType::float32;
    macros.emplace_back("STATISTIC", wide ? "float" : "sfp");
    macros.emplace_back("STORE_STATISTIC(t, i, v)", wide ? "t[i] = (v)" : "pm_store(t, i, v)");
    if (node.has_output(1)) break;  // both outputs have the same dtype
  }
  const int64_t rows = x.elements() / size;
  const auto finish = [&](StepBuilder step) {
    step.bind("scale", node.packed(1)).set("epsilon", node.attributes->real("epsilon", 1e-5));
    if (has_bias) step.bind("bias", node.packed(2));
    if (node.has_output(1)) step.bind("mean_of", node.out(1));
    if (node.has_output(2)) step.bind("deviation_of", node.out(2));
    node.add(step.build());
  };
  if (const auto held = held_rows(node, size, true)) {
    constexpr int64_t kMostHeld = 8,
                      kFewElements =
                          1 << 21;  // maximum number of vec4s per invocation; number of elements below which much of the device is idle
    macros.emplace_back("CHANNELS", "0");
    macros.emplace_back("EARLY", flag(held->held <= kMostHeld && x.elements() <= kFewElements));
    node.tell_additions(held_additions(node, *held));
    return finish(held_step(node, *held, "layer_norm_registers.comp", macros, rows, size));
  }
  node.check_loops(iterations);
  macros.emplace_back("LANES", flag(node.prefers_lanes()));
  const bool is_short = has_short_rows(node, size);
  macros.emplace_back("SHORT", flag(is_short));
  const MixedArrays arrays = mixed_arrays({{"X", x.dtype}, {"Y", y.dtype}});
  arrays.tell(macros);
  const auto kernel = node.kernel("layer_norm.comp", arrays.storage, macros);
  node.tell_additions(row_additions(node, *kernel, is_short, size));
  StepBuilder step(kernel);
  step.bind("x", node.in(0)).bind("y", node.out(0)).set("rows", rows).set("size", size).groups(row_groups(*kernel, is_short, rows));
  finish(std::move(step));
}

void lower_group_norm(LowerContext& node) {
  const TensorDesc& x = node.input(0);
  if (x.elements() == 0) return;
  if (!x.is_packed() || !node.output(0).is_packed())
    throw UnsupportedError("node '" + std::string(node.node) + "': expected a dense input and output, given " + to_string(x) + " and " +
                           to_string(node.output(0)));
  add_group_norm(node, planes_of(node, x), planes_of(node, node.output(0)), node.attributes->integer("num_groups"));
}

void lower_mean_variance_norm(LowerContext& node) {
  if (node.input(0).elements() == 0) return;
  Composition parts(node);
  const Piece from = parts.input(0);
  std::vector<int64_t> axes = node.attributes->integers("axes");
  int64_t count = 1;
  for (int64_t& axis : axes) {
    if (axis < 0) axis += from.desc.rank();
    count *= from.desc.shape[static_cast<size_t>(axis)];
  }
  const Piece mean = parts.reduce("ReduceMean", from, axes), distance = parts.scratch(DType::float32, from.desc.shape);
  parts.map("a0 - a1", {from, mean}, distance);
  const Piece power = parts.reduce("ReduceSumSquare", distance, axes);
  parts.map("a0 / (sqrt(a1 / " + std::to_string(count) + ".0) + 0.000000001)", {distance, power}, parts.output(0), true);
}

void lower_lp_norm(LowerContext& node) {
  if (node.input(0).elements() == 0) return;
  Composition parts(node);
  const Piece from = parts.input(0);
  const Piece norm = parts.reduce(node.attributes->integer("p", 2) == 1 ? "ReduceL1" : "ReduceL2", from, {axis_of(node, -1)});
  parts.map("a1 == 0 ? 0 : a0 / a1", {from, norm}, parts.output(0), true);
}

// The mean of squares over adjacent channels is an average pooling with the channels as rows.
void lower_lrn(LowerContext& node) {
  const TensorDesc& x = node.input(0);
  if (x.elements() == 0) return;
  Composition parts(node);
  const int64_t size = node.attributes->integer("size"), channels = x.shape[1];
  const Shape rows{x.shape[0], 1, channels, x.elements() / x.shape[0] / channels};
  const Piece from = parts.input(0).seen_as(rows), squares = parts.scratch(DType::float32, rows),
              means = parts.scratch(DType::float32, rows);
  parts.map("a0 * a0", {from}, squares);
  Attributes window;
  window.set("kernel_shape", std::vector<int64_t>{size, 1});
  window.set("pads", std::vector<int64_t>{(size - 1) / 2, 0, size / 2, 0});
  window.set("count_include_pad", int64_t{1});
  parts.add("AveragePool", window, {squares}, means);
  const auto number = [&](std::string_view name) { return real_text(node.attributes->real(name), 17); };
  parts.map("a0 / pow(" + number("bias") + " + " + number("alpha") + " * a1, " + number("beta") + ")", {from, means},
            parts.output(0).seen_as(rows), true);
}

}  // namespace pumice
