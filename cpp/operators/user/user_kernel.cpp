// Dispatch of a user kernel for a node: which tensor is bound to which array, its parameters and its launch size.
#include <algorithm>
#include <optional>

#include "core/error.h"
#include "core/number_format.h"
#include "core/rounding.h"
#include "dispatch/kernel/kernel_arguments.h"
#include "operators/common/composition.h"
#include "operators/common/strided_copy.h"
#include "operators/user/lowerings.h"
#include "operators/user/size_rules.h"

namespace pumice {
namespace {

constexpr uint64_t kGrain = 16;  // alignment, in bytes, of tensors in a program's memory
constexpr std::string_view kReal = "r:";

using Texts = std::vector<std::string>;

// A kernel's description, read from a node's attributes.
struct NodeKernel {
  explicit NodeKernel(const Attributes& given)
      : op(given.text("operator")),
        inputs(list(given, "reads")),
        outputs(list(given, "writes")),
        macros(pairs(given, "macros")),
        constants(pairs(given, "constants")),
        numbers(pairs(given, "numbers")) {
    text.source = given.text("source"), text.name = given.text("kernel"), text.path = given.text("path");
    const Texts names = list(given, "include_names"), texts = list(given, "include_texts");
    for (size_t i = 0; i < std::min(names.size(), texts.size()); ++i) text.includes.texts[names[i]] = texts[i];
    text.includes.folders = list(given, "folders");
    if (const auto size = given.integers("local_size"); size.size() == 3)
      text.local_size = LocalSize{static_cast<uint32_t>(size[0]), static_cast<uint32_t>(size[1]), static_cast<uint32_t>(size[2])};
  }

  std::string op;
  KernelText text;
  Texts inputs, outputs;  // array names, indexed by input and output of the node
  Macros macros;
  std::vector<std::pair<std::string, std::string>> constants, numbers;  // pairs of name and expression

 private:
  static Texts list(const Attributes& given, std::string_view name) {
    const auto found = given.all().find(name);
    return found == given.all().end() ? Texts() : std::get<Texts>(found->second);
  }
  // Returns the pairs of a list in which names and values alternate.
  static std::vector<std::pair<std::string, std::string>> pairs(const Attributes& given, std::string_view name) {
    const Texts both = list(given, name);
    std::vector<std::pair<std::string, std::string>> made;
    for (size_t i = 0; i + 1 < both.size(); i += 2) made.emplace_back(both[i], both[i + 1]);
    return made;
  }
};

Number number_of(const std::string& text, const RuleSizes& sizes) {
  if (!text.starts_with(kReal)) return sizes.whole(text);
  const std::string real = text.substr(kReal.size());
  if (const auto known = parsed_number(real)) return *known;
  return sizes.real(real);
}

// "[a;b]" is a list, "a" a scalar.
Numbers numbers_of(const std::string& text, const RuleSizes& sizes) {
  Numbers made;
  if (!text.starts_with('[')) {
    made.values.push_back(number_of(text, sizes));
    return made;
  }
  for (const std::string& part : rule_parts(std::string_view(text).substr(1, text.size() - 2)))
    made.values.push_back(number_of(part, sizes));
  made.shape = {static_cast<uint32_t>(made.values.size())};
  return made;
}

Numbers shape_numbers(const Shape& shape) {
  Numbers made;
  for (const int64_t size : shape) made.values.emplace_back(size);
  made.shape = {static_cast<uint32_t>(shape.size())};
  return made;
}

// Lowers one node. Converts tensors if an array is declared with a different float type than the program stores.
class UserLowering {
 public:
  explicit UserLowering(LowerContext& node)
      : node_(node), given_(*node.attributes), kernel_(node.library->user(node.context, given_.text)) {}

  void run() {
    describe();
    for (const auto& [name, text] : given_.constants) spec_.emplace_back(name, number_of(text, sizes_));
    const auto plain = kernel_->variant(Storage::fp32, given_.macros);
    for (const auto& [name, text] : given_.numbers)
      if (plain->interface().find_spec_constant(name)) spec_.emplace_back(name, number_of(text, sizes_));
    std::ranges::sort(spec_, {}, [](const auto& one) { return one.first; });
    const auto build = kernel_->variant(Storage::fp32, given_.macros, spec_);
    add_tensors(*build);
    add_numbers(build->interface());
    add_step();
  }

 private:
  struct Bound {
    std::string name;
    Operand operand;
  };

  // Collects the sizes used by rules, and the outputs that the kernel writes but nothing reads.
  void describe() {
    std::vector<const TensorDesc*> descs;
    for (size_t i = 0; i < node_.inputs.size(); ++i) {
      descs.push_back(node_.has_input(i) ? &node_.input(i) : nullptr);
      if (node_.has_input(i)) sizes_.add('x', i, node_.input(i).shape);
    }
    ShapeContext context(node_.node, *node_.attributes, std::move(descs), node_.hosts, given_.outputs.size());
    shape_of_user_kernel(context);
    for (auto& made : context.take_outputs()) made_.push_back(std::move(*made));
    for (size_t j = 0; j < made_.size(); ++j) {
      if (node_.has_output(j)) made_[j] = node_.output(j);
      sizes_.add('y', j, made_[j].shape);
    }
  }

  DType floats() const {
    for (const auto& input : node_.inputs)
      if (input && is_working_float(input->dtype)) return input->dtype;
    for (const TensorDesc& made : made_)
      if (is_working_float(made.dtype)) return made.dtype;
    return DType::float32;
  }

  // Returns the dtype in which an array stores a tensor's floats.
  DType dtype_in(const KernelVariant& build, const std::string& name, DType given) {
    const BindingInterface* binding = build.interface().find_binding(name);
    if (!binding || !is_working_float(given)) return given;
    if (follows_storage(*kernel_, name, storage_of(node_.context->info(), floats()), given_.macros, spec_)) return floats();
    if (binding->scalar == ScalarType::float32) return DType::float32;
    return binding->scalar == ScalarType::float16 ? DType::float16 : given;
  }

  void add_tensors(const KernelVariant& build) {
    const bool is_coarse = node_.context->limit("minStorageBufferOffsetAlignment") > kGrain;
    Composition composition(node_);
    for (size_t i = 0; i < node_.inputs.size() && i < given_.inputs.size(); ++i) {
      if (!node_.has_input(i)) continue;
      const TensorDesc& x = node_.input(i);
      const DType wanted = dtype_in(build, given_.inputs[i], x.dtype);
      Operand operand = node_.in(i);
      if (x.elements() > 0 && (wanted != x.dtype || is_coarse || node_.input_phase(i) != 0)) {
        const Piece copy = composition.scratch(wanted, x.shape);
        if (wanted == x.dtype)
          add_strided_copy(node_, wanted, {{x.elements()}, {{1}, {1}}}, {operand}, {copy.operand});
        else
          composition.map("a0", {{x, operand}}, copy);
        operand = copy.operand;
      }
      add_tensor(given_.inputs[i], operand, TensorDesc(wanted, x.shape));
    }
    for (size_t j = 0; j < made_.size(); ++j) {
      const TensorDesc& y = made_[j];
      const DType wanted = dtype_in(build, given_.outputs[j], y.dtype);
      const bool is_own = node_.has_output(j) && wanted == y.dtype && !is_coarse;
      const Operand operand = is_own ? node_.out(j) : composition.scratch(wanted, y.shape).operand;
      add_tensor(given_.outputs[j], operand, TensorDesc(wanted, y.shape));
      if (node_.has_output(j) && !is_own) finished_.emplace_back(j, Piece{TensorDesc(wanted, y.shape), operand});
    }
  }

  void add_tensor(const std::string& name, const Operand& operand, const TensorDesc& desc) {
    const uint64_t bytes = ceil_div(static_cast<uint64_t>(desc.elements()) * static_cast<uint64_t>(bits(desc.dtype)), 8);
    const uint64_t last = desc.shape.empty() ? 1 : static_cast<uint64_t>(desc.shape.back());
    arguments_.emplace_back(name, TensorArgument{desc.dtype, BufferRange{nullptr, 0, round_up(bytes, kGrain)}, bytes, last});
    bound_.push_back({name, operand});
    defaults_.emplace_back(name + "_size", Numbers{{desc.elements()}, {}});
    defaults_.emplace_back(name + "_shape", shape_numbers(desc.shape));
  }

  void add_numbers(const Interface& interface) {
    for (const auto& [name, text] : given_.numbers)
      if (interface.find_push_constant(name)) arguments_.emplace_back(name, numbers_of(text, sizes_));
    for (auto& [name, value] : defaults_) {
      const bool is_given = std::ranges::any_of(arguments_, [&](const auto& one) { return one.first == name; });
      if (!is_given && interface.find_push_constant(name)) arguments_.emplace_back(name, std::move(value));
    }
  }

  LaunchSize launch() const {
    LaunchSize size{node_.attributes->text("launch") == "groups", {1, 1, 1}};
    const std::vector<int64_t> counts = sizes_.list(node_.attributes->text("size"));
    for (size_t axis = 0; axis < std::min<size_t>(counts.size(), 3); ++axis) {
      if (counts[axis] < 0) throw Error("the size of the launch is " + std::to_string(counts[axis]) + " on axis " + std::to_string(axis));
      size.count[axis] = static_cast<uint64_t>(counts[axis]);
    }
    return size;
  }

  void add_step() {
    Dispatch made = bind_kernel(*kernel_, arguments_, launch(), given_.macros, spec_);
    if (!made.images.empty()) throw UnsupportedError("the kernel of a node: expected bindings of buffers alone, given one of an image");
    Step step{made.kernel, {}, std::move(made.push), made.groups};
    const auto& bindings = made.kernel->interface().bindings;
    for (size_t k = 0; k < bindings.size(); ++k) {
      const auto found = std::ranges::find(bound_, bindings[k].name, &Bound::name);
      Operand operand = found == bound_.end() ? throw Error("nothing is bound to '" + bindings[k].name + "'") : found->operand;
      operand.bytes = made.buffers[k].bytes;
      operand.is_exact = operand.bytes > 0;
      step.operands.push_back(operand);
    }
    node_.add(std::move(step));
    for (const auto& [j, piece] : finished_) {
      const TensorDesc& y = node_.output(j);
      if (y.elements() == 0) continue;
      if (piece.desc.dtype == y.dtype)
        add_strided_copy(node_, y.dtype, {{y.elements()}, {{1}, {1}}}, {piece.operand}, {.operand = node_.out(j), .alone = false});
      else
        Composition(node_).map("a0", {piece}, {y, node_.out(j)});
    }
  }

  LowerContext& node_;
  NodeKernel given_;
  std::shared_ptr<Kernel> kernel_;
  RuleSizes sizes_;
  std::vector<TensorDesc> made_;
  SpecValues spec_;
  KernelArguments arguments_;
  std::vector<std::pair<std::string, Numbers>> defaults_;  // parameters that a kernel may declare, named after an array
  std::vector<Bound> bound_;
  std::vector<std::pair<size_t, Piece>> finished_;  // outputs that are copied to their destination at the end
};

}  // namespace

void lower_user_kernel(LowerContext& node) {
  const std::string where = node.attributes->text("operator") + ": kernel '" + node.attributes->text("kernel") + "': ";
  try {
    UserLowering(node).run();
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
