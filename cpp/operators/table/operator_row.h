// A row of the operator table: ONNX name, schema, shape rule, lowering.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor_desc.h"
#include "operators/table/attributes.h"
#include "operators/table/index_bounds_rule.h"

namespace pumice {

class LowerContext;  // this and the next two: operators/table/lowering.h
class PackContext;
struct PackedWeight;
struct SplitAxis;      // operators/common/split_axes.h
struct HostNode;       // operators/host/host_node.h
struct ReductionFold;  // operators/reduction/reduce.h
struct StridedView;    // operators/geometry/strided_views.h

// The kind of kernel that an operator lowers to. Fusion rules depend on these kinds, never on single operators.
enum class KernelKind : uint8_t { map, reduce, scan, contraction, window, index_map, scatter, sort, random, copy, view, user };
std::string_view get_kernel_kind_name(KernelKind kind);

// Strides that an operator's kernels read and write.
enum class StrideSupport : uint8_t {
  any,     // any strides for inputs and outputs
  image,   // like `any`; channels-last images (rank 3 and 4) are as fast as row-major ones
  any_in,  // any strides for inputs, row-major outputs
  packed,  // row-major inputs and outputs
};

// Values that shape inference assumes for elements of `host_inputs` that are unknown until the program runs.
enum class AssumedHostValues : uint8_t {
  ones,   // sizes or counts: assume 1
  shape,  // input 1 has the output's shape: assume its first size for all elements
  parts,  // input 1 has split lengths along the attribute "axis": assume that all equal the first
};

// Whether output 0 contains the elements of input 0 unchanged.
enum class ForwardedInput : uint8_t {
  nothing,   // no: elements are computed or checked
  elements,  // yes, in order, in any shape
  tensor,    // yes, in order and in the same shape
};

// An input or output of an operator, with its name in expressions.
struct ValueRole {
  std::string_view name;
  DTypeSet dtypes = 0;  // 0: defined by ONNX, not supported by this engine
  bool optional = false;
  bool variadic = false;  // any number of operands; only the last role may be variadic
  char type = 0;          // roles with the same letter have the same dtype; 0: independent
};

// An attribute of an operator, with its ONNX name.
struct AttributeSchema {
  std::string_view name;
  AttributeKind kind;
  std::optional<AttributeValue> fallback = {};  // none: required unless `optional`
  bool optional = false;
  std::vector<AttributeValue> choices = {};  // supported integers or strings; empty: any
};

// Inputs, outputs and attributes of an operator, following the latest version of the ONNX operator.
struct OperatorSchema {
  std::vector<ValueRole> inputs, outputs;
  std::vector<AttributeSchema> attributes = {};
  int min_rank = 0, max_rank = kMaxRank;  // range of the rank of input 0
  // Bit i: output 0 may alias input i, because the kernel reads each element only once, before it writes the same element.
  uint32_t in_place = 0;
  // The operator by ONNX operators, unless ONNX defines it so: the body of a function in ONNX's text format, with the names of the inputs,
  // outputs and attributes ("c = Constant <value_float: float = @alpha> () y = Mul(x, c)"). Read only by validation and tests.
  std::string_view definition = {};

  // Whether the output may share memory with the input. Valid for operators that are lowered to one dispatch.
  bool supports_in_place(size_t input, size_t output) const;
};

// Context for inferring the shapes and dtypes of outputs. All input sizes are known.
class ShapeContext {
 public:
  ShapeContext(std::string_view node, const Attributes& attributes, std::vector<const TensorDesc*> inputs,
               std::vector<const HostTensor*> hosts, size_t output_count);
  const Attributes& attributes() const { return attributes_; }
  std::string_view node() const { return node_; }
  size_t input_count() const { return inputs_.size(); }
  size_t output_count() const { return outputs_.size(); }
  bool has(size_t i) const { return i < inputs_.size() && inputs_[i] != nullptr; }
  const TensorDesc& input(size_t i) const;                 // throws GraphError if absent
  const HostTensor* host_tensor(size_t i) const;           // null if the elements of input i are not known on the host
  const HostTensor& get_host_values(size_t i) const;       // throws GraphError naming node and input if the elements are not known
  std::vector<int64_t> get_host_integers(size_t i) const;  // throws like get_host_values()
  double get_host_real(size_t i) const;                    // first element; throws like get_host_values(), and if it is empty
  int64_t get_host_integer(size_t i) const;                // like get_host_real()
  void output(size_t i, DType dtype, Shape shape);
  std::vector<std::optional<TensorDesc>> take_outputs() { return std::move(outputs_); }
  [[noreturn]] void fail(const std::string& message) const;  // throws GraphError naming the node

 private:
  const HostTensor& get_host_scalar_tensor(size_t i) const;

  std::string_view node_;
  const Attributes& attributes_;
  std::vector<const TensorDesc*> inputs_;
  std::vector<const HostTensor*> hosts_;
  std::vector<std::optional<TensorDesc>> outputs_;
};

// Returns bit i of a per-input or per-output mask; false for indices from 32 on.
constexpr bool has_bit(uint32_t bits, size_t i) {
  return i < 32 && (bits >> i & 1) != 0;
}

// How the kernels of an operator treat floats of 16 and 32 bits.
struct PrecisionTraits {
  // Results easily exceed 65,504, the maximum of fp16, so they stay fp32 in fp16 programs.
  bool overflows = false;
  bool mixed_precision = false;  // kernels read 16-bit and 32-bit floats, and write the requested float dtype
  // Bit i: the scalar in input i is a lower or upper bound of all output elements.
  uint32_t lower_bound_inputs = 0, upper_bound_inputs = 0;
  // Bit i: the kernels for 16-bit floats also accept fp32 for input i or output i.
  uint32_t fp32_inputs = 0, fp32_outputs = 0;
  // Bit i: the kernels for fp32 also accept 16-bit floats for input i.
  uint32_t half_inputs = 0;
  // Bit i: input i is a GEMM operand with fp32 accumulation. If all these operands of an fp32 node are exact in 16 bits, the node reads
  // 16-bit tensors, like a 16-bit node with an fp32 output.
  uint32_t gemm_inputs = 0;
  // An fp32 node's kernels may read constant input 1 as sums of two fp16 values: see SplitFp16Params.
  bool splits_into_fp16 = false;
  bool stores_fp32_or_half = false;  // kernels can store output 0, after an epilogue, as fp32 or as 16-bit floats
  bool reads_bits = false;           // reads or writes raw bits: input 0 and the output keep their declared dtypes
};

// Exceptions to the StrideSupport of an operator.
struct LayoutTraits {
  uint32_t packed_outputs = 0;         // bit j: output j is row-major regardless of `strides`
  uint32_t permuted_inputs = 0;        // bit i: input i may have any axis order in memory, including the last axis
  bool strided_weights = false;        // with `pack`: non-constant inputs may have any strides; otherwise they are read row by row
  bool prefers_channels_last = false;  // a copy to channels-last pays off for images with many channels
};

// When an operator's output can share the memory of an input, so that nothing is computed.
struct AliasTraits {
  bool concatenates = false;  // concatenates along the attribute "axis": the producer of an input may write directly to the output
  // Returns the outputs as views of input 0, or nullopt if one is not a view. Absent outputs are null.
  std::optional<std::vector<StridedView>> (*views)(const Attributes&, const TensorDesc& x,
                                                   const std::vector<const TensorDesc*>& outputs) = nullptr;
  // Whether the output equals input 0 regardless of the indices. Both have the same number of elements.
  bool (*is_identity)(const Attributes&, const TensorDesc& x, const TensorDesc& indices) = nullptr;
  ForwardedInput forwards = ForwardedInput::nothing;
};

// Values that an operator reads or computes on the host, besides `host_inputs` and `evaluate`.
struct HostTraits {
  AssumedHostValues assumed_values = AssumedHostValues::ones;
  uint32_t element_inputs = 0;           // bit i: the values of host input i become output elements
  std::string_view fill_attribute = {};  // attribute whose value becomes output elements
  bool reads_only_shapes = false;        // results depend only on input shapes, not on data
};

// A row of the operator table. Graph passes, memory planning and host evaluation use only these declarations.
struct OperatorRow {
  std::string_view name;
  KernelKind skeleton = KernelKind::map;
  OperatorSchema schema = {};
  void (*shape)(ShapeContext&) = nullptr;
  // Returns the index of the input whose sizes determine the output rank; nullopt if attributes and input ranks suffice. `lists`: the node
  // has input 1, a list of axes or sizes. A null pointer means always nullopt.
  std::optional<size_t> (*rank_from)(const Attributes&, bool lists) = nullptr;
  // Null for an operator whose result is always known on the host: evaluate_on_host() computes it at bind time.
  void (*lower)(LowerContext&) = nullptr;
  int form = 0;  // enum value that selects the operator within a shared lowering function
  // Counts the FLOPs of a node. Null: count_node_flops() uses the default of the skeleton, which is 0 for contractions.
  uint64_t (*flop)(const LowerContext&) = nullptr;
  // Map operators: a scalar expression over input and attribute names ("x < 0 ? alpha * x : x"). Variadic operators: a binary fold of a and
  // b, optionally followed by ';' and a final expression over the result y and the input count. See elementwise_expression.h.
  std::string_view expression = {};
  // Expression over x, s and zero, used if input 1 is a known scalar s and input 2 is a known scalar zero or omitted (zero = 0).
  std::string_view scaled_expression = {};

  // Inputs that the shape rule or lowering reads on the host (axes, pads, target shapes): bit i for input i.
  uint32_t host_inputs = 0;
  HostTraits host = {};
  std::string_view scales = {};  // attribute by which input 1 is multiplied before rounding
  // Describes the packing of a constant input for this device, independent of data shapes. Returns false if the kernels read it unpacked.
  bool (*pack)(const PackContext&, size_t input, PackedWeight&) = nullptr;
  // Operator that replaces this one if the output size is a number of nonzeros that only the device knows (NonZero, Compress). Its
  // additional inputs are the outputs of pumice::CountNonZero.
  std::string_view counted_operator = {};
  IndexRule indices = nullptr;   // valid indices of the operator's index input
  bool rejects_indices = false;  // with `indices`: calls with out-of-range values are rejected

  StrideSupport strides = StrideSupport::any;
  LayoutTraits layout = {};
  AliasTraits alias = {};
  // Appends the axes along which results are independent, so that the node can be split.
  void (*split)(const LowerContext&, std::vector<SplitAxis>&) = nullptr;

  // Computes all outputs from known inputs. Returns nullopt if the result is undefined (integer division by zero).
  std::optional<std::vector<HostTensor>> (*evaluate)(const HostNode&) = nullptr;

  PrecisionTraits precision = {};
  bool elementwise = false;  // packed tensors of one shape may be treated as vectors
  bool casts = false;        // output is input 0 cast to another dtype; a second input only provides that dtype
  bool epilogue = false;     // kernels apply an expression to each element before storing it
  // Whether the epilogue may read a second tensor of the output's shape, given the constant `weights` in input 1. Null: never.
  bool (*residual)(const Attributes&, const TensorDesc& weights) = nullptr;
  const ReductionFold* fold = nullptr;  // fold of a reduction or running sum
};

}  // namespace pumice
