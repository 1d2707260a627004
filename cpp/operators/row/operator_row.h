// One row of the table of operators: exact ONNX name, schema, shape rule, lowering.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor_desc.h"
#include "operators/row/attributes.h"
#include "operators/row/index_rule.h"

namespace pumice {

class LowerContext;  // operators/row/lowering.h, as the next two: what the functions of a row are called with
class PackContext;
struct PackedWeight;
struct CutAxis;        // operators/means/cut_axes.h
struct HostNode;       // operators/host/host_node.h
struct ReductionFold;  // operators/reduction/reduce.h
struct StridedView;    // operators/geometry/strided_views.h

// The skeleton that a row lowers to. Fusion is stated between these, never between operators.
enum class Skeleton : uint8_t { map, reduce, scan, contraction, window, index_map, scatter, sort, random, copy, view, user };
std::string_view name(Skeleton skeleton);

// The strides that the kernels of a row read and write.
enum class RowStrides : uint8_t {
  any,     // inputs and outputs have any strides
  image,   // likewise, and images (rank 3 and 4) are as fast channels last as row-major
  any_in,  // inputs have any strides, outputs are row-major
  packed,  // inputs and outputs are row-major
};

// A HostGuess says what stands in the place of elements of `host_inputs` that are known only when the program runs, while shapes are
// inferred.
enum class HostGuess : uint8_t {
  ones,   // they are sizes or counts: each is taken for 1
  shape,  // input 1 is the result's shape: its first size is taken for all elements
  parts,  // input 1 has the lengths of parts along the attribute "axis": the first part is taken for all
};

// Which elements of input 0 a row's output 0 consists of.
enum class RowPasses : uint8_t {
  nothing,   // elements of its own, or they are checked
  elements,  // its elements in their order, in any shape, and nothing else is done
  tensor,    // its elements in its shape, likewise
};

// An input or output of a row; expressions call it by this name.
struct ValueRole {
  std::string_view name;
  DTypeSet dtypes = 0;  // 0: ONNX has it, this row does not
  bool optional = false;
  bool variadic = false;  // only the last
  char type = 0;          // roles of one letter have one dtype; 0: on its own
};

// An attribute of a row, by its ONNX name.
struct AttributeSchema {
  std::string_view name;
  AttributeKind kind;
  std::optional<AttributeValue> fallback = {};  // none: required unless `optional`
  bool optional = false;
  std::vector<AttributeValue> choices = {};  // integers or texts that are supported; empty: any
};

// What a row takes and gives, in the newest form of its ONNX operator.
struct Schema {
  std::vector<ValueRole> inputs, outputs;
  std::vector<AttributeSchema> attributes = {};
  int min_rank = 0, max_rank = kMaxRank;  // of input 0
  // Bit i: output 0 may be the memory of the input of role i (elementwise, one read per element).
  uint32_t in_place = 0;

  // Where an operator is one dispatch.
  bool supports_in_place(size_t input, size_t output) const;
};

// Shapes and dtypes of the outputs from those of the inputs. All sizes are known here.
class ShapeContext {
 public:
  ShapeContext(std::string_view node, const Attributes& attributes, std::vector<const TensorDesc*> inputs,
               std::vector<const HostTensor*> hosts, size_t output_count);
  const Attributes& attributes() const { return attributes_; }
  std::string_view node() const { return node_; }
  size_t input_count() const { return inputs_.size(); }
  size_t output_count() const { return outputs_.size(); }
  bool has(size_t i) const { return i < inputs_.size() && inputs_[i] != nullptr; }
  const TensorDesc& input(size_t i) const;             // GraphError where absent
  const HostTensor* host(size_t i) const;              // nullptr where input i has no host side
  const HostTensor& host_values(size_t i) const;       // GraphError naming node and input where there is none
  std::vector<int64_t> host_integers(size_t i) const;  // likewise
  double host_real(size_t i) const;                    // the first element; likewise, and where there is none
  int64_t host_integer(size_t i) const;                // likewise
  void output(size_t i, DType dtype, Shape shape);
  std::vector<std::optional<TensorDesc>> take_outputs() { return std::move(outputs_); }
  [[noreturn]] void fail(const std::string& message) const;  // GraphError with the node's name

 private:
  const HostTensor& host_number(size_t i) const;

  std::string_view node_;
  const Attributes& attributes_;
  std::vector<const TensorDesc*> inputs_;
  std::vector<const HostTensor*> hosts_;
  std::vector<std::optional<TensorDesc>> outputs_;
};

// Bit i of a field that has one for each input or output of a row; those from 32 on have none.
constexpr bool has_bit(uint32_t bits, size_t i) {
  return i < 32 && (bits >> i & 1) != 0;
}

// Windows over two axes that lie side by side: none overlaps another, and none has padding or leaves elements out.
struct PoolWindow {
  int64_t rows = 1, columns = 1;

  bool operator==(const PoolWindow&) const = default;
};

// One operator. Passes, placement and the host's evaluation know of it what its row declares, and nothing else.
struct OperatorRow {
  std::string_view name;
  Skeleton skeleton = Skeleton::map;
  Schema schema = {};
  void (*shape)(ShapeContext&) = nullptr;
  // The input whose sizes decide the rank of the result, which is open while they are; none where the node's attributes and the ranks of
  // its inputs decide it. `lists`: whether input 1, a list of axes or sizes, is given. Null: none, whatever is given.
  std::optional<size_t> (*rank_from)(const Attributes&, bool lists) = nullptr;
  // A row whose result always has a host side has no lowering: evaluate_on_host() makes it from what is known at bind.
  void (*lower)(LowerContext&) = nullptr;
  int form = 0;  // which of the operators of its lowering this is, by an enumeration of the family
  // The floating-point operations of a node. Null: what node_flop() counts for the skeleton, which is none for a contraction.
  uint64_t (*flop)(const LowerContext&) = nullptr;
  // For map rows: the scalar expression over the inputs' names and attributes ("x < 0 ? alpha * x : x"); of a variadic row over two
  // neighbours a and b, with what the last result y and the count of inputs make after a semicolon. See map_expression.h.
  std::string_view expression = {};
  // The expression over x that the row computes where input 1 is one known number s and input 2 one known number zero, or is left out (0).
  std::string_view scaled_expression = {};

  // Inputs whose values the shape rule or the lowering reads on the host (axes, pads, target shapes): bit i for input i.
  uint32_t host_inputs = 0;
  HostGuess guess = HostGuess::ones;
  uint32_t host_elements = 0;         // those of them whose values become elements of the result
  std::string_view filled_with = {};  // the attribute whose value becomes elements of the result
  std::string_view scales = {};       // the attribute that input 1 is multiplied by before it is rounded
  // Describes how constant input `i` is repacked once for this device; false: used as it is. Free of data shapes.
  bool (*pack)(const PackContext&, size_t input, PackedWeight&) = nullptr;
  // The name of the row to use instead where the size of the result is the count of non-zeros in an input that only the device knows
  // (NonZero, Compress). That row takes the outputs of pumice::CountNonZero as further inputs.
  std::string_view counted = {};
  IndexRule indices = nullptr;   // of a row with an input of indices: which ones are in range
  bool refuses_indices = false;  // with `indices`: others are refused at a call that hands them over

  RowStrides strides = RowStrides::any;
  uint32_t packed_outputs = 0;       // bit j: output j is row-major, whatever `strides` says of the others
  uint32_t permuted_inputs = 0;      // bit i: the axes of input i may lie in any order in memory, the last one too
  bool strided_weights = false;      // with `pack`: inputs that are not constant may have any strides; else they are read row by row
  bool wants_channels_last = false;  // images of many channels are worth a copy to have these beside each other
  bool concatenates = false;         // along the attribute "axis": an input may be made in its part of the result
  // The outputs, whose descs are given (null: absent), as views of input 0; none where one of them cannot be.
  std::optional<std::vector<StridedView>> (*views)(const Attributes&, const TensorDesc& x,
                                                   const std::vector<const TensorDesc*>& outputs) = nullptr;
  // Whether the result, which has as many elements as input 0, is its elements in their order whatever the indices are.
  bool (*keeps)(const Attributes&, const TensorDesc& x, const TensorDesc& indices) = nullptr;
  RowPasses passes = RowPasses::nothing;
  // Appends the axes along which results do not depend on each other, so that the node can be lowered in parts.
  void (*cut)(const LowerContext&, std::vector<CutAxis>&) = nullptr;

  // Computes all outputs from known inputs; none where the values have no meaning (an integer divided by zero).
  std::optional<std::vector<HostTensor>> (*evaluate)(const HostNode&) = nullptr;
  bool reads_shapes_alone = false;  // the inputs need no data

  // Results soon exceed float16, whose largest is 65,504: they stay float32 where other floats are float16.
  bool overflows = false;
  bool mixes_floats = false;  // the kernels read floats of either size and make floats of the dtype that they are told
  // Bit i: no element of the result is less, or more, than the one number in input i.
  uint32_t least_inputs = 0, most_inputs = 0;
  // Bit i of these masks: the kernels of a row that computes with one size of floats read input i, or make output i, as float32 too.
  uint32_t wide_inputs = 0, wide_outputs = 0;
  // Bit i: the kernels of a row that computes with float32 read input i as floats of 16 bits too.
  uint32_t narrow_inputs = 0;
  // Bit i: input i is a factor of products, which the kernels sum in float32. A node in float32 whose factors are all numbers of 16 bits
  // computes from these as they are, as a node of 16 bits does that stores float32.
  uint32_t factors = 0;
  // The kernels of a node in float32 may take constant input 1 as sums of two halves: see HalvesOfFactors.
  bool splits_factors = false;
  bool stores_either = false;  // the kernels of a row that computes with one size of floats store output 0, behind an epilogue, in either
  bool elementwise = false;    // packed tensors of one shape may be taken as vectors
  bool casts = false;          // the result is input 0 as another dtype; a second input tells that dtype alone
  bool reads_bits = false;     // bits are read or made: input 0 and the result have the dtypes that the graph declares
  bool epilogue = false;       // the kernels apply an expression to every element that they store
  // The epilogue may read an element of a second tensor of the result's shape, where the constant `weights` are input 1; null: never.
  bool (*residual)(const Attributes&, const TensorDesc& weights) = nullptr;
  // The windows of which the row's result has the largest elements; none where they do not lie side by side. Null: the row does otherwise.
  std::optional<PoolWindow> (*largest_of)(const Attributes&) = nullptr;
  // The name of the row that takes this one's place where `largest_of` is all that is wanted of its result; it has the windows as the
  // attribute "pool_shape", and what is fused behind them as "pool_epilogue".
  std::string_view pooled = {};
  // Whether that row has kernels for it, where the constant `weights` are input 1; set where `pooled` is.
  bool (*takes_pool)(const Attributes&, const TensorDesc& weights, const PoolWindow&) = nullptr;
  // Whether the result is Softmax along the last axis of an input of that rank. Null: the row does otherwise.
  bool (*is_softmax)(const Attributes&, size_t rank) = nullptr;
  // The name of the row that takes this one's place where `is_softmax` reads its result, a matrix: it makes what is read of that, and the
  // result as output 1. Whether it can, where the constant `weights` are input 1 and numbers that are added have the shape `bias`.
  std::string_view with_softmax = {};
  bool (*takes_softmax)(const Attributes&, const TensorDesc& weights, const Shape* bias) = nullptr;
  const ReductionFold* fold = nullptr;  // how the elements of a reduction or a running sum are folded
};

}  // namespace pumice
