// Lowers LSTM, GRU and RNN: one GEMM for the inputs of all time steps, then one dispatch per time step (two for a GRU with
// linear_before_reset = 0) for all sequences and directions.
#include <algorithm>

#include "core/rounding.h"
#include "operators/conv_gemm/conv_gemm_dispatch.h"
#include "operators/recurrent/lowerings.h"
#include "operators/recurrent/recurrent.h"
#include "operators/recurrent/recurrent_states.h"

namespace pumice {
namespace {

enum RecurrentInput : size_t { kX, kW, kR, kB, kLengths, kPeepholes = 7 };
constexpr int64_t kUnits = 16;  // number of units per workgroup

// Sizes of a recurrent layer. Its ONNX tensors are time-major, or batch-major with layout 1.
struct LayerSizes {
  int64_t steps, batch, inputs, directions, gates, units, width;
  bool batch_first;

  int64_t state_elements() const { return directions * batch * width; }  // number of elements per kind of state
};

bool is_linear_before_reset(const NodeContext& node) {
  return node.attributes->integer("linear_before_reset", 0) != 0;
}

LayerSizes get_layer_sizes(const LowerContext& node) {
  const Shape &x = node.input(kX).shape, &r = node.input(kR).shape;
  const bool batch_first = node.attributes->integer("layout", 0) != 0;
  const int64_t units = r[2];
  return {x[batch_first ? 1 : 0],
          x[batch_first ? 0 : 1],
          x[2],
          r[0],
          find_recurrent_cell(node.row->form).gates,
          units,
          round_up(units, int64_t{4}),
          batch_first};
}

WeightView view_input_weights(const TensorDesc& w) {
  const int64_t k = w.shape[2];
  return {1, w.shape[0] * w.shape[1], k, 1, 0, k, 1, 0};
}

WeightView view_recurrent_weights(const TensorDesc& r) {
  const int64_t units = r.shape[2];
  return {units == 0 ? 0 : r.shape[0] * r.shape[1] / units, units, units, 1, units * units, units, 1, 0};
}

void pack_biases(const PackContext& node, PackedWeight& packed) {
  const TensorDesc &bias = node.input(kB), &r = node.input(kR);
  const int64_t directions = r.shape[0], units = r.shape[2], gates = units == 0 ? 0 : r.shape[1] / units;
  const int64_t count = directions * (gates + 1) * units;
  packed.desc = TensorDesc(DType::float32, {count});
  const auto kernel = node.kernel(
      "recurrent_bias.comp", bias.dtype,
      {{"SOURCE_FLOAT", bias.dtype == DType::float32 ? "1" : "0"}, {"SEPARATE_RESET_BIAS", is_linear_before_reset(node) ? "1" : "0"}});
  packed.steps = make_elementwise_packing(
      kernel, count, [=](StepBuilder& step) { step.set("directions", directions).set("gates", gates).set("units", units); });
}

// Adds the GEMM of the inputs of all time steps with the weights of all gates, plus biases. Returns its result.
Operand add_input_gemm(LowerContext& node, const LayerSizes& layer, const std::optional<Operand>& biases) {
  const int64_t rows = layer.steps * layer.batch, columns = layer.directions * layer.gates * layer.units;
  const Operand gate_memory = node.add_temporary(TensorDesc(node.float_dtype, {rows, columns}).bytes());
  ConvGemmParams c = make_gemm_params(make_matrix_view(rows, layer.inputs, layer.inputs, 1), view_input_weights(node.input(kW)),
                                      make_matrix_view(rows, columns, columns, 1));
  const Operand left = prepare_gemm_input(node, c), weights = node.get_packed_input(kW);
  ConvGemmBias bias;
  if (biases) bias = {ConvGemmBias::BiasKind::channels, *biases};
  add_conv_gemm(node, c, left, weights, bias, gate_memory);
  return gate_memory;
}

// Builds the dispatches of the time steps. A kernel computes one time step, or many time steps of a small layer.
class RecurrentKernel {
 public:
  RecurrentKernel(LowerContext& node, const LayerSizes& layer, const Operand& gate_inputs, const Operand& state,
                  const std::optional<Operand>& biases)
      : node_(node), layer_(layer) {
    rows_per_group_ = layer.batch >= 4 ? 4 : layer.batch >= 2 ? 2 : 1;
    const int form = node.row->form;
    is_two_dispatches_ = form == kGruCell && !is_linear_before_reset(node);
    separate_outputs_ = has_separate_output(*node.attributes, 0);
    steps_per_dispatch_ = choose_steps_per_dispatch();
    bind("x", gate_inputs);
    pack_recurrent_weights();
    if (!is_split_by_gate_) bind("r", weights_);
    bind("state", state);
    const bool hidden_bias = is_linear_before_reset(node) && biases;
    if (node.has_output(0)) bind("y", node.output_operand(0));
    if (separate_outputs_ && node.has_output(kBackward)) bind("back", node.output_operand(kBackward));
    if (node.has_input(kLengths)) bind("lengths", node.input_operand(kLengths));
    if (node.has_input(kPeepholes)) bind("peepholes", node.get_packed_input(kPeepholes));
    if (hidden_bias) bind("bias", *biases);
    const Macros macros = make_cell_macros(form, hidden_bias);
    if (steps_per_dispatch_ > 0) {
      const SpecValues spec = {{"INVOCATIONS", static_cast<double>(round_up(layer.units, kUnits))},
                               {"VEC4_PER_ROW", static_cast<double>(layer.width / 4)}};
      kernels_ = {node.kernel("recurrent_multi_step.comp", node.float_dtype, macros, spec)};
      return;
    }
    bind("state_vec4", state);
    build_step_kernels(macros);
  }

  // Adds all time steps. The initial hidden state is at offset 0. Returns the offset of the final hidden state.
  int64_t add_time_steps() {
    int64_t from = 0;
    for (int64_t step = 0; step < layer_.steps; step += std::max<int64_t>(steps_per_dispatch_, 1)) {
      // A unit reads the old states of all units, so states are double-buffered. Two cases need no second buffer: with two dispatches per
      // step, only the first one reads old states of other units; and the multi-step kernel keeps states in shared memory.
      const int64_t to = is_two_dispatches_ || steps_per_dispatch_ > 0 ? from : layer_.state_elements() - from;
      for (size_t phase = 0; phase < kernels_.size(); ++phase)
        for (int64_t direction = 0; direction < (is_split_by_gate_ ? layer_.directions : 1); ++direction)
          for (int64_t block = 0; block < blocks_; block += blocks_per_dispatch_) add_dispatch(phase, direction, block, step, from, to);
      from = to;
    }
    return from;
  }

 private:
  static std::string format_bool_macro(bool value) { return value ? "1" : "0"; }

  // Macros shared by the single-step and multi-step kernels.
  Macros make_cell_macros(int form, bool hidden_bias) const {
    Macros macros = {{"CELL", form == kRnnCell     ? "kRnn"
                              : form == kLstmCell  ? "kLstm"
                              : is_two_dispatches_ ? "kGru"
                                                   : "kGruLinear"},
                     {"ROWS", std::to_string(rows_per_group_)},
                     {"SEPARATE_OUTPUTS", format_bool_macro(separate_outputs_)},
                     {"HAS_Y", format_bool_macro(node_.has_output(0))},
                     {"HAS_BACK", format_bool_macro(separate_outputs_ && node_.has_output(kBackward))},
                     {"HAS_LENGTHS", format_bool_macro(node_.has_input(kLengths))},
                     {"HAS_PEEPHOLES", format_bool_macro(node_.has_input(kPeepholes))},
                     {"HAS_HIDDEN_BIAS", format_bool_macro(hidden_bias)},
                     {"COUPLED", format_bool_macro(node_.attributes->integer("input_forget", 0) != 0)},
                     {"CLIPS", format_bool_macro(node_.attributes->has("clip"))}};
    add_store_macros("Y", "y", 0, macros);
    add_store_macros("BACK", "back", kBackward, macros);
    const auto activations = make_activation_glsl(form, node_.node, *node_.attributes);
    for (size_t i = 0; i < 3; ++i) {
      const auto& [first, second] = activations[std::min(i, activations.size() - 1)];
      macros.emplace_back(std::string(1, "FGH"[i]), first == second ? first : "(d == 0u ? (" + first + ") : (" + second + "))");
    }
    return macros;
  }

  // Adds the macros that store an output, if present.
  void add_store_macros(const std::string& name, const std::string& array, size_t output, Macros& macros) const {
    if (!node_.has_output(output)) return;
    macros.emplace_back(name + "_TYPE", glsl_array_type(node_.output(output)));
    macros.emplace_back("STORE_" + name + "(i, v)", make_store_glsl(node_.output(output), array, "i", "v"));
  }

  // Packs the recurrent weights. If they exceed a binding, each gate has its own binding, and the multi-step kernel is not used.
  void pack_recurrent_weights() {
    weights_ = node_.get_packed_input(kR);
    blocks_ = ceil_div(layer_.units, kUnits);
    block_bytes_ = kUnits * layer_.width * static_cast<int64_t>(bits(node_.float_dtype)) / 8;
    is_split_by_gate_ = layer_.directions * layer_.gates * blocks_ * block_bytes_ > max_binding_bytes(*node_.context);
    if (is_split_by_gate_) steps_per_dispatch_ = 0;
    const auto boundary = static_cast<int64_t>(kBindingBoundary), slack = block_bytes_ % boundary == 0 ? int64_t{0} : boundary;
    blocks_per_dispatch_ =
        is_split_by_gate_ ? std::clamp<int64_t>((max_binding_bytes(*node_.context) - slack) / block_bytes_, 1, blocks_) : blocks_;
  }

  void build_step_kernels(Macros macros) {
    const int64_t split = choose_split();
    macros.emplace_back("REDUCES_SPLIT", format_bool_macro(split > 1));
    macros.emplace_back("GATE_BINDINGS", format_bool_macro(is_split_by_gate_));
    macros.emplace_back("CPU_VARIANT", format_bool_macro(node_.prefers_cpu_kernels()));
    macros.emplace_back("PHASE", "0");
    for (const char* phase : {"0", "1"}) {
      if (*phase == '1' && !is_two_dispatches_) break;
      macros.back().second = phase;
      kernels_.push_back(node_.kernel("recurrent_step.comp", node_.float_dtype, macros, {{"SPLIT", static_cast<double>(split)}}));
    }
  }

  void bind(std::string_view name, const Operand& operand) { operands_.emplace_back(name, operand); }

  // Binds the recurrent weights of each gate separately, for a range of unit blocks. Used if all weights together exceed a binding.
  void bind_gates(StepBuilder& builder, size_t phase, int64_t direction, int64_t first_block) const {
    constexpr std::string_view kNames[] = {"r", "r1", "r2", "r3"};
    const int64_t first = phase == 1 ? 2 : 0, count = !is_two_dispatches_ ? layer_.gates : phase == 1 ? 1 : 2;
    const int64_t blocks = std::min(blocks_per_dispatch_, blocks_ - first_block);
    const int four_bits = 4 * bits(node_.float_dtype);
    const int64_t vec4_per_block = block_bytes_ * 8 / four_bits;  // vec4s per block
    for (int64_t gate = 0; gate < count; ++gate) {
      const int64_t block = (direction * layer_.gates + first + gate) * blocks_ + first_block;
      builder.bind(kNames[gate], weights_, block * vec4_per_block, blocks * vec4_per_block, static_cast<size_t>(four_bits));
    }
    for (size_t gate = static_cast<size_t>(count); gate < std::size(kNames); ++gate) builder.set(std::string(kNames[gate]) + "_offset", 0);
    builder.set("direction", direction).set("first_block", first_block).set("blocks", blocks);
  }

  void add_dispatch(size_t phase, int64_t direction, int64_t block, int64_t step, int64_t from, int64_t to) {
    const auto& [steps, batch, inputs, directions, gates, units, width, batch_first] = layer_;
    StepBuilder builder(kernels_[phase]);
    if (is_split_by_gate_) bind_gates(builder, phase, direction, block);
    for (const auto& [name, operand] : operands_) builder.bind(name, operand);
    builder.set("step", step).set("steps", steps).set("batch", batch).set("units", units).set("width", width).set("directions", directions);
    builder.set("h_from", from).set("h_to", to).set("cells", 2 * layer_.state_elements());
    builder.set("x_stride_t", batch_first ? 1 : batch).set("x_stride_b", batch_first ? steps : 1);
    set_output_strides(builder);
    builder.set("hidden_bias", directions * gates * units).set("clip", node_.attributes->real("clip", 0));
    builder.set("reversed", node_.attributes->text("direction", "forward") == "reverse" ? 1 : 0);
    if (steps_per_dispatch_ > 0) builder.set("count", std::min(steps_per_dispatch_, steps - step));
    builder.set_workgroups(static_cast<uint64_t>(steps_per_dispatch_ > 0 ? 1 : std::min(blocks_per_dispatch_, blocks_ - block)),
                           static_cast<uint64_t>(ceil_div(batch, rows_per_group_)),
                           static_cast<uint64_t>(is_split_by_gate_ ? 1 : directions));
    node_.add(builder.build());
  }

  // Y is [steps, directions, batch, units], or [batch, steps, directions, units] with layout 1.
  void set_output_strides(StepBuilder& builder) const {
    const int64_t units = layer_.units,
                  row = separate_outputs_ ? units : layer_.directions * units;  // elements per time step of a sequence
    const bool batch_before_directions = layer_.batch_first || node_.attributes->integer(kBatchBeforeDirections, 0) != 0;
    builder.set("y_stride_t", layer_.batch_first ? row : layer_.batch * row)
        .set("y_stride_d", batch_before_directions ? units : layer_.batch * units);
    builder.set("y_stride_b", layer_.batch_first ? layer_.steps * row : batch_before_directions ? row : units);
  }

  // Returns the number of invocations that share the dot product of a unit, each with at least kMinVec4 vec4s.
  int64_t choose_split() const {
    constexpr int64_t kMaxSplit = 16, kMinVec4 = 4;
    int64_t split = 1;
    const auto fits = [&](int64_t splits) {
      const auto bytes = static_cast<uint64_t>(splits * rows_per_group_ * layer_.gates * kUnits * 4);
      return splits * kUnits <= node_.max_invocations() && bytes <= node_.context->limit("maxComputeSharedMemorySize");
    };
    while (!node_.prefers_cpu_kernels() && split < kMaxSplit && layer_.width / 4 >= 2 * split * kMinVec4 && fits(split * 2)) split *= 2;
    return split;
  }

  // Returns the number of time steps per dispatch, if the layer is small enough for one workgroup to keep the state; else 0.
  int64_t choose_steps_per_dispatch() const {
    constexpr int64_t kIterationLimit = 32768;  // loop iterations per invocation; the smallest limit of any device
    const int64_t max_units = node_.prefers_cpu_kernels() ? 128 : 64;
    if (layer_.units > max_units || layer_.steps < 2) return 0;
    return kIterationLimit / (layer_.width / 2 + 16);
  }

  LowerContext& node_;
  const LayerSizes& layer_;
  int64_t rows_per_group_, steps_per_dispatch_;
  bool is_two_dispatches_;
  bool separate_outputs_ = false;                              // whether each direction has its own outputs
  Operand weights_;                                            // recurrent weights
  int64_t blocks_ = 0, block_bytes_ = 0;                       // blocks of units per gate, and bytes per block
  int64_t blocks_per_dispatch_ = 0;                            // number of blocks per dispatch
  bool is_split_by_gate_ = false;                              // each gate has its own binding, and each direction its own dispatches
  std::vector<std::shared_ptr<const KernelVariant>> kernels_;  // kernels of a time step
  std::vector<std::pair<std::string_view, Operand>> operands_;
};

}  // namespace

bool pack_recurrent(const PackContext& node, size_t input, PackedWeight& packed) {
  if (input == kW)
    pack_weights(node, input, view_input_weights(node.input(kW)), 1, packed);
  else if (input == kR)
    pack_cpu_weights(node, node.input(kR), view_recurrent_weights(node.input(kR)), packed);
  else if (input == kB && node.inputs[kR])
    pack_biases(node, packed);
  else if (input == kPeepholes)
    pack_as_float32(node, input, 1, packed);
  else
    return false;
  return true;
}

void lower_recurrent(LowerContext& node) {
  const LayerSizes layer = get_layer_sizes(node);
  if (layer.state_elements() == 0) return;
  node.check_loop_limit(layer.width / 4);
  const bool is_lstm = node.row->form == kLstmCell, is_two_dispatches = node.row->form == kGruCell && !is_linear_before_reset(node);
  const int64_t size = layer.state_elements(), kinds = is_lstm ? 3 : is_two_dispatches ? 4 : 2;
  const Operand state = node.add_temporary(TensorDesc(DType::float32, {kinds * size}).bytes());
  const StateSizes sizes{layer.directions, layer.batch, layer.units, layer.width, layer.batch_first};
  const int64_t cells = is_lstm ? 2 * size : -1;
  add_initial_states(node, sizes, state, cells);
  int64_t last = 0;
  if (layer.steps > 0) {
    const std::optional<Operand> biases = node.has_input(kB) ? std::optional(node.get_packed_input(kB)) : std::nullopt;
    const Operand gate_inputs = add_input_gemm(node, layer, biases);
    last = RecurrentKernel(node, layer, gate_inputs, state, biases).add_time_steps();
  }
  add_final_states(node, sizes, state, last, cells);
}

}  // namespace pumice
