// Matmuls with DequantizeLinear of a constant low-bit matrix, which stays quantised on the device.
#include <algorithm>
#include <cstring>

#include "core/rounding.h"
#include "graph/passes/recognition.h"
#include "graph/passes/use_def_chains.h"

namespace pumice {
namespace {

// The matrix of a product: integers, scales and zero points, each [K, N] or, if `turned`, [N, K], with K in blocks.
struct BlockMatrix {
  ValueId w = kAbsent, scale = kAbsent, zero = kAbsent;
  int64_t block = 0;
  bool turned = false;
  std::vector<uint32_t> rows;
};

// Transposes a matrix with elements of 4, 8, 16 or 32 bits.
HostTensor transposed(const HostTensor& matrix) {
  const int64_t rows = matrix.desc.shape[0], columns = matrix.desc.shape[1];
  TensorDesc desc(matrix.desc.dtype, {columns, rows});
  std::vector<std::byte> made(desc.bytes());
  const auto width = static_cast<int64_t>(bits(desc.dtype));
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column) {
      const int64_t from = row * columns + column, to = column * rows + row;
      if (width == 4)
        made[static_cast<size_t>(to / 2)] |= (matrix.data[from / 2] >> (from % 2 * 4) & std::byte{15}) << (to % 2 * 4);
      else
        std::memcpy(made.data() + to * width / 8, matrix.data + from * width / 8, static_cast<size_t>(width / 8));
    }
  return HostTensor::copy_of(std::move(desc), made.data());
}

// Returns the common value of all elements; nullopt if they differ.
std::optional<int64_t> common_element(const HostTensor& points) {
  const auto width = static_cast<int64_t>(bits(points.desc.dtype));
  const auto count = points.desc.elements(), whole = count * width / 8;
  const auto first = std::to_integer<int64_t>(points.data[0]);
  const int64_t low = width == 4 ? first & 15 : first;
  const bool same = whole < 2 || std::memcmp(points.data, points.data + 1, static_cast<size_t>(whole - 1)) == 0;
  const bool pairs = width == 8 || count < 2 || first >> 4 == low;
  const bool ends = count * width % 8 == 0 || (std::to_integer<int64_t>(points.data[whole]) & 15) == low;
  if (!same || !pairs || !ends) return {};
  const int64_t half = int64_t{1} << (width - 1);
  return is_signed_integer(points.desc.dtype) && low >= half ? low - 2 * half : low;
}

class BlockSearch {
 public:
  explicit BlockSearch(ProgramGraph& graph) : graph_(graph), flow_(graph) {}

  std::optional<BlockMatrix> matrix_of(const ProgramNode& product) const {
    bool turned = false;
    BlockMatrix found;
    if (product.row->name == "Gemm") {
      const auto is = [&](const char* name, double one) { return product.attributes.real(name, one) == one; };
      const bool plain = is("alpha", 1) && product.attributes.integer("transA", 0) == 0 && product.inputs.size() < 3;
      if (!plain) return {};
      turned = product.attributes.integer("transB", 0) != 0;
    } else if (product.row->name != "MatMul") {
      return {};
    }
    ValueId b = product.inputs[1];
    if (const ProgramNode* transpose = flow_.producer(b, "Transpose")) {
      turned = !turned, b = transpose->inputs[0];
      found.rows.push_back(transpose->report);
    }
    const ProgramNode* node = flow_.producer(b, "DequantizeLinear");
    if (!node || !is_working_float(graph_.value(product.inputs[0]).dtype)) return {};
    found.rows.push_back(node->report);
    found.w = node->inputs[0], found.scale = node->inputs[1], found.turned = turned;
    if (node->inputs.size() > 2) found.zero = node->inputs[2];
    return fits(*node, found) ? std::optional(found) : std::nullopt;
  }

  ProgramNode with_blocks(const ProgramNode& product, const BlockMatrix& matrix) const {
    ProgramNode node = product;
    node.row = find_operator("pumice::BlockMatMul");
    Attributes attributes;
    attributes.set("block_size", matrix.block);
    const std::optional<int64_t> point = matrix.zero == kAbsent ? 0 : common_element(*graph_.value(matrix.zero).constant);
    attributes.set("zero_point", point.value_or(0));
    attributes.set("has_points", int64_t{point ? 0 : 1});
    node.attributes = checked_attributes(*node.row, node.name, attributes);
    const int64_t columns = graph_.value(matrix.w).constant->desc.shape[matrix.turned ? 0 : 1];
    node.inputs = {product.inputs[0], by_columns(matrix.w, matrix, columns), by_columns(matrix.scale, matrix, columns)};
    if (!point) {
      node.inputs.resize(kResidualInput + 1, kAbsent);
      node.inputs.push_back(by_columns(matrix.zero, matrix, columns));
    }
    return node;
  }

 private:
  bool fits(const ProgramNode& dequantize, BlockMatrix& found) const {
    const auto& w = graph_.value(found.w).constant;
    const auto& scale = graph_.value(found.scale).constant;
    if (!w || w->desc.rank() != 2 || !scale || !is_working_float(scale->desc.dtype)) return false;
    if (found.zero != kAbsent && !graph_.value(found.zero).constant) return false;
    const int64_t block = dequantize.attributes.integer("block_size", 0), given = dequantize.attributes.integer("axis", 1);
    const int64_t axis = given < 0 ? given + 2 : given, deep = found.turned ? 1 : 0, depth = w->desc.shape[static_cast<size_t>(deep)];
    if (bits(w->desc.dtype) > 8 || bits(w->desc.dtype) < 4 || is_float(w->desc.dtype) || depth == 0) return false;
    if (block != 0) {
      found.block = block;
      return axis == deep;
    }
    found.block = depth;  // one scale per column
    return bits(w->desc.dtype) == 4 && scale->desc.rank() == 1 && axis == 1 - deep;
  }

  // Returns the constant as [N, ..], transposed if necessary.
  ValueId by_columns(ValueId id, const BlockMatrix& matrix, int64_t columns) const {
    const GraphValue& given = graph_.value(id);
    const HostTensor& constant = *given.constant;
    const bool vector = constant.desc.rank() == 1;
    if (matrix.turned && !vector) return id;
    HostTensor made = constant;
    if (vector)
      made.desc = TensorDesc(constant.desc.dtype, {columns, 1});
    else
      made = transposed(constant);
    GraphValue value{given.name + " by columns", given.dtype, made.desc.shape};
    value.constant = std::move(made);
    return graph_.add_value(std::move(value));
  }

  ProgramGraph& graph_;
  ValueFlow flow_;
};

}  // namespace

void recognise_blocks(ProgramGraph& graph) {
  if (std::ranges::none_of(graph.nodes, [](const ProgramNode& node) { return node.row->name == "DequantizeLinear"; })) return;
  Absorbed absorbed(graph);
  const BlockSearch search(graph);
  std::vector<std::pair<size_t, BlockMatrix>> found;
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    if (const auto matrix = search.matrix_of(graph.nodes[i])) found.emplace_back(i, *matrix);
  for (const auto& [i, matrix] : found) {
    absorbed.note(matrix.rows, graph.nodes[i], Fusion::block_products);
    graph.nodes[i] = search.with_blocks(graph.nodes[i], matrix);
  }
  absorbed.remove();
}

}  // namespace pumice
