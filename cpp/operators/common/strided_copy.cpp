#include "operators/common/strided_copy.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>
#include <optional>

#include "core/error.h"
#include "core/rounding.h"

namespace pumice {
namespace {

constexpr size_t kKernelRanks[] = {1, 2, 3, 4, 6, 8};  // ranks that the kernel supports
constexpr size_t kPushWords = 32;
constexpr int64_t kVectorBits = 128;  // number of bits that an invocation loads or stores at once
constexpr size_t kBatchAxes = 4;      // maximum number of batch axes of a tiled transpose
constexpr int64_t kTileSide = 16;     // minimum side of a matrix for tiling, in elements

// A copy in units of the copy kernel: one copied element may consist of several adjacent tensor elements.
struct StridedCopy {
  IndexSpace space;  // axes with strides of x and y
  int64_t x_first, y_first;
  uint64_t x_misalignment, y_misalignment;
  int64_t bits;
  int64_t scale = 1;  // number of tensor elements per copied element

  const std::vector<int64_t>& x_strides() const { return space.strides[0]; }
  const std::vector<int64_t>& y_strides() const { return space.strides[1]; }
};

// Sorts axes by decreasing stride in the destination.
IndexSpace sort_by_dst_stride(const IndexSpace& space) {
  std::vector<size_t> order(space.sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return space.strides[1][a] > space.strides[1][b]; });
  IndexSpace sorted = space;
  for (size_t axis = 0; axis < order.size(); ++axis) {
    sorted.sizes[axis] = space.sizes[order[axis]];
    for (size_t t = 0; t < space.strides.size(); ++t) sorted.strides[t][axis] = space.strides[t][order[axis]];
  }
  return sorted;
}

bool are_divisible(std::span<const int64_t> values, int64_t n) {
  return std::all_of(values.begin(), values.end(), [n](int64_t value) { return value % n == 0; });
}

// Whether every row of the innermost axis consists of groups of n elements that are contiguous and aligned in both tensors.
bool is_vectorizable(const StridedCopy& copy, int64_t n) {
  const size_t inner = copy.space.sizes.size() - 1;
  const auto bytes = static_cast<uint64_t>(n * copy.bits / 8);
  return copy.x_strides()[inner] == 1 && copy.y_strides()[inner] == 1 && copy.space.sizes[inner] % n == 0 &&
         are_divisible(std::span(copy.x_strides()).first(inner), n) && are_divisible(std::span(copy.y_strides()).first(inner), n) &&
         copy.x_first % n == 0 && copy.y_first % n == 0 && copy.x_misalignment % bytes == 0 && copy.y_misalignment % bytes == 0;
}

// Merges contiguous elements into one, up to 128 bits.
void vectorize(StridedCopy& copy) {
  for (int64_t n = kVectorBits / copy.bits; n > 1 && n * copy.bits >= 32; n /= 2) {
    if (!is_vectorizable(copy, n)) continue;
    copy.space.sizes.back() /= n;
    for (auto& strides : copy.space.strides)
      for (size_t axis = 0; axis + 1 < strides.size(); ++axis) strides[axis] /= n;
    copy.space.coalesce();
    copy.x_first /= n;
    copy.y_first /= n;
    copy.bits *= n;
    copy.scale *= n;
    return;
  }
}

// Finds a group of m elements that is contiguous and aligned in the destination. Returns its extent on each axis; empty if there is none.
std::vector<int64_t> find_store_group(const StridedCopy& copy, int64_t m) {
  if (copy.y_first % m != 0 || copy.y_misalignment % static_cast<uint64_t>(m * copy.bits / 8) != 0) return {};
  const auto& sizes = copy.space.sizes;
  std::vector<int64_t> counts(sizes.size(), 1);
  int64_t group_size = 1;
  for (size_t axis = sizes.size(); axis-- > 0 && group_size < m;) {
    if (copy.y_strides()[axis] != group_size) return {};
    counts[axis] = std::gcd(m / group_size, sizes[axis]);
    group_size *= counts[axis];
    if (counts[axis] != sizes[axis]) break;
  }
  if (group_size < m) return {};
  for (size_t axis = 0; axis < sizes.size(); ++axis)
    if (counts[axis] != sizes[axis] && copy.y_strides()[axis] * counts[axis] % m != 0) return {};
  return counts;
}

// Returns the smallest rank for which there is a kernel and that is at least `rank`.
size_t round_up_rank(size_t rank) {
  for (const size_t supported : kKernelRanks)
    if (rank <= supported) return supported;
  return *std::rbegin(kKernelRanks);
}

size_t count_push_words(size_t rank) {
  return 5 + 3 * round_up_rank(rank);
}

// Groups adjacent destination elements, so that one invocation writes a group with a single store. Sizes and destination strides of `copy`
// are then in groups. Returns a source stride for each bit of an element's index within its group.
std::vector<int64_t> group_stores(StridedCopy& copy) {
  for (int64_t m = kVectorBits / copy.bits; m > 1 && m * copy.bits >= 32; m /= 2) {
    const auto counts = find_store_group(copy, m);
    const auto bits_of_m = static_cast<size_t>(std::countr_zero(static_cast<uint64_t>(m)));
    if (counts.empty() || count_push_words(copy.space.sizes.size()) + bits_of_m > kPushWords) continue;
    std::vector<int64_t> steps;
    for (size_t axis = counts.size(); axis-- > 0;) {
      for (int64_t k = 1; k < counts[axis]; k *= 2) steps.push_back(copy.x_strides()[axis] * k);
      copy.space.sizes[axis] /= counts[axis];
      copy.space.strides[0][axis] *= counts[axis];
      copy.space.strides[1][axis] = copy.space.strides[1][axis] * counts[axis] / m;
    }
    copy.space.coalesce();
    copy.y_first /= m;
    return steps;
  }
  return {};
}

// Tile sizes of transpose.comp for an element width (docs/tuning.md).
struct TransposeTile {
  bool in_registers;
  int64_t elements_per_lane, rows, columns;
};

std::optional<TransposeTile> choose_transpose_tile(const NodeContext& node, int64_t bits) {
  if (node.prefers_cpu_kernels()) return bits <= 32 ? std::optional<TransposeTile>({true, 4, 32, 32}) : std::nullopt;
  switch (bits) {
    case 16:
      return TransposeTile{false, 2, 64, 64};
    case 32:
      return TransposeTile{false, 1, 64, 32};
    case 64:
      return TransposeTile{false, 1, 32, 32};
    default:
      return {};
  }
}

// Returns the axis along which the source is contiguous, if the destination is contiguous along another axis and both can be tiled. Returns
// -1 otherwise.
std::ptrdiff_t find_transposed_axis(const StridedCopy& copy, int64_t elements_per_lane) {
  const auto& sizes = copy.space.sizes;
  const size_t inner = sizes.size() - 1;
  if (sizes.size() < 2 || sizes.size() > kBatchAxes + 2 || copy.y_strides()[inner] != 1) return -1;
  const auto found = std::find(copy.x_strides().begin(), copy.x_strides().end(), 1);
  const auto axis = static_cast<size_t>(found - copy.x_strides().begin());
  if (axis >= inner || std::min(sizes[axis], sizes[inner]) < kTileSide) return -1;
  const auto bytes = static_cast<uint64_t>(elements_per_lane * copy.bits / 8);
  if (copy.x_misalignment % bytes != 0 || copy.y_misalignment % bytes != 0) return -1;
  for (const int64_t value : {sizes[axis], sizes[inner], copy.x_first, copy.y_first})
    if (value % elements_per_lane != 0) return -1;
  for (size_t i = 0; i <= inner; ++i)
    if ((i != axis && copy.x_strides()[i] % elements_per_lane != 0) || (i != inner && copy.y_strides()[i] % elements_per_lane != 0))
      return -1;
  return static_cast<std::ptrdiff_t>(axis);
}

std::shared_ptr<const KernelVariant> make_transpose_kernel(LowerContext& node, const StridedCopy& copy, const TransposeTile& tiles,
                                                           size_t batch) {
  return node.kernel("transpose.comp", DType::float32,
                     {{"BITS", std::to_string(copy.bits)},
                      {"SCALE", std::to_string(copy.scale) + "u"},
                      {"LANES", std::to_string(tiles.elements_per_lane)},
                      {"BATCH", std::to_string(batch)},
                      {"IN_REGISTERS", tiles.in_registers ? "1" : "0"},
                      {"TILE_ROWS", std::to_string(tiles.rows) + "u"},
                      {"TILE_COLUMNS", std::to_string(tiles.columns) + "u"}});
}

void add_transpose(LowerContext& node, const StridedCopy& copy, const TransposeTile& tiles, size_t row_axis, const Operand& x,
                   const Operand& y) {
  const size_t inner = copy.space.sizes.size() - 1;
  const int64_t rows = copy.space.sizes[row_axis], columns = copy.space.sizes[inner];
  std::vector<int64_t> size, x_batch, y_batch;
  for (size_t axis = 0; axis < inner; ++axis) {
    if (axis == row_axis) continue;
    size.push_back(copy.space.sizes[axis]);
    x_batch.push_back(copy.x_strides()[axis] / tiles.elements_per_lane);
    y_batch.push_back(copy.y_strides()[axis] / tiles.elements_per_lane);
  }
  const size_t batch = size.size() > 1 ? kBatchAxes : 1;
  size.resize(batch, 1), x_batch.resize(batch, 0), y_batch.resize(batch, 0);
  const int64_t per_lane = tiles.elements_per_lane, down = ceil_div(rows, tiles.rows), across = ceil_div(columns, tiles.columns);
  const int64_t count = std::accumulate(size.begin(), size.end(), down * across, std::multiplies<>());
  node.add(StepBuilder(make_transpose_kernel(node, copy, tiles, batch))
               .bind("x", x)
               .bind("y", y)
               .set("tiles", count)
               .set("tile_rows", down)
               .set("tile_columns", across)
               .set("rows", rows)
               .set("columns", columns)
               .set("x_stride", copy.x_strides()[inner] / per_lane)
               .set("y_stride", copy.y_strides()[row_axis] / per_lane)
               .set("size", size)
               .set("x_batch", x_batch)
               .set("y_batch", y_batch)
               .set("x_first", copy.x_first / per_lane)
               .set("y_first", copy.y_first / per_lane)
               .set_workgroups(static_cast<uint64_t>(count))
               .build());
}

// The range of a tensor that a copy accesses: the index of its first element, and its length in elements.
struct ElementRange {
  int64_t lowest, span;
};

ElementRange find_element_range(const IndexSpace& space, size_t tensor, int64_t first) {
  ElementRange range{first, 1};
  for (size_t axis = 0; axis < space.sizes.size(); ++axis) {
    const int64_t last = (space.sizes[axis] - 1) * space.strides[tensor][axis];
    range.lowest += std::min<int64_t>(last, 0);
    range.span += std::abs(last);
  }
  return range;
}

// Returns the operand limited to the accessed range. If the range from the operand's start to the last accessed element exceeds a binding,
// the start moves to the 256-byte boundary before the first accessed element, and `first` is adjusted.
Operand restrict_to_range(const LowerContext& node, Operand operand, DType dtype, const ElementRange& range, int64_t& first) {
  constexpr int64_t kBoundary = 256;
  const auto element_bits = static_cast<int64_t>(bits(dtype));
  int64_t skipped = 0, end = ceil_div((range.lowest + range.span) * element_bits, 8);
  if (end > max_binding_bytes(*node.context)) skipped = range.lowest * element_bits / 8 / kBoundary * kBoundary;
  operand.byte_offset += static_cast<uint64_t>(skipped);
  operand.bytes = static_cast<uint64_t>(round_up(end - skipped, 16));
  first -= skipped * 8 / element_bits;
  return operand;
}

// Returns the axis along which to halve the copy because a tensor's range exceeds a binding; nullopt if both ranges fit.
std::optional<size_t> find_axis_to_halve(const LowerContext& node, DType dtype, const IndexSpace& space) {
  const int64_t max_elements = max_binding_bytes(*node.context) * 8 / static_cast<int64_t>(bits(dtype));
  for (size_t tensor = 0; tensor < 2; ++tensor) {
    if (find_element_range(space, tensor, 0).span <= max_elements) continue;
    const auto stride = [&](size_t axis) { return space.sizes[axis] > 1 ? std::abs(space.strides[tensor][axis]) : -1; };
    size_t widest = 0;
    for (size_t axis = 1; axis < space.sizes.size(); ++axis)
      if (stride(axis) > stride(widest)) widest = axis;
    if (space.sizes[widest] > 1) return widest;
  }
  return {};
}

int64_t choose_pieces_per_thread(int64_t piece_bits) {
  return std::clamp<int64_t>(kVectorBits / piece_bits, 1, 4);
}

}  // namespace

bool is_dense(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
  int64_t expected = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] != 1 && strides[i] != expected) return false;
    expected *= sizes[i];
  }
  return true;
}

int64_t IndexSpace::elements() const {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return count;
}

int64_t IndexSpace::num_runs() const {
  return element_count({sizes.begin(), sizes.end() - 1});
}

int64_t IndexSpace::get_run_offset(size_t tensor, int64_t run) const {
  int64_t first = 0;
  for (size_t axis = sizes.size() - 1; axis-- > 0; run /= sizes[axis]) first += run % sizes[axis] * strides[tensor][axis];
  return first;
}

void IndexSpace::coalesce() {
  IndexSpace merged;
  merged.strides.resize(strides.size());
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    if (sizes[axis] == 1) continue;
    const bool is_contiguous = !merged.sizes.empty() && [&] {
      for (size_t t = 0; t < strides.size(); ++t)
        if (merged.strides[t].back() != strides[t][axis] * sizes[axis]) return false;
      return true;
    }();
    if (is_contiguous) {
      merged.sizes.back() *= sizes[axis];
      for (size_t t = 0; t < strides.size(); ++t) merged.strides[t].back() = strides[t][axis];
    } else {
      merged.sizes.push_back(sizes[axis]);
      for (size_t t = 0; t < strides.size(); ++t) merged.strides[t].push_back(strides[t][axis]);
    }
  }
  if (merged.sizes.empty()) {
    merged.sizes = {1};
    for (auto& tensor_strides : merged.strides) tensor_strides = {1};
  }
  *this = std::move(merged);
}

void IndexSpace::pad_to(size_t rank, std::string_view subject) {
  if (sizes.size() > rank)
    throw UnsupportedError(std::string(subject) + ": the index space has " + std::to_string(sizes.size()) +
                           " axes that cannot be merged; this kernel supports at most " + std::to_string(rank));
  const size_t missing = rank - sizes.size();
  sizes.insert(sizes.begin(), missing, 1);
  for (auto& tensor_strides : strides) tensor_strides.insert(tensor_strides.begin(), missing, 0);
}

uint64_t get_misalignment(const LowerContext& node, const Operand& operand) {
  return ((operand.memory == MemoryKind::input ? node.input_misalignment(operand.index) : 0) + operand.byte_offset) % 16;
}

Macros make_copy_macros(int64_t piece_bits) {
  return {{"PIECES", std::to_string(choose_pieces_per_thread(piece_bits)) + "u"}};
}

uint64_t count_copy_threads(int64_t pieces, int64_t piece_bits) {
  return static_cast<uint64_t>(ceil_div(pieces, choose_pieces_per_thread(piece_bits)));
}

void add_strided_copy(LowerContext& node, DType dtype, IndexSpace space, const CopySource& from, const CopyTarget& to) {
  if (space.elements() == 0) return;
  if (bits(dtype) < 8) throw UnsupportedError("'" + std::string(node.node) + "': moving elements of " + std::string(name(dtype)));
  space.coalesce();
  space = sort_by_dst_stride(space);
  space.coalesce();
  // A copy whose range exceeds a binding is split in half along an axis.
  if (const auto axis = find_axis_to_halve(node, dtype, space)) {
    IndexSpace half = space;
    const int64_t first_half = half.sizes[*axis] = space.sizes[*axis] / 2;
    add_strided_copy(node, dtype, half, from, to);
    half.sizes[*axis] = space.sizes[*axis] - first_half;
    CopySource other_from = from;
    CopyTarget other_to = to;
    other_from.first += first_half * space.strides[0][*axis];
    other_to.first += first_half * space.strides[1][*axis];
    return add_strided_copy(node, dtype, half, other_from, other_to);
  }
  int64_t x_first = from.first, y_first = to.first;
  const Operand x = restrict_to_range(node, from.operand, dtype, find_element_range(space, 0, x_first), x_first);
  const Operand y = restrict_to_range(node, to.operand, dtype, find_element_range(space, 1, y_first), y_first);
  StridedCopy copy{std::move(space), x_first, y_first, get_misalignment(node, x), to.misalignment, bits(dtype)};
  vectorize(copy);
  if (const auto tiles = choose_transpose_tile(node, copy.bits))
    if (const std::ptrdiff_t axis = find_transposed_axis(copy, tiles->elements_per_lane); axis >= 0)
      return add_transpose(node, copy, *tiles, static_cast<size_t>(axis), x, y);
  const std::vector<int64_t> steps = group_stores(copy);
  const int64_t group_size = int64_t{1} << steps.size(), elements_per_word = std::max<int64_t>(32 / copy.bits, 1);
  // Elements smaller than a word are stored as whole words if no other data shares these words; otherwise each is merged atomically.
  const bool whole_words = group_size * copy.bits < 32 && to.owns_words && is_dense(copy.space.sizes, copy.y_strides()) &&
                           copy.y_first % elements_per_word == 0 && copy.y_misalignment % 4 == 0;
  const int64_t elements = copy.space.elements(), piece_bits = whole_words ? 32 : group_size * copy.bits;
  const size_t rank = round_up_rank(copy.space.sizes.size());
  copy.space.pad_to(rank, "'" + std::string(node.node) + "'");
  Macros macros = make_copy_macros(piece_bits);
  macros.insert(macros.end(), {{"BITS", std::to_string(copy.bits)},
                               {"SCALE", std::to_string(copy.scale) + "u"},
                               {"ELEMENTS_PER_STORE", std::to_string(group_size)},
                               {"STEPS", std::to_string(steps.size())},
                               {"WORDS", whole_words ? "1" : "0"},
                               {"RANK", std::to_string(rank)},
                               {"PAD", "0"}});
  StepBuilder step(node.kernel("strided_copy.comp", DType::float32, macros));
  step.bind("x", x).bind("y", y).set("elements", elements).set("size", copy.space.sizes).set("x_stride", copy.x_strides());
  step.set("y_stride", copy.y_strides()).set("x_first", copy.x_first).set("y_first", copy.y_first);
  if (!steps.empty()) step.set("step", steps);
  node.add(step.set_threads(count_copy_threads(whole_words ? ceil_div(elements, elements_per_word) : elements, piece_bits)).build());
}

Operand get_contiguous_input(LowerContext& node, size_t i) {
  const TensorDesc& x = node.input(i);
  if (x.is_packed()) return node.input_operand(i);
  Operand copy = node.add_temporary(buffer_size(x.dtype, x.shape));
  copy.element_bits = static_cast<uint32_t>(bits(x.dtype));
  add_strided_copy(node, x.dtype, {x.shape, {x.strides, packed_strides(x.shape)}}, {node.input_operand(i)}, {copy});
  return copy;
}

Operand get_contiguous_output(LowerContext& node, size_t i) {
  const TensorDesc& y = node.output(i);
  if (y.is_packed()) return node.output_operand(i);
  Operand dense = node.add_temporary(buffer_size(y.dtype, y.shape));
  dense.element_bits = static_cast<uint32_t>(bits(y.dtype));
  return dense;
}

void copy_contiguous_output(LowerContext& node, size_t i, const Operand& dense) {
  const TensorDesc& y = node.output(i);
  if (dense.memory != MemoryKind::output)
    add_strided_copy(node, y.dtype, {y.shape, {packed_strides(y.shape), y.strides}}, {dense},
                     {.operand = node.output_operand(i), .owns_words = false});
}

void add_contiguous_output(LowerContext& node, size_t i, std::string_view shader, Macros macros,
                           const std::function<void(StepBuilder&)>& set, int64_t scale) {
  const TensorDesc& y = node.output(i);
  const int64_t element_bits = bits(y.dtype) * scale, elements = y.elements() / scale,
                elements_per_word = std::max<int64_t>(32 / element_bits, 1);
  if (elements == 0) return;
  for (auto& macro : make_copy_macros(elements_per_word * element_bits)) macros.push_back(std::move(macro));
  macros.emplace_back("BITS", std::to_string(element_bits));
  macros.emplace_back("SCALE", std::to_string(scale) + "u");
  StepBuilder step(node.kernel(shader, DType::float32, macros));
  const Operand dense = get_contiguous_output(node, i);
  set(step.bind("y", dense)
          .set("elements", elements)
          .set_threads(count_copy_threads(ceil_div(elements, elements_per_word), elements_per_word * element_bits)));
  node.add(step.build());
  copy_contiguous_output(node, i, dense);
}

void add_contiguous_float_output(LowerContext& node, size_t i, std::string_view shader, Macros macros,
                                 const std::function<void(StepBuilder&)>& set) {
  const TensorDesc& y = node.output(i);
  macros.emplace_back("EPILOGUE(x)", node.epilogue());
  if (y.elements() == 0) return;
  StepBuilder step(node.kernel(shader, y.dtype, macros));
  const Operand dense = get_contiguous_output(node, i);
  set(step.bind("y", dense).set("elements", y.elements()));
  node.add(step.set_threads(static_cast<uint64_t>(ceil_div(y.elements(), is_16bit_float(y.dtype) ? 2 : 1))).build());
  copy_contiguous_output(node, i, dense);
}

}  // namespace pumice
