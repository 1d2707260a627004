#include "operators/recurrent/recurrent_states.h"

#include <algorithm>
#include <array>

#include "operators/recurrent/recurrent.h"

namespace pumice {
namespace {

constexpr int64_t kNone = -1;

// Builds a dispatch that copies between a layer's memory and its state tensors.
class StateCopy {
 public:
  StateCopy(LowerContext& node, const StateSizes& sizes) : node_(node), sizes_(sizes) {}

  // Adds an input or output of the node as array `array`. Returns the GLSL index of the element to copy. The tensor has both directions, or
  // only one if `is_separate`.
  std::string add_tensor(const std::string& array, const TensorDesc& desc, const Operand& operand, bool is_separate) {
    const std::string binding = std::to_string(1 + bound_.size()), access = operand.memory == MemoryKind::input ? "readonly " : "";
    declarations_ +=
        "layout(binding = " + binding + ") " + access + "buffer Tensor" + binding + " { " + glsl_array_type(desc) + " " + array + "[]; }; ";
    offsets_ += "uint " + array + "_offset; ";
    bound_.emplace_back(array, operand);
    return "p." + array + "_offset + " + (is_separate ? "b * p.units" : "d * p.stride_d + b * p.stride_b") + " + unit";
  }

  bool is_empty() const { return bound_.empty(); }

  // Adds the dispatch. `elements`: number of elements per kind of state. `first`, `second`: offsets of the hidden and the cell states, or
  // kNone.
  void add_dispatch(std::string_view shader, const Operand& state, const std::array<std::string, 2>& statements, int64_t elements,
                    int64_t first, int64_t second) {
    const auto& [directions, batch, units, width, batch_first] = sizes_;
    StepBuilder step(
        node_.kernel(shader, node_.float_dtype,
                     {{"DECLARATIONS", declarations_}, {"OFFSETS", offsets_}, {"FIRST", statements[0]}, {"SECOND", statements[1]}}));
    step.bind("state", state);
    for (const auto& [array, operand] : bound_) step.bind(array, operand);
    const int64_t all = elements * (second == kNone ? 1 : 2);
    step.set("elements", all).set("elements_per_state", elements).set("first", first).set("second", std::max<int64_t>(second, 0));
    step.set("width", width).set("units", units).set("batch", batch);
    step.set("stride_d", batch_first ? units : batch * units).set("stride_b", batch_first ? directions * units : units);
    node_.add(step.set_threads(static_cast<uint64_t>(all)).build());
  }

 private:
  LowerContext& node_;
  const StateSizes& sizes_;
  std::string declarations_, offsets_;
  std::vector<std::pair<std::string, Operand>> bound_;
};

constexpr std::array<std::array<const char*, 2>, 2> kArrays{{{"h", "h_back"}, {"c", "c_back"}}};

// Returns GLSL that reads an initial hidden state (kind 0) or cell state (kind 1).
std::string make_initial_state_glsl(LowerContext& node, StateCopy& state_copy, size_t kind) {
  const size_t input = kInitialStates[kind];
  const bool is_separate = node.has_input(input + kBackward);
  const auto read = [&](size_t i, const char* array) {
    if (!node.has_input(i)) return std::string("0.0");
    const TensorDesc& desc = node.input(i);
    const std::string at = state_copy.add_tensor(array, desc, node.input_operand(i), is_separate);
    return desc.dtype == DType::float32 ? std::string(array) + "[" + at + "]" : "pm_load(" + std::string(array) + ", " + at + ")";
  };
  const std::string forward = read(input, kArrays[kind][0]);
  return is_separate ? "d == 0u ? " + forward + " : " + read(input + kBackward, kArrays[kind][1]) : forward;
}

// Returns a GLSL statement that writes a final hidden state (kind 0) or cell state (kind 1); empty if the output is unused.
std::string make_final_state_glsl(LowerContext& node, StateCopy& state_copy, size_t kind) {
  const size_t output = 1 + kind;
  const bool is_separate = has_separate_output(*node.attributes, output);
  const auto write = [&](size_t j, const char* array) {
    if (!node.has_output(j)) return std::string();
    const std::string at = state_copy.add_tensor(array, node.output(j), node.output_operand(j), is_separate);
    return make_store_glsl(node.output(j), array, at, "v");
  };
  const std::string forward = write(output, kArrays[kind][0]);
  if (!is_separate) return forward;
  const std::string backward = write(output + kBackward, kArrays[kind][1]);
  return forward.empty() && backward.empty() ? "" : "if (d == 0u) { " + forward + " } else { " + backward + " }";
}

}  // namespace

std::string glsl_array_type(const TensorDesc& desc) {
  return desc.dtype == DType::float32 ? "float" : "sfp";
}

std::string make_store_glsl(const TensorDesc& desc, const std::string& array, const std::string& index, const std::string& v) {
  if (desc.dtype == DType::float32) return array + "[" + index + "] = " + v + ";";
  return "pm_store(" + array + ", " + index + ", " + v + ");";
}

void add_initial_states(LowerContext& node, const StateSizes& sizes, const Operand& state, int64_t cells) {
  StateCopy state_copy(node, sizes);
  const std::string hidden = make_initial_state_glsl(node, state_copy, 0);
  state_copy.add_dispatch("recurrent_initial_states.comp", state,
                          {hidden, cells == kNone ? "0.0" : make_initial_state_glsl(node, state_copy, 1)}, sizes.elements(), 0, cells);
}

void add_final_states(LowerContext& node, const StateSizes& sizes, const Operand& state, int64_t hidden, int64_t cells) {
  StateCopy state_copy(node, sizes);
  const std::string first = make_final_state_glsl(node, state_copy, 0),
                    second = cells == kNone ? "" : make_final_state_glsl(node, state_copy, 1);
  if (state_copy.is_empty()) return;
  const int64_t elements = sizes.directions * sizes.batch * sizes.units;
  if (first.empty()) return state_copy.add_dispatch("recurrent_final_states.comp", state, {second, ""}, elements, cells, kNone);
  state_copy.add_dispatch("recurrent_final_states.comp", state, {first, second}, elements, hidden, second.empty() ? kNone : cells);
}

}  // namespace pumice
