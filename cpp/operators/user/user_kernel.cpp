// Lowers a node to a dispatch of a user kernel: binds tensors to arrays, and computes parameters and the launch size.
#include <algorithm>
#include <optional>

#include "core/error.h"
#include "core/number_format.h"
#include "core/rounding.h"
#include "dispatch/kernel/kernel_arguments.h"
#include "operators/common/composite_lowering.h"
#include "operators/common/strided_copy.h"
#include "operators/user/lowerings.h"
#include "operators/user/size_rules.h"

namespace pumice {
namespace {

constexpr uint64_t kTensorAlignment = 16;  // alignment, in bytes, of tensors in a program's memory
constexpr std::string_view kRealPrefix = "r:";

using Strings = std::vector<std::string>;

// A kernel's description, read from a node's attributes.
struct KernelDescription {
  explicit KernelDescription(const Attributes& node_attributes)
      : op(node_attributes.text("operator")),
        inputs(get_strings(node_attributes, "reads")),
        outputs(get_strings(node_attributes, "writes")),
        macros(get_string_pairs(node_attributes, "macros")),
        constants(get_string_pairs(node_attributes, "constants")),
        numbers(get_string_pairs(node_attributes, "numbers")) {
    source.source = node_attributes.text("source"), source.name = node_attributes.text("kernel"),
    source.path = node_attributes.text("path");
    const Strings names = get_strings(node_attributes, "include_names"), texts = get_strings(node_attributes, "include_texts");
    for (size_t i = 0; i < std::min(names.size(), texts.size()); ++i) source.includes.sources_by_path[names[i]] = texts[i];
    source.includes.folders = get_strings(node_attributes, "folders");
    if (const auto size = node_attributes.integers("local_size"); size.size() == 3)
      source.local_size = LocalSize{static_cast<uint32_t>(size[0]), static_cast<uint32_t>(size[1]), static_cast<uint32_t>(size[2])};
  }

  std::string op;
  KernelSource source;
  Strings inputs, outputs;  // array names, indexed by input and output of the node
  Macros macros;
  std::vector<std::pair<std::string, std::string>> constants, numbers;  // pairs of name and expression

 private:
  static Strings get_strings(const Attributes& node_attributes, std::string_view name) {
    const auto found = node_attributes.all().find(name);
    return found == node_attributes.all().end() ? Strings() : std::get<Strings>(found->second);
  }
  // Returns the pairs of a list in which names and values alternate.
  static std::vector<std::pair<std::string, std::string>> get_string_pairs(const Attributes& node_attributes, std::string_view name) {
    const Strings entries = get_strings(node_attributes, name);
    std::vector<std::pair<std::string, std::string>> result;
    for (size_t i = 0; i + 1 < entries.size(); i += 2) result.emplace_back(entries[i], entries[i + 1]);
    return result;
  }
};

Number evaluate_scalar(const std::string& text, const SizeVariables& sizes) {
  if (!text.starts_with(kRealPrefix)) return sizes.evaluate_int(text);
  const std::string real = text.substr(kRealPrefix.size());
  if (const auto literal = parse_number(real)) return *literal;
  return sizes.evaluate_real(real);
}

// Evaluates an argument: "[a;b]" is a list, "a" a scalar.
PushConstantValues evaluate_argument(const std::string& text, const SizeVariables& sizes) {
  PushConstantValues result;
  if (!text.starts_with('[')) {
    result.values.push_back(evaluate_scalar(text, sizes));
    return result;
  }
  for (const std::string& item : split_at_semicolons(std::string_view(text).substr(1, text.size() - 2)))
    result.values.push_back(evaluate_scalar(item, sizes));
  result.shape = {static_cast<uint32_t>(result.values.size())};
  return result;
}

PushConstantValues make_shape_argument(const Shape& shape) {
  PushConstantValues result;
  for (const int64_t size : shape) result.values.emplace_back(size);
  result.shape = {static_cast<uint32_t>(shape.size())};
  return result;
}

// Lowers one node. Converts tensors if an array is declared with a different float type than the program stores.
class UserKernelLowering {
 public:
  explicit UserKernelLowering(LowerContext& node)
      : node_(node), description_(*node.attributes), kernel_(node.library->get_user_kernel(node.context, description_.source)) {}

  void run() {
    collect_sizes();
    for (const auto& [name, text] : description_.constants) spec_.emplace_back(name, evaluate_scalar(text, sizes_));
    const auto unspecialized = kernel_->get_variant(StorageType::fp32, description_.macros);
    for (const auto& [name, text] : description_.numbers)
      if (unspecialized->interface().find_spec_constant(name)) spec_.emplace_back(name, evaluate_scalar(text, sizes_));
    std::ranges::sort(spec_, {}, [](const auto& entry) { return entry.first; });
    const auto variant = kernel_->get_variant(StorageType::fp32, description_.macros, spec_);
    add_tensor_arguments(*variant);
    add_scalar_arguments(variant->interface());
    add_step();
  }

 private:
  struct BoundOperand {
    std::string name;
    Operand operand;
  };

  // Collects the sizes that rules use, and the descriptions of all outputs, including unused ones.
  void collect_sizes() {
    std::vector<const TensorDesc*> descs;
    for (size_t i = 0; i < node_.inputs.size(); ++i) {
      descs.push_back(node_.has_input(i) ? &node_.input(i) : nullptr);
      if (node_.has_input(i)) sizes_.add('x', i, node_.input(i).shape);
    }
    ShapeContext context(node_.node, *node_.attributes, std::move(descs), node_.hosts, description_.outputs.size());
    infer_user_kernel_shape(context);
    for (auto& output_desc : context.take_outputs()) output_descs_.push_back(std::move(*output_desc));
    for (size_t j = 0; j < output_descs_.size(); ++j) {
      if (node_.has_output(j)) output_descs_[j] = node_.output(j);
      sizes_.add('y', j, output_descs_[j].shape);
    }
  }

  DType float_dtype() const {
    for (const auto& input : node_.inputs)
      if (input && is_operator_float(input->dtype)) return input->dtype;
    for (const TensorDesc& output_desc : output_descs_)
      if (is_operator_float(output_desc.dtype)) return output_desc.dtype;
    return DType::float32;
  }

  // Returns the dtype in which an array stores a tensor's floats.
  DType get_array_dtype(const KernelVariant& variant, const std::string& name, DType stored_dtype) {
    const BindingInterface* binding = variant.interface().find_binding(name);
    if (!binding || !is_operator_float(stored_dtype)) return stored_dtype;
    if (uses_storage_type_for_array(*kernel_, name, get_storage_type(node_.context->info(), float_dtype()), description_.macros, spec_))
      return float_dtype();
    if (binding->scalar == ScalarType::float32) return DType::float32;
    return binding->scalar == ScalarType::float16 ? DType::float16 : stored_dtype;
  }

  void add_tensor_arguments(const KernelVariant& variant) {
    const bool needs_copies = node_.context->limit("minStorageBufferOffsetAlignment") > kTensorAlignment;
    CompositeLowering composition(node_);
    for (size_t i = 0; i < node_.inputs.size() && i < description_.inputs.size(); ++i) {
      if (!node_.has_input(i)) continue;
      const TensorDesc& x = node_.input(i);
      const DType array_type = get_array_dtype(variant, description_.inputs[i], x.dtype);
      Operand operand = node_.input_operand(i);
      if (x.elements() > 0 && (array_type != x.dtype || needs_copies || node_.input_misalignment(i) != 0)) {
        const TensorOperand copy = composition.allocate_scratch(array_type, x.shape);
        if (array_type == x.dtype)
          add_strided_copy(node_, array_type, {{x.elements()}, {{1}, {1}}}, {operand}, {copy.operand});
        else
          composition.add_elementwise("a0", {{x, operand}}, copy);
        operand = copy.operand;
      }
      add_tensor_argument(description_.inputs[i], operand, TensorDesc(array_type, x.shape));
    }
    for (size_t j = 0; j < output_descs_.size(); ++j) {
      const TensorDesc& y = output_descs_[j];
      const DType array_type = get_array_dtype(variant, description_.outputs[j], y.dtype);
      const bool writes_output = node_.has_output(j) && array_type == y.dtype && !needs_copies;
      const Operand operand = writes_output ? node_.output_operand(j) : composition.allocate_scratch(array_type, y.shape).operand;
      add_tensor_argument(description_.outputs[j], operand, TensorDesc(array_type, y.shape));
      if (node_.has_output(j) && !writes_output) output_copies_.emplace_back(j, TensorOperand{TensorDesc(array_type, y.shape), operand});
    }
  }

  void add_tensor_argument(const std::string& name, const Operand& operand, const TensorDesc& desc) {
    const uint64_t bytes = ceil_div(static_cast<uint64_t>(desc.elements()) * static_cast<uint64_t>(bits(desc.dtype)), 8);
    const uint64_t last = desc.shape.empty() ? 1 : static_cast<uint64_t>(desc.shape.back());
    arguments_.emplace_back(name, TensorArgument{desc.dtype, BufferRange{nullptr, 0, round_up(bytes, kTensorAlignment)}, bytes, last});
    bound_operands_.push_back({name, operand});
    defaults_.emplace_back(name + "_size", PushConstantValues{{desc.elements()}, {}});
    defaults_.emplace_back(name + "_shape", make_shape_argument(desc.shape));
  }

  void add_scalar_arguments(const ShaderInterface& interface) {
    for (const auto& [name, text] : description_.numbers)
      if (interface.find_push_constant(name)) arguments_.emplace_back(name, evaluate_argument(text, sizes_));
    for (auto& [name, value] : defaults_) {
      const bool is_set = std::ranges::any_of(arguments_, [&](const auto& entry) { return entry.first == name; });
      if (!is_set && interface.find_push_constant(name)) arguments_.emplace_back(name, std::move(value));
    }
  }

  LaunchSize compute_launch_size() const {
    LaunchSize size{node_.attributes->text("launch") == "groups", {1, 1, 1}};
    const std::vector<int64_t> counts = sizes_.evaluate_list(node_.attributes->text("size"));
    for (size_t axis = 0; axis < std::min<size_t>(counts.size(), 3); ++axis) {
      if (counts[axis] < 0) throw Error("the size of the launch is " + std::to_string(counts[axis]) + " on axis " + std::to_string(axis));
      size.count[axis] = static_cast<uint64_t>(counts[axis]);
    }
    return size;
  }

  void add_step() {
    Dispatch dispatch = bind_kernel(*kernel_, arguments_, compute_launch_size(), description_.macros, spec_);
    if (!dispatch.images.empty()) throw UnsupportedError("the kernel of a node: expected only buffer bindings, given an image");
    Step step{dispatch.kernel, {}, std::move(dispatch.push), dispatch.groups};
    const auto& bindings = dispatch.kernel->interface().bindings;
    for (size_t k = 0; k < bindings.size(); ++k) {
      const auto found = std::ranges::find(bound_operands_, bindings[k].name, &BoundOperand::name);
      Operand operand = found == bound_operands_.end() ? throw Error("nothing is bound to '" + bindings[k].name + "'") : found->operand;
      operand.bytes = dispatch.buffers[k].bytes;
      operand.is_exact = operand.bytes > 0;
      step.operands.push_back(operand);
    }
    node_.add(std::move(step));
    for (const auto& [j, copy] : output_copies_) {
      const TensorDesc& y = node_.output(j);
      if (y.elements() == 0) continue;
      if (copy.desc.dtype == y.dtype)
        add_strided_copy(node_, y.dtype, {{y.elements()}, {{1}, {1}}}, {copy.operand},
                         {.operand = node_.output_operand(j), .owns_words = false});
      else
        CompositeLowering(node_).add_elementwise("a0", {copy}, {y, node_.output_operand(j)});
    }
  }

  LowerContext& node_;
  KernelDescription description_;
  std::shared_ptr<Kernel> kernel_;
  SizeVariables sizes_;
  std::vector<TensorDesc> output_descs_;
  SpecValues spec_;
  KernelArguments arguments_;
  std::vector<std::pair<std::string, PushConstantValues>>
      defaults_;  // values of `<array>_size` and `<array>_shape`, for kernels that declare these push constants
  std::vector<BoundOperand> bound_operands_;
  std::vector<std::pair<size_t, TensorOperand>> output_copies_;  // outputs that are copied to their destination at the end
};

}  // namespace

void lower_user_kernel(LowerContext& node) {
  const std::string where = node.attributes->text("operator") + ": kernel '" + node.attributes->text("kernel") + "': ";
  try {
    UserKernelLowering(node).run();
  } catch (const UnsupportedError& error) {
    throw UnsupportedError("node '" + std::string(node.node) + "': " + where + error.what());
  } catch (const ShaderCompileError&) {
    throw;
  } catch (const DeviceError&) {
    throw;
  } catch (const GraphError&) {
    throw;
  } catch (const Error& error) {
    throw GraphError(std::string(node.node), where + error.what());
  }
}

}  // namespace pumice
