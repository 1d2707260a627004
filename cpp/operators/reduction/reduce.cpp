// Lowers reductions over axes.
#include "operators/reduction/reduce.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "core/error.h"
#include "core/rounding.h"
#include "operators/common/composite_lowering.h"
#include "operators/common/row_registers.h"
#include "operators/expression/expression.h"
#include "operators/reduction/lowerings.h"
#include "operators/table/operator_table.h"

namespace pumice {
namespace {

constexpr size_t kFoldRank = 4;
constexpr int64_t kMaxPerThread =
    4096;  // maximum number of elements per invocation; hierarchical sums have smaller rounding errors than one long sum
constexpr int64_t kMaxPerGroup = 65536;  // maximum number of elements per workgroup
constexpr int64_t kWorkgroupSize = 256;  // workgroup size, if the device supports it
constexpr int64_t kSmallGroup = 16;      // number of invocations that share a short row or a column
constexpr int64_t kFp16Group = 64, kMinForFp16Workgroup = 16384;
constexpr int64_t kMinForSmallGroup = 32, kMinForWorkgroup = 1024;  // minimum row size for kSmallGroup threads, and for a whole workgroup
constexpr int64_t kManyInvocations = 262144;                        // number of invocations that fill a large GPU

// GLSL integer type with its minimum and maximum.
struct GlslInteger {
  std::string type, lowest, highest;
};

const GlslInteger& get_glsl_integer(DType dtype) {
  static const std::map<DType, GlslInteger> glsl_types = {
      {DType::int8, {"int", "-128", "127"}},
      {DType::uint8, {"uint", "0u", "255u"}},
      {DType::bool_, {"uint", "0u", "1u"}},
      {DType::int16, {"int", "-32768", "32767"}},
      {DType::uint16, {"uint", "0u", "65535u"}},
      {DType::int32, {"int", "(-2147483647 - 1)", "2147483647"}},
      {DType::uint32, {"uint", "0u", "4294967295u"}},
      {DType::int64, {"int64_t", "(-9223372036854775807l - 1l)", "9223372036854775807l"}},
      {DType::uint64, {"uint64_t", "0ul", "18446744073709551615ul"}},
  };
  return glsl_types.at(dtype);
}

constexpr char kLogSumExpStart[] = "vec2(uintBitsToFloat(0xff800000u), 0.0)";  // initial state of log-sum-exp

// Returns the fold of log-sum-exp. Its accumulator consists of the running maximum and the sum of exponentials relative to the maximum.
FoldGlsl make_log_sum_exp_fold(bool is_fp64) {
  const std::string accumulator = is_fp64 ? "dvec2" : "vec2", start = is_fp64 ? "dvec2(double(-pm_infinity), 0.0LF)" : kLogSumExpStart;
  return {accumulator, start, "pm_add_exponential(s, v)", "pm_merge_exponentials(s, t)", "((s).x + pm_log((s).y))"};
}

// Returns the initial value of a fold as GLSL; `accumulator` is its type, such as "int".
std::string emit_initial_value(FoldInitialValue start, DType dtype, const std::string& accumulator) {
  const bool lowest = start == FoldInitialValue::lowest;
  if (start == FoldInitialValue::zero || start == FoldInitialValue::one)
    return accumulator + (start == FoldInitialValue::one ? "(1)" : "(0)");
  if (dtype == DType::float64) return lowest ? "double(-pm_infinity)" : "double(pm_infinity)";
  if (is_float(dtype)) return lowest ? "uintBitsToFloat(0xff800000u)" : "uintBitsToFloat(0x7f800000u)";
  return lowest ? get_glsl_integer(dtype).lowest : get_glsl_integer(dtype).highest;
}

// Returns the GLSL of a fold. It becomes the bodies of macros with arguments s, v, t and n, which may be expressions and so need
// parentheses.
FoldGlsl emit_fold_glsl(const ReductionFold& fold, DType dtype) {
  if (fold.log_sum_exp) return make_log_sum_exp_fold(dtype == DType::float64);
  const ExprType type = to_expr_type(dtype == DType::bool_ ? DType::uint8 : dtype);
  const std::string accumulator(get_glsl_type_name(type)), count = accumulator + "(n)";
  const std::map<std::string, Expression> names{
      {"s", Expression::name("(s)")}, {"v", Expression::name("(v)")}, {"t", Expression::name("(t)")}, {"n", Expression::name(count)}};
  const std::map<std::string, ExprType> types{{"(s)", type}, {"(v)", type}, {"(t)", type}, {count, type}};
  const auto glsl = [&](std::string_view expression) { return Expression::parse(expression).substitute(names).to_glsl(types); };
  return {accumulator, emit_initial_value(fold.start, dtype, accumulator), glsl(fold.step), glsl(fold.merge), glsl(fold.finish)};
}

}  // namespace

uint64_t get_accumulator_bytes(const FoldGlsl& fold) {
  static const std::map<std::string_view, uint64_t> others = {{"vec2", 8},   {"uvec2", 8},   {"uvec4", 16},  {"dvec2", 16},
                                                              {"double", 8}, {"int64_t", 8}, {"uint64_t", 8}};
  const auto found = others.find(fold.accumulator);
  return found == others.end() ? 4 : found->second;
}

namespace {

// Returns the GLSL type of the expression FoldGlsl::finish.
std::string get_result_type(const FoldGlsl& fold) {
  if (!fold.result.empty()) return fold.result;
  return fold.accumulator == "vec2" ? "float" : fold.accumulator == "dvec2" ? "double" : fold.accumulator;
}

// Returns GLSL for the integer key by which ArgMax and ArgMin compare an element v. ArgMin inverts the order of the keys.
std::string emit_sort_key(DType dtype, bool is_min) {
  if (is_float(dtype)) return "pm_key(v)";
  const bool is_64bit = bits(dtype) == 64, is_signed = is_signed_integer(dtype) || bits(dtype) < 32;
  const std::string key = (is_64bit ? "int64_t(v)" : "int(v)") + std::string(is_signed ? "" : is_64bit ? " ^ (1l << 63)" : " ^ (1 << 31)");
  return is_min ? "~(" + key + ")" : key;
}

}  // namespace

Macros make_element_macros(const std::string& array, DType dtype) {
  const bool is_packed = !is_float(dtype) && bits(dtype) < 32, is_16bit = is_16bit_float(dtype), is_64bit = dtype == DType::float64;
  const std::string width = std::to_string(bits(dtype));
  const std::string declared = is_16bit          ? "sfp"
                               : is_64bit        ? "double"
                               : is_float(dtype) ? "float"
                               : is_packed       ? "uint"
                                                 : get_glsl_integer(dtype).type;
  if (array == "x") {
    const std::string load = is_16bit    ? "pm_load(x, i)"
                             : is_packed ? "pm_load_" + std::string(is_signed_integer(dtype) ? "i" : "u") + width + "(x, i)"
                                         : "x[i]";
    return {{"X_TYPE", declared}, {"LOAD(i)", load}};
  }
  const std::string store = is_16bit ? "pm_store(y, i, v)" : is_packed ? "pm_store_u" + width + "(y, i, v)" : "y[i] = (v)";
  return {{"Y_TYPE", declared}, {"STORE(i, v)", store}};
}

Macros make_64bit_macros(std::string_view accumulator) {
  Macros macros;
  if (accumulator.find("64") != std::string_view::npos) macros.emplace_back("PM_HAS_INT64", "1");
  if (accumulator == "double" || accumulator == "dvec2") macros.emplace_back("PM_HAS_FLOAT64", "1");
  return macros;
}

namespace {

// GLSL of a vector load: the type of the array's elements, the load, and the expression for element j of the loaded vector `h`.
struct VectorLoad {
  int64_t elements;
  std::string declared, load, element_access;
};

// Returns the vector loads that the fold supports for aligned rows, widest first.
std::vector<VectorLoad> list_vector_loads(const LowerContext& node, const FoldGlsl& fold, bool first) {
  const std::string load_vec4 = "x[(i) >> 2]", pick_element = "(h)[j]";
  if (!first)
    return fold.accumulator == "float" ? std::vector<VectorLoad>{{4, "vec4", load_vec4, pick_element}} : std::vector<VectorLoad>{};
  std::vector<VectorLoad> loads;
  const DType x = node.input(0).dtype;
  if (is_16bit_float(x)) {
    if (node.input_misalignment(0) == 0) loads.push_back({8, "uvec4", "x[(i) >> 3]", "pm_unpack_halves((h)[(j) / 2u])[(j) % 2u]"});
    if (is_vec4_aligned(node)) loads.push_back({4, "sfpvec4", "pm_load_vec4(x, (i) >> 2)", pick_element});
  } else if (is_vec4_aligned(node)) {
    if (x == DType::float32) loads.push_back({4, "vec4", load_vec4, pick_element});
    if (x == DType::int32) loads.push_back({4, "ivec4", load_vec4, pick_element});
    if (x == DType::uint32) loads.push_back({4, "uvec4", load_vec4, pick_element});
  }
  return loads;
}

struct ReduceStage {
  Operand x, y;
  IndexSpace kept, reduced;
  bool first = true, last = false;
  bool aligned = true;  // x has the alignment of the node's input
  int64_t splits = 1, split_size = 1, split_stride = 1;
  int64_t group = kWorkgroupSize;              // workgroup size
  int64_t group_threads = 1;                   // number of invocations that compute one result
  bool columns = false;                        // adjacent invocations compute adjacent results
  std::optional<VectorLoad> vector_load = {};  // vector load per invocation; nullopt: scalar

  int64_t load_width() const { return vector_load ? vector_load->elements : 1; }
  // Returns the number of additions per element: within an invocation, then within its thread group.
  int64_t count_additions(const NodeContext& node) const {
    const int64_t elements_per_load = columns ? 1 : load_width(),
                  each = ceil_div(split_size, group_threads * elements_per_load) * elements_per_load;
    if (group_threads == 1) return each;
    return each + (columns ? group_threads - 1 : count_reduction_additions(group_threads, node.subgroup_size(), false));
  }
};

// Whether the strides of the first `axes` axes are multiples of `count`.
bool have_strides_multiple_of(const IndexSpace& space, size_t axes, int64_t count) {
  for (size_t axis = 0; axis < axes; ++axis)
    if (space.sizes[axis] != 1 && space.strides[0][axis] % count != 0) return false;
  return true;
}

// Returns how many invocations reduce a row. With fp16, each invocation reduces more elements if there are enough rows to fill the device.
int64_t choose_row_group_threads(int64_t rows, int64_t size, bool is_fp16, int64_t group) {
  if (size < kMinForSmallGroup) return 1;
  if (size < kMinForWorkgroup) return kSmallGroup;
  return is_fp16 && size < kMinForFp16Workgroup && rows * kFp16Group >= kManyInvocations / 4 ? kFp16Group : group;
}

// Chooses how many invocations compute a result, and their vector loads.
void choose_thread_group(const LowerContext& node, const FoldGlsl& fold, ReduceStage& stage) {
  const int64_t size = stage.reduced.elements(), step = stage.reduced.strides[0].back();
  stage.columns = stage.kept.strides[0].back() == 1 && stage.kept.sizes.back() >= kMinColumns && step != 1;
  const bool is_fp16 = stage.first && is_16bit_float(node.input(0).dtype);
  stage.group = node.workgroup_size(node.prefers_cpu_kernels() ? 64 : kWorkgroupSize);
  stage.group_threads = node.prefers_cpu_kernels() ? 1
                        : stage.columns            ? (is_fp16 ? kSmallGroup / 2 : kSmallGroup)
                                                   : choose_row_group_threads(stage.kept.elements(), size, is_fp16, stage.group);
  const IndexSpace &across = stage.columns ? stage.kept : stage.reduced, &along = stage.columns ? stage.reduced : stage.kept;
  // On CPU devices, an invocation processes a single column, which uses the caches better.
  if (!stage.aligned || across.strides[0].back() != 1 || (stage.columns && stage.group_threads == 1)) return;
  for (const VectorLoad& candidate : list_vector_loads(node, fold, stage.first)) {
    const int64_t count = candidate.elements;
    if (across.sizes.back() % count != 0 || !have_strides_multiple_of(across, kFoldRank - 1, count) ||
        !have_strides_multiple_of(along, kFoldRank, count))
      continue;
    stage.vector_load = candidate;
    return;
  }
}

// Returns how many elements of a result one thread group reduces: all of them, or fewer if there would be too few thread groups or each
// would take too long.
int64_t choose_split_size(const ReduceStage& stage) {
  const int64_t results = stage.kept.elements(), size = stage.reduced.elements();
  if (stage.group_threads > 1 && stage.group_threads < stage.group && !stage.columns) return size;
  const bool is_group = stage.group_threads == stage.group, is_column = stage.columns && stage.group_threads > 1;
  const int64_t max_size = is_group ? kMaxPerGroup : kMaxPerThread, min_size = is_group ? 8 * stage.group : 256;
  const int64_t target_splits = is_group    ? 256
                                : is_column ? kManyInvocations * stage.load_width() / stage.group_threads
                                            : 64;  // target number of results times splits
  if (size <= min_size) return std::max<int64_t>(size, 1);
  return round_up(std::clamp(size * results / target_splits, min_size, std::min(max_size, size)), std::max<int64_t>(stage.load_width(), 4));
}

void add_reduce_stage(LowerContext& node, const FoldGlsl& fold, const ReduceStage& stage, int64_t count) {
  const DType x = node.input(0).dtype, y = node.output(0).dtype;
  Macros macros = {{"ACCUMULATOR", fold.accumulator}, {"START", fold.start}, {"MERGE(s, t)", fold.merge}};
  const auto append = [&](const Macros& more) { macros.insert(macros.end(), more.begin(), more.end()); };
  if (stage.vector_load)
    append({{"X_TYPE", stage.vector_load->declared},
            {"LOAD_TYPE", stage.vector_load->declared == "sfpvec4" ? "vec4" : stage.vector_load->declared},
            {"LOAD_VECTOR(i)", stage.vector_load->load},
            {"GET_ELEMENT(h, j)", stage.vector_load->element_access}});
  else
    append(stage.first ? make_element_macros("x", x) : Macros{{"X_TYPE", fold.accumulator}, {"LOAD(i)", "x[i]"}});
  if (stage.last && !fold.store.empty())
    append({{"Y_TYPE", fold.y_type}, {"STORE(i, v)", fold.store}});
  else
    append(stage.last ? make_element_macros("y", y) : Macros{{"Y_TYPE", fold.accumulator}, {"STORE(i, v)", "y[i] = (v)"}});
  append({{"STEP(s, v, i)", stage.first ? fold.step : "MERGE(s, v)"},
          {"FINISH(s, n)", stage.last ? fold.finish : "(s)"},
          {"RESULT_TYPE", stage.last ? get_result_type(fold) : fold.accumulator},
          {"RESULT(v)", stage.last && is_operator_float(y) && fold.store.empty() ? "epilogue(v)" : "(v)"},
          {"EPILOGUE(x)", stage.last ? node.epilogue() : "x"}});
  append(fold.macros);
  const bool has_one_axis = stage.reduced.sizes[0] * stage.reduced.sizes[1] * stage.reduced.sizes[2] == 1;
  const bool searches_fp16 = fold.is_arg_reduce && stage.first && is_16bit_float(x);  // arg-reduce of 16-bit elements needs many registers
  const bool is_32bit = make_64bit_macros(fold.accumulator).empty();                  // 32-bit subgroup operations are supported everywhere
  append({{"ONE_AXIS", has_one_axis ? "1" : "0"},
          {"COLUMNS", stage.columns ? "1" : "0"},
          {"GROUP_THREADS", std::to_string(stage.group_threads)},
          {"VECTOR_WIDTH", std::to_string(stage.load_width())},
          {"EXPONENTIALS", stage.first && stage.vector_load && fold.start == kLogSumExpStart ? "1" : "0"},
          {"FLOAT_ARG_REDUCE", stage.first && stage.vector_load && fold.is_arg_reduce && is_operator_float(x) ? "1" : "0"},
          {"LOAD_UNROLL", searches_fp16                                                   ? "2u"
                          : stage.vector_load && stage.vector_load->declared == "sfpvec4" ? "8u"
                                                                                          : "4u"},
          {"SUBGROUP", std::to_string(is_32bit ? node.subgroup_size() : 0)},
          {"LOCAL_SIZE", std::to_string(stage.group)}});
  if (bits(x) == 64) append({{"PM_HAS_INT64", "1"}});
  if (x == DType::float64) append({{"PM_HAS_FLOAT64", "1"}});
  const DType stored = stage.first && is_16bit_float(x) ? x : stage.last ? y : DType::float32;
  StepBuilder step(node.kernel("reduce.comp", stored, macros));
  const int64_t results = stage.kept.elements(), thread_groups = stage.group / stage.group_threads;
  step.bind("x", stage.x).bind("y", stage.y).set("results", results).set("splits", stage.splits).set("split_size", stage.split_size);
  step.set("split_stride", stage.split_stride)
      .set("kept", stage.kept.sizes)
      .set("kept_stride", stage.kept.strides[0])
      .set("y_stride", stage.kept.strides[1])
      .set("reduced", stage.reduced.sizes)
      .set("reduced_stride", stage.reduced.strides[0]);
  step.set("size", stage.reduced.elements()).set("count", count);
  const int64_t groups = stage.columns ? stage.splits * ceil_div(results, thread_groups * stage.load_width())
                                       : ceil_div(results * stage.splits, thread_groups);
  node.add(step.set_workgroups(static_cast<uint64_t>(groups)).build());
}

std::vector<bool> find_reduced_axes(const LowerContext& node) {
  const TensorDesc& x = node.input(0);
  std::vector<int64_t> axes = node.attributes->integers("axes");
  if (node.has_input(1)) {
    const HostTensor* host = node.host_tensor(1);
    if (!host) throw UnsupportedError("node '" + std::string(node.node) + "': axes that are not known on the host");
    axes = host->as_int64();
  }
  const bool reduces_nothing = axes.empty() && node.attributes->integer("noop_with_empty_axes", 0) != 0;
  std::vector<bool> reduced(x.shape.size(), axes.empty() && !reduces_nothing);
  for (const int64_t axis : axes) reduced[static_cast<size_t>(axis < 0 ? axis + x.rank() : axis)] = true;
  return reduced;
}

// Returns the kept axes with strides of x and y, and the reduced axes with strides of x.
std::pair<IndexSpace, IndexSpace> partition_axes(const TensorDesc& x, const TensorDesc& y, const std::vector<bool>& reduced) {
  IndexSpace kept{{}, {{}, {}}}, folded{{}, {{}}};
  const bool keeps_axes = y.rank() == x.rank();
  size_t y_axis = 0;
  for (size_t axis = 0; axis < reduced.size(); ++axis) {
    IndexSpace& space = reduced[axis] ? folded : kept;
    space.sizes.push_back(x.shape[axis]);
    space.strides[0].push_back(x.strides[axis]);
    if (!reduced[axis]) kept.strides[1].push_back(y.strides[y_axis]);
    if (!reduced[axis] || keeps_axes) ++y_axis;
  }
  return {kept, folded};
}

}  // namespace

FoldGlsl make_fold_glsl(const NodeContext& node, const ReductionFold& fold, DType dtype) {
  if (!is_operator_float(dtype) && dtype != DType::float64 && (is_float(dtype) || bits(dtype) < 8))
    throw UnsupportedError("node '" + std::string(node.node) + "': a reduction of " + std::string(name(dtype)));
  if (!is_operator_float(dtype)) node.check_arithmetic(dtype);
  const DType computed = is_operator_float(dtype) ? DType::float32 : dtype;
  // Cached, because a node is lowered again for every new shape.
  static std::mutex mutex;
  static std::map<std::pair<const ReductionFold*, DType>, FoldGlsl> cache;
  const std::lock_guard lock(mutex);
  const auto found = cache.find({&fold, computed});
  return found != cache.end() ? found->second : cache.emplace(std::pair(&fold, computed), emit_fold_glsl(fold, computed)).first->second;
}

// Coalesces the axes for the kernel and determines the number of splits.
static void plan_reduce_stage(const LowerContext& node, const FoldGlsl& fold, ReduceStage& stage) {
  for (IndexSpace* space : {&stage.kept, &stage.reduced}) {
    space->coalesce();
    space->pad_to(kFoldRank, "node '" + std::string(node.node) + "'");
  }
  stage.vector_load.reset();
  choose_thread_group(node, fold, stage);
  stage.split_size = choose_split_size(stage);
  stage.splits = std::max<int64_t>(ceil_div(stage.reduced.elements(), stage.split_size), 1);
}

static int64_t compute_index_span(const IndexSpace& space) {
  int64_t span = 1;
  for (size_t axis = 0; axis < space.sizes.size(); ++axis) span += (space.sizes[axis] - 1) * std::abs(space.strides[0][axis]);
  return span;
}

// Splits the elements of a result into runs that span at most `max_span` elements of memory. Each run is stored with its element offset.
static void split_into_runs(IndexSpace space, int64_t first, int64_t max_span, std::vector<std::pair<IndexSpace, int64_t>>& runs) {
  constexpr int64_t kGrain = 256;  // runs start at multiples of this many elements, for vector loads
  size_t widest = 0;
  for (size_t axis = 1; axis < space.sizes.size(); ++axis)
    if (space.strides[0][axis] * (space.sizes[axis] - 1) > space.strides[0][widest] * (space.sizes[widest] - 1)) widest = axis;
  const int64_t size = space.sizes[widest];
  if (compute_index_span(space) <= max_span || size < 2) return runs.emplace_back(std::move(space), first), void();
  const int64_t half = size >= 2 * kGrain ? round_up(size / 2, kGrain) : size / 2;
  space.sizes[widest] = half;
  split_into_runs(space, first, max_span, runs);
  space.sizes[widest] = size - half;
  split_into_runs(space, first + half * space.strides[0][widest], max_span, runs);
}

// Reduces inputs that exceed one binding: each run of elements yields partial results, which a second stage reduces.
static void add_partial_folds(LowerContext& node, const FoldGlsl& fold, ReduceStage& whole) {
  const int64_t element_bits = bits(node.input(0).dtype), max_span = max_binding_bytes(*node.context) * 8 / element_bits;
  if (compute_index_span(whole.reduced) <= max_span || compute_index_span(whole.reduced) <= 1) return;
  std::vector<std::pair<IndexSpace, int64_t>> runs;
  split_into_runs(whole.reduced, 0, max_span, runs);
  std::vector<ReduceStage> stages;
  int64_t splits = 0;
  for (auto& [space, first] : runs) {
    ReduceStage& stage = stages.emplace_back(whole);
    stage.reduced = std::move(space);
    const int64_t bytes = ceil_div((compute_index_span(stage.kept) + compute_index_span(stage.reduced)) * element_bits, int64_t{8});
    stage.aligned = first * element_bits % 128 == 0;
    stage.x.byte_offset += static_cast<uint64_t>(first * element_bits / 8);
    stage.x.bytes = static_cast<uint64_t>(round_up(bytes, int64_t{16}));
    plan_reduce_stage(node, fold, stage);
    splits += stage.splits;
  }
  const int64_t results = whole.kept.elements();
  const uint64_t sum_bytes = get_accumulator_bytes(fold);
  Operand sums = node.add_temporary(static_cast<uint64_t>(results * splits) * sum_bytes);
  sums.element_bits = static_cast<uint32_t>(sum_bytes * 8);
  for (ReduceStage& stage : stages) {
    stage.y = sums;
    stage.kept.strides[1] = packed_strides(stage.kept.sizes);
    for (int64_t& stride : stage.kept.strides[1]) stride *= splits;
    stage.split_stride = 1;
    add_reduce_stage(node, fold, stage, whole.reduced.elements());
    sums.byte_offset += static_cast<uint64_t>(stage.splits) * sum_bytes;
  }
  sums.byte_offset = 0;
  const Strides y_strides = whole.kept.strides[1];
  Strides packed = packed_strides(whole.kept.sizes);
  for (int64_t& stride : packed) stride *= splits;
  whole.x = sums;
  whole.kept.strides = {packed, y_strides};
  whole.reduced = {{splits}, {{1}}};
  whole.first = false;
}

void add_fold(LowerContext& node, const FoldGlsl& fold, IndexSpace kept, IndexSpace reduced, const Operand& y) {
  const int64_t results = kept.elements(), count = reduced.elements();
  int64_t additions = 0;
  ReduceStage stage{node.input_operand(0), y, std::move(kept), std::move(reduced)};
  if (!fold.is_arg_reduce) add_partial_folds(node, fold, stage);
  const bool reports_additions = stage.first && fold.accumulator == "float";  // not reported if the runs have different sizes
  while (!stage.last) {
    plan_reduce_stage(node, fold, stage);
    stage.last = stage.splits == 1;
    // Partial results are contiguous in a row, and `results` elements apart in a column.
    const Strides y_strides = stage.kept.strides[1];
    Strides packed = packed_strides(stage.kept.sizes);
    stage.split_stride = stage.columns ? results : 1;
    if (!stage.columns)
      for (int64_t& stride : packed) stride *= stage.splits;
    if (!stage.last) stage.kept.strides[1] = packed;
    stage.y = stage.last ? y : node.add_temporary(static_cast<uint64_t>(results * stage.splits) * get_accumulator_bytes(fold));
    additions += stage.count_additions(node);
    add_reduce_stage(node, fold, stage, count);
    stage.x = stage.y;
    stage.kept.strides = {packed, y_strides};
    stage.reduced = {{stage.splits}, {{stage.split_stride}}};
    stage.first = false;
  }
  node.report_additions(reports_additions ? additions : kUnknownAdditions);
}

// Lowers a reduction of strided tensors with too many axes for the kernel by packing them first. Returns false if the axes merge to few
// enough.
static bool try_lower_via_packing(LowerContext& node, const std::vector<bool>& reduced, IndexSpace kept, IndexSpace folded) {
  kept.coalesce();
  folded.coalesce();
  if (std::max(kept.sizes.size(), folded.sizes.size()) <= kFoldRank) return false;
  Attributes attributes = *node.attributes;
  if (node.row->fold) {  // ArgMax and ArgMin already have their axis as an attribute
    std::vector<int64_t> axes;
    for (size_t axis = 0; axis < reduced.size(); ++axis)
      if (reduced[axis]) axes.push_back(static_cast<int64_t>(axis));
    attributes.set("axes", axes);
  }
  const Operand x = get_contiguous_input(node, 0), y = get_contiguous_output(node, 0);
  CompositeLowering(node).add_operator(node.row->name, attributes, {{node.input(0).packed(), x}}, {node.output(0).packed(), y}, true);
  copy_contiguous_output(node, 0, y);
  return true;
}

void lower_reduce(LowerContext& node) {
  const TensorDesc &x = node.input(0), &y = node.output(0);
  if (y.elements() == 0) return;
  const auto reduced = find_reduced_axes(node);
  const auto [kept, folded] = partition_axes(x, y, reduced);
  if (try_lower_via_packing(node, reduced, kept, folded)) return;
  add_fold(node, make_fold_glsl(node, *node.row->fold, x.dtype), kept, folded, node.output_operand(0));
}

void lower_arg_reduce(LowerContext& node) {
  const TensorDesc &x = node.input(0), &y = node.output(0);
  if (y.elements() == 0) return;
  const int64_t axis = node.attributes->integer("axis", 0);
  std::vector<bool> reduced(x.shape.size(), false);
  if (!reduced.empty()) reduced[static_cast<size_t>(axis < 0 ? axis + x.rank() : axis)] = true;
  const auto [kept, folded] = partition_axes(x, y, reduced);
  if (try_lower_via_packing(node, reduced, kept, folded)) return;
  node.check_arithmetic(x.dtype);
  const bool is_min = node.row->form == kArgMin, is_64bit = bits(x.dtype) == 64;
  FoldGlsl fold{is_64bit ? "uvec4" : "uvec2", is_64bit ? "uvec4(0u, 1u << 31, 0u, 0u)" : "uvec2(1u << 31, 0u)",
                "pm_update_arg_state(s, ARG_STATE(" + emit_sort_key(x.dtype, is_min) + ", i))", "pm_merge_arg_state(s, t)",
                is_64bit ? "(s).z" : "(s).y"};
  fold.y_type = "uvec2";  // int64, regardless of the element dtype
  fold.store = "y[i] = uvec2(v, 0u)";
  fold.result = "uint";
  fold.is_arg_reduce = true;
  fold.macros = {{"ARG_REDUCE", "1"},
                 {"KEYS_64BIT", is_64bit ? "1" : "0"},
                 {"IS_MIN", is_min ? "1" : "0"},
                 {"LAST", node.attributes->integer("select_last_index", 0) != 0 ? "true" : "false"}};
  add_fold(node, fold, kept, folded, node.output_operand(0));
}

}  // namespace pumice
