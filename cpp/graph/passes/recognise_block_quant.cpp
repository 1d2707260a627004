// Matches MatMuls with the DequantizeLinear of a constant low-bit matrix, which stays quantized on the device.
#include <algorithm>
#include <cstring>

#include "core/rounding.h"
#include "graph/passes/recognise_patterns.h"
#include "graph/passes/use_def_chains.h"

namespace pumice {
namespace {

// Block-quantized weights of a MatMul: integers, scales and zero points, each [K, N] or, if `is_transposed`, [N, K], with blocks along K.
struct BlockQuantMatrix {
  ValueId w = kAbsent, scale = kAbsent, zero = kAbsent;
  int64_t block = 0;
  bool is_transposed = false;
  std::vector<uint32_t> rows;
};

// Transposes a matrix with elements of 4, 8, 16 or 32 bits.
HostTensor transpose_constant(const HostTensor& matrix) {
  const int64_t rows = matrix.desc.shape[0], columns = matrix.desc.shape[1];
  TensorDesc desc(matrix.desc.dtype, {columns, rows});
  std::vector<std::byte> transposed_bytes(desc.bytes());
  const auto width = static_cast<int64_t>(bits(desc.dtype));
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column) {
      const int64_t from = row * columns + column, to = column * rows + row;
      if (width == 4)
        transposed_bytes[static_cast<size_t>(to / 2)] |= (matrix.data[from / 2] >> (from % 2 * 4) & std::byte{15}) << (to % 2 * 4);
      else
        std::memcpy(transposed_bytes.data() + to * width / 8, matrix.data + from * width / 8, static_cast<size_t>(width / 8));
    }
  return HostTensor::copy_of(std::move(desc), transposed_bytes.data());
}

// Returns the value that all elements have; nullopt if they differ.
std::optional<int64_t> find_common_element(const HostTensor& points) {
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

class BlockQuantMatcher {
 public:
  explicit BlockQuantMatcher(ProgramGraph& graph) : graph_(graph), use_def_(graph) {}

  std::optional<BlockQuantMatrix> match_matrix(const ProgramNode& product) const {
    bool is_transposed = false;
    BlockQuantMatrix result;
    if (product.row->name == "Gemm") {
      const auto is = [&](const char* name, double expected) { return product.attributes.real(name, expected) == expected; };
      const bool plain = is("alpha", 1) && product.attributes.integer("transA", 0) == 0 && product.inputs.size() < 3;
      if (!plain) return {};
      is_transposed = product.attributes.integer("transB", 0) != 0;
    } else if (product.row->name != "MatMul") {
      return {};
    }
    ValueId b = product.inputs[1];
    if (const ProgramNode* transpose = use_def_.find_producer(b, "Transpose")) {
      is_transposed = !is_transposed, b = transpose->inputs[0];
      result.rows.push_back(transpose->report);
    }
    const ProgramNode* node = use_def_.find_producer(b, "DequantizeLinear");
    if (!node || !is_operator_float(graph_.value(product.inputs[0]).dtype)) return {};
    result.rows.push_back(node->report);
    result.w = node->inputs[0], result.scale = node->inputs[1], result.is_transposed = is_transposed;
    if (node->inputs.size() > 2) result.zero = node->inputs[2];
    return match_block_format(*node, result) ? std::optional(result) : std::nullopt;
  }

  ProgramNode make_block_matmul(const ProgramNode& product, const BlockQuantMatrix& matrix) const {
    ProgramNode node = product;
    node.row = find_operator("pumice::BlockQuantMatMul");
    Attributes attributes;
    attributes.set("block_size", matrix.block);
    const std::optional<int64_t> point = matrix.zero == kAbsent ? 0 : find_common_element(*graph_.value(matrix.zero).constant);
    attributes.set("zero_point", point.value_or(0));
    attributes.set("has_zero_points", int64_t{point ? 0 : 1});
    node.attributes = validate_attributes(*node.row, node.name, attributes);
    const int64_t columns = graph_.value(matrix.w).constant->desc.shape[matrix.is_transposed ? 0 : 1];
    node.inputs = {product.inputs[0], add_transposed_constant(matrix.w, matrix, columns),
                   add_transposed_constant(matrix.scale, matrix, columns)};
    if (!point) {
      node.inputs.resize(kResidualInput + 1, kAbsent);
      node.inputs.push_back(add_transposed_constant(matrix.zero, matrix, columns));
    }
    return node;
  }

 private:
  bool match_block_format(const ProgramNode& dequantize, BlockQuantMatrix& result) const {
    const auto& w = graph_.value(result.w).constant;
    const auto& scale = graph_.value(result.scale).constant;
    if (!w || w->desc.rank() != 2 || !scale || !is_operator_float(scale->desc.dtype)) return false;
    if (result.zero != kAbsent && !graph_.value(result.zero).constant) return false;
    const int64_t block = dequantize.attributes.integer("block_size", 0), axis_attribute = dequantize.attributes.integer("axis", 1);
    const int64_t axis = axis_attribute < 0 ? axis_attribute + 2 : axis_attribute, k_axis = result.is_transposed ? 1 : 0,
                  k_size = w->desc.shape[static_cast<size_t>(k_axis)];
    if (bits(w->desc.dtype) > 8 || bits(w->desc.dtype) < 4 || is_float(w->desc.dtype) || k_size == 0) return false;
    if (block != 0) {
      result.block = block;
      return axis == k_axis;
    }
    result.block = k_size;  // one scale per column of the matrix
    return bits(w->desc.dtype) == 4 && scale->desc.rank() == 1 && axis == 1 - k_axis;
  }

  // Returns the constant with shape [N, ..], transposed if necessary.
  ValueId add_transposed_constant(ValueId id, const BlockQuantMatrix& matrix, int64_t columns) const {
    const GraphValue& source = graph_.value(id);
    const HostTensor& constant = *source.constant;
    const bool vector = constant.desc.rank() == 1;
    if (matrix.is_transposed && !vector) return id;
    HostTensor packed = constant;
    if (vector)
      packed.desc = TensorDesc(constant.desc.dtype, {columns, 1});
    else
      packed = transpose_constant(constant);
    GraphValue value{source.name + " by columns", source.dtype, packed.desc.shape};
    value.constant = std::move(packed);
    return graph_.add_value(std::move(value));
  }

  ProgramGraph& graph_;
  UseDefChains use_def_;
};

}  // namespace

void recognise_block_quant(ProgramGraph& graph) {
  if (std::ranges::none_of(graph.nodes, [](const ProgramNode& node) { return node.row->name == "DequantizeLinear"; })) return;
  ReplacedNodes replaced(graph);
  const BlockQuantMatcher matcher(graph);
  std::vector<std::pair<size_t, BlockQuantMatrix>> matches;
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    if (const auto matrix = matcher.match_matrix(graph.nodes[i])) matches.emplace_back(i, *matrix);
  for (const auto& [i, matrix] : matches) {
    replaced.report_fused_rows(matrix.rows, graph.nodes[i], Fusion::block_quant);
    graph.nodes[i] = matcher.make_block_matmul(graph.nodes[i], matrix);
  }
  replaced.erase_unread_nodes();
}

}  // namespace pumice
