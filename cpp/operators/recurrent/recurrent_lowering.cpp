// LSTM, GRU and RNN: one GEMM for the input of all time steps, then one dispatch per time step for all sequences and directions (two for a
// GRU with linear_before_reset = 0).
#include <algorithm>

#include "core/rounding.h"
#include "operators/conv_gemm/conv_gemm_dispatch.h"
#include "operators/recurrent/lowerings.h"
#include "operators/recurrent/recurrent.h"
#include "operators/recurrent/recurrent_states.h"

namespace pumice {
namespace {

enum Input : size_t { kX, kW, kR, kB, kLengths, kPeepholes = 7 };
constexpr int64_t kUnits = 16;  // number of units per workgroup

// Sizes of a layer. ONNX tensors are time-major, or batch-major with layout 1.
struct Layer {
  int64_t steps, batch, inputs, directions, gates, units, width;
  bool batch_first;

  int64_t state() const { return directions * batch * width; }  // number of elements per kind of state
};

bool is_linear(const NodeContext& node) {
  return node.attributes->integer("linear_before_reset", 0) != 0;
}

Layer layer_of(const LowerContext& node) {
  const Shape &x = node.input(kX).shape, &r = node.input(kR).shape;
  const bool batch_first = node.attributes->integer("layout", 0) != 0;
  const int64_t units = r[2];
  return {x[batch_first ? 1 : 0],
          x[batch_first ? 0 : 1],
          x[2],
          r[0],
          recurrent_cell(node.row->form).gates,
          units,
          round_up(units, int64_t{4}),
          batch_first};
}

WeightView input_weights(const TensorDesc& w) {
  const int64_t depth = w.shape[2];
  return {1, w.shape[0] * w.shape[1], depth, 1, 0, depth, 1, 0};
}

WeightView recurrent_weights(const TensorDesc& r) {
  const int64_t units = r.shape[2];
  return {units == 0 ? 0 : r.shape[0] * r.shape[1] / units, units, units, 1, units * units, units, 1, 0};
}

void pack_biases(const PackContext& node, PackedWeight& packed) {
  const TensorDesc &bias = node.input(kB), &r = node.input(kR);
  const int64_t directions = r.shape[0], units = r.shape[2], gates = units == 0 ? 0 : r.shape[1] / units;
  const int64_t count = directions * (gates + 1) * units;
  packed.desc = TensorDesc(DType::float32, {count});
  const auto kernel = node.kernel("recurrent_bias.comp", bias.dtype,
                                  {{"SOURCE_FLOAT", bias.dtype == DType::float32 ? "1" : "0"}, {"APART", is_linear(node) ? "1" : "0"}});
  packed.steps =
      packing_each(kernel, count, [=](StepBuilder& step) { step.set("directions", directions).set("gates", gates).set("units", units); });
}

// Input GEMM of all time steps with the weights of all gates, plus biases.
Operand input_products(LowerContext& node, const Layer& layer, const std::optional<Operand>& biases) {
  const int64_t rows = layer.steps * layer.batch, columns = layer.directions * layer.gates * layer.units;
  const Operand made = node.temporary(TensorDesc(node.float_dtype, {rows, columns}).bytes());
  Contraction c = matrix_product(matrix_planes(rows, layer.inputs, layer.inputs, 1), input_weights(node.input(kW)),
                                 matrix_planes(rows, columns, columns, 1));
  const Operand left = matrix_rows(node, c), weights = node.packed(kW);
  ContractionBias bias;
  if (biases) bias = {ContractionBias::Kind::channels, *biases};
  add_contraction(node, c, left, weights, bias, made);
  return made;
}

// Kernel for one time step, or for many time steps of a small layer.
class StepKernel {
 public:
  StepKernel(LowerContext& node, const Layer& layer, const Operand& products, const Operand& state, const std::optional<Operand>& biases)
      : node_(node), layer_(layer) {
    rows_ = layer.batch >= 4 ? 4 : layer.batch >= 2 ? 2 : 1;
    const int form = node.row->form;
    two_parts_ = form == kGruCell && !is_linear(node);
    apart_ = is_apart(*node.attributes, 0);
    held_steps_ = held_steps();
    bind("x", products);
    place_weights();
    if (!cut_) bind("r", weights_);
    bind("state", state);
    const bool hidden_bias = is_linear(node) && biases;
    if (node.has_output(0)) bind("y", node.out(0));
    if (apart_ && node.has_output(kBackward)) bind("back", node.out(kBackward));
    if (node.has_input(kLengths)) bind("lengths", node.in(kLengths));
    if (node.has_input(kPeepholes)) bind("peepholes", node.packed(kPeepholes));
    if (hidden_bias) bind("bias", *biases);
    const Macros macros = cell_macros(form, hidden_bias);
    if (held_steps_ > 0) {
      const SpecValues spec = {{"INVOCATIONS", static_cast<double>(round_up(layer.units, kUnits))},
                               {"QUADS", static_cast<double>(layer.width / 4)}};
      kernels_ = {node.kernel("recurrent_multi_step.comp", node.float_dtype, macros, spec)};
      return;
    }
    bind("fours", state);
    make_step_kernels(macros);
  }

  // Adds all time steps, starting from the hidden state at 0; returns the offset of the last state.
  int64_t add_all() {
    int64_t from = 0;
    for (int64_t step = 0; step < layer_.steps; step += std::max<int64_t>(held_steps_, 1)) {
      // The units of a step read each other's old states, so new states are double-buffered. Two kernels need no second buffer: the second
      // part of a GRU reads what the first computed from the old states, and the multi-step kernel keeps states in shared memory.
      const int64_t to = two_parts_ || held_steps_ > 0 ? from : layer_.state() - from;
      for (size_t part = 0; part < kernels_.size(); ++part)
        for (int64_t direction = 0; direction < (cut_ ? layer_.directions : 1); ++direction)
          for (int64_t block = 0; block < blocks_; block += at_once_) add(part, direction, block, step, from, to);
      from = to;
    }
    return from;
  }

 private:
  static std::string told(bool value) { return value ? "1" : "0"; }

  // Macros shared by the single-step and multi-step kernels.
  Macros cell_macros(int form, bool hidden_bias) const {
    Macros macros = {{"CELL", form == kRnnCell    ? "kRnn"
                              : form == kLstmCell ? "kLstm"
                              : two_parts_        ? "kGru"
                                                  : "kGruLinear"},
                     {"ROWS", std::to_string(rows_)},
                     {"APART", told(apart_)},
                     {"HAS_Y", told(node_.has_output(0))},
                     {"HAS_BACK", told(apart_ && node_.has_output(kBackward))},
                     {"HAS_LENGTHS", told(node_.has_input(kLengths))},
                     {"HAS_PEEPHOLES", told(node_.has_input(kPeepholes))},
                     {"HAS_HIDDEN_BIAS", told(hidden_bias)},
                     {"COUPLED", told(node_.attributes->integer("input_forget", 0) != 0)},
                     {"CLIPS", told(node_.attributes->has("clip"))}};
    add_output("Y", "y", 0, macros);
    add_output("BACK", "back", kBackward, macros);
    const auto activations = recurrent_activations(form, node_.node, *node_.attributes);
    for (size_t i = 0; i < 3; ++i) {
      const auto& [first, second] = activations[std::min(i, activations.size() - 1)];
      macros.emplace_back(std::string(1, "FGH"[i]), first == second ? first : "(d == 0u ? (" + first + ") : (" + second + "))");
    }
    return macros;
  }

  // Adds the macros that store an output, if present.
  void add_output(const std::string& name, const std::string& array, size_t output, Macros& macros) const {
    if (!node_.has_output(output)) return;
    macros.emplace_back(name + "_TYPE", array_type(node_.output(output)));
    macros.emplace_back("STORE_" + name + "(i, v)", stored(node_.output(output), array, "i", "v"));
  }

  // Packs the recurrent weights. If they exceed a binding, they are bound in parts and the multi-step kernel is not used.
  void place_weights() {
    weights_ = node_.packed(kR);
    blocks_ = ceil_div(layer_.units, kUnits);
    block_bytes_ = kUnits * layer_.width * static_cast<int64_t>(bits(node_.float_dtype)) / 8;
    cut_ = layer_.directions * layer_.gates * blocks_ * block_bytes_ > largest_range(*node_.context);
    if (cut_) held_steps_ = 0;
    const auto boundary = static_cast<int64_t>(kBindingBoundary), slack = block_bytes_ % boundary == 0 ? int64_t{0} : boundary;
    at_once_ = cut_ ? std::clamp<int64_t>((largest_range(*node_.context) - slack) / block_bytes_, 1, blocks_) : blocks_;
  }

  void make_step_kernels(Macros macros) {
    const int64_t split = split_of();
    macros.emplace_back("MEETS", told(split > 1));
    macros.emplace_back("CUT", told(cut_));
    macros.emplace_back("LANES", told(node_.prefers_lanes()));
    macros.emplace_back("PART", "0");
    for (const char* part : {"0", "1"}) {
      if (*part == '1' && !two_parts_) break;
      macros.back().second = part;
      kernels_.push_back(node_.kernel("recurrent_step.comp", node_.float_dtype, macros, {{"SPLIT", static_cast<double>(split)}}));
    }
  }

  void bind(std::string_view name, const Operand& operand) { operands_.emplace_back(name, operand); }

  // Binds the recurrent weights per gate, for some blocks of units, if all together exceed a binding.
  void bind_gates(StepBuilder& builder, size_t part, int64_t direction, int64_t first_block) const {
    constexpr std::string_view kNames[] = {"r", "r1", "r2", "r3"};
    const int64_t first = part == 1 ? 2 : 0, count = !two_parts_ ? layer_.gates : part == 1 ? 1 : 2;
    const int64_t blocks = std::min(at_once_, blocks_ - first_block);
    const int four_bits = 4 * bits(node_.float_dtype);
    const int64_t fours = block_bytes_ * 8 / four_bits;  // vec4s per block
    for (int64_t gate = 0; gate < count; ++gate) {
      const int64_t block = (direction * layer_.gates + first + gate) * blocks_ + first_block;
      builder.bind(kNames[gate], weights_, block * fours, blocks * fours, static_cast<size_t>(four_bits));
    }
    for (size_t gate = static_cast<size_t>(count); gate < std::size(kNames); ++gate) builder.set(std::string(kNames[gate]) + "_offset", 0);
    builder.set("direction", direction).set("first_block", first_block).set("blocks", blocks);
  }

  void add(size_t part, int64_t direction, int64_t block, int64_t step, int64_t from, int64_t to) {
    const auto& [steps, batch, inputs, directions, gates, units, width, batch_first] = layer_;
    StepBuilder builder(kernels_[part]);
    if (cut_) bind_gates(builder, part, direction, block);
    for (const auto& [name, operand] : operands_) builder.bind(name, operand);
    builder.set("step", step).set("steps", steps).set("batch", batch).set("units", units).set("width", width).set("directions", directions);
    builder.set("h_from", from).set("h_to", to).set("cells", 2 * layer_.state());
    builder.set("x_stride_t", batch_first ? 1 : batch).set("x_stride_b", batch_first ? steps : 1);
    set_output_strides(builder);
    builder.set("hidden_bias", directions * gates * units).set("clip", node_.attributes->real("clip", 0));
    builder.set("reversed", node_.attributes->text("direction", "forward") == "reverse" ? 1 : 0);
    if (held_steps_ > 0) builder.set("count", std::min(held_steps_, steps - step));
    builder.groups(static_cast<uint64_t>(held_steps_ > 0 ? 1 : std::min(at_once_, blocks_ - block)),
                   static_cast<uint64_t>(ceil_div(batch, rows_)), static_cast<uint64_t>(cut_ ? 1 : directions));
    node_.add(builder.build());
  }

  // Y is [steps, directions, batch, units], or [batch, steps, directions, units] with layout 1.
  void set_output_strides(StepBuilder& builder) const {
    const int64_t units = layer_.units, row = apart_ ? units : layer_.directions * units;  // elements per time step of a sequence
    const bool rows_first = layer_.batch_first || node_.attributes->integer(kRowsFirst, 0) != 0;
    builder.set("y_stride_t", layer_.batch_first ? row : layer_.batch * row).set("y_stride_d", rows_first ? units : layer_.batch * units);
    builder.set("y_stride_b", layer_.batch_first ? layer_.steps * row : rows_first ? row : units);
  }

  // Number of invocations that share the dot product of a unit, each with at least kLeastFours vec4s.
  int64_t split_of() const {
    constexpr int64_t kMostSplit = 16, kLeastFours = 4;
    int64_t split = 1;
    const auto fits = [&](int64_t parts) {
      const auto bytes = static_cast<uint64_t>(parts * rows_ * layer_.gates * kUnits * 4);
      return parts * kUnits <= node_.most_invocations() && bytes <= node_.context->limit("maxComputeSharedMemorySize");
    };
    while (!node_.prefers_lanes() && split < kMostSplit && layer_.width / 4 >= 2 * split * kLeastFours && fits(split * 2)) split *= 2;
    return split;
  }

  // Number of time steps per dispatch, if the layer is small enough for one workgroup to keep the state; else 0.
  int64_t held_steps() const {
    constexpr int64_t kMostIterations = 32768;  // maximum number of loop iterations per invocation, the smallest limit of any device
    const int64_t most_units = node_.prefers_lanes() ? 128 : 64;
    if (layer_.units > most_units || layer_.steps < 2) return 0;
    return kMostIterations / (layer_.width / 2 + 16);
  }

  LowerContext& node_;
  const Layer& layer_;
  int64_t rows_, held_steps_;
  bool two_parts_;
  bool apart_ = false;                    // whether each direction has its own outputs
  Operand weights_;                       // recurrent weights
  int64_t blocks_ = 0, block_bytes_ = 0;  // number of blocks of units per gate, and size of a block
  int64_t at_once_ = 0;                   // number of blocks per dispatch
  bool cut_ = false;                      // whether each gate has its own binding and each direction its own dispatches
  std::vector<std::shared_ptr<const KernelVariant>> kernels_;  // dispatches of a time step
  std::vector<std::pair<std::string_view, Operand>> operands_;
};

}  // namespace

bool pack_recurrent(const PackContext& node, size_t input, PackedWeight& packed) {
  if (input == kW)
    pack_weights(node, input, input_weights(node.input(kW)), 1, packed);
  else if (input == kR)
    pack_weight_lanes(node, node.input(kR), recurrent_weights(node.input(kR)), packed);
  else if (input == kB && node.inputs[kR])
    pack_biases(node, packed);
  else if (input == kPeepholes)
    pack_floats(node, input, 1, packed);
  else
    return false;
  return true;
}

void lower_recurrent(LowerContext& node) {
  const Layer layer = layer_of(node);
  if (layer.state() == 0) return;
  node.check_loops(layer.width / 4);
  const bool is_lstm = node.row->form == kLstmCell, two_parts = node.row->form == kGruCell && !is_linear(node);
  const int64_t size = layer.state(), kinds = is_lstm ? 3 : two_parts ? 4 : 2;
  const Operand state = node.temporary(TensorDesc(DType::float32, {kinds * size}).bytes());
  const StateSizes sizes{layer.directions, layer.batch, layer.units, layer.width, layer.batch_first};
  const int64_t cells = is_lstm ? 2 * size : -1;
  add_first_states(node, sizes, state, cells);
  int64_t last = 0;
  if (layer.steps > 0) {
    const std::optional<Operand> biases = node.has_input(kB) ? std::optional(node.packed(kB)) : std::nullopt;
    const Operand products = input_products(node, layer, biases);
    last = StepKernel(node, layer, products, state, biases).add_all();
  }
  add_last_states(node, sizes, state, last, cells);
}

}  // namespace pumice
