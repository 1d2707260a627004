#include "dv/commands/parse_command.h"

#include "core/half.h"
#include "dv/commands/command_reader.h"
#include "dv/weights/packing.h"

namespace pumice::dv {
namespace {

constexpr uint64_t kMaxPixels = uint64_t{1} << 24;  // maximum number of pixels of a maximizer command

Activation parse_fc_activation(const CommandReader& reader, uint16_t code) {
  constexpr Activation activations[] = {Activation::none, Activation::leaky_relu, Activation::tanh, Activation::leaky_relu,
                                        Activation::sigmoid};
  if (code == 5) throw DvError("actfunc", "an activation without slopes for each output", "5, PReLU", ENOTSUP);
  reader.require(code < std::size(activations), "actfunc", "an activation from 0 to 4", code);
  return activations[code];
}

}  // namespace

FcCommand parse_fc(const CommandReader& reader, const dmp_dv_cmdraw_fc_v0& raw) {
  FcCommand command{reader.read_address(raw.weight_buf, "weight_buf"), reader.read_address(raw.input_buf, "input_buf"),
                    reader.read_address(raw.output_buf, "output_buf")};
  reader.require_memory(raw.weight_buf, "weight_buf");
  reader.require_memory(raw.input_buf, "input_buf");
  reader.require_memory(raw.output_buf, "output_buf");
  command.inputs = raw.input_size, command.outputs = raw.output_size;
  reader.require(command.inputs > 0, "input_size", "at least 1", command.inputs);
  reader.require(command.outputs > 0, "output_size", "at least 1", command.outputs);
  reader.require_strict(command.inputs <= kMaxFcSize, "input_size", "at most " + std::to_string(kMaxFcSize), command.inputs);
  reader.require_strict(command.outputs <= kMaxFcSize, "output_size", "at most " + std::to_string(kMaxFcSize), command.outputs);
  reader.require(raw.weight_fmt <= 1, "weight_fmt", "0 or 1", raw.weight_fmt);
  command.quantized = raw.weight_fmt == 1;
  command.activation = parse_fc_activation(reader, raw.actfunc);
  command.slope = raw.actfunc == 3 ? float_from_half(raw.actfunc_param) : 0;
  reader.check_address("weight_buf", command.weights, compute_packed_fc_bytes(make_weight_dims(command)), kVendorAlignment);
  reader.check_address("input_buf", command.input, uint64_t{command.inputs} * sizeof(uint16_t));
  reader.check_address("output_buf", command.output, uint64_t{command.outputs} * sizeof(uint16_t));
  return command;
}

ArgmaxCommand parse_argmax(const CommandReader& reader, const dmp_dv_cmdraw_maximizer_v0& raw) {
  ArgmaxCommand command{reader.read_address(raw.input_buf, "input_buf"), reader.read_address(raw.output_buf, "output_buf"), raw.width,
                        raw.height, raw.nclass};
  reader.require_memory(raw.input_buf, "input_buf");
  reader.require_memory(raw.output_buf, "output_buf");
  reader.require(command.width > 0, "width", "at least 1", command.width);
  reader.require(command.height > 0, "height", "at least 1", command.height);
  reader.require_strict(uint64_t{command.width} * command.height < kMaxPixels, "width, height",
                        "fewer than " + std::to_string(kMaxPixels) + " pixels",
                        static_cast<int64_t>(uint64_t{command.width} * command.height));
  reader.require(command.classes >= 2, "nclass", "at least 2", command.classes);
  reader.check_address("input_buf", command.input, Extent{command.width, command.height, command.classes}.bytes(), kVendorAlignment);
  reader.check_address("output_buf", command.output, uint64_t{command.width} * command.height, kVendorAlignment);
  return command;
}

namespace {

Command parse_raw_command(const CommandReader& reader, std::span<const std::byte> raw) {
  dmp_dv_cmdraw header;
  if (raw.size() < sizeof header)
    throw DvError("header.size", "at least " + std::to_string(sizeof header), std::to_string(raw.size()), EINVAL);
  std::memcpy(&header, raw.data(), sizeof header);
  reader.require(header.size == raw.size(), "header.size", std::to_string(raw.size()), header.size, EINVAL);
  reader.require(header.device_type > 0 && header.device_type < DMP_DV_DEV_COUNT, "header.device_type",
                 "a device type from 1 to " + std::to_string(DMP_DV_DEV_COUNT - 1), header.device_type, EINVAL);
  const bool is_supported = header.version == 0 || (header.device_type == DMP_DV_DEV_CONV && header.version == 1);
  reader.require(is_supported, "header.version", header.device_type == DMP_DV_DEV_CONV ? "0 or 1" : "0", header.version, ENOTSUP);
  switch (header.device_type) {
    case DMP_DV_DEV_CONV:
      if (header.version == 1) return parse_conv_v1(reader, reader.parse_struct<dmp_dv_cmdraw_conv_v1>());
      return parse_conv(reader, reader.parse_struct<dmp_dv_cmdraw_conv_v0>());
    case DMP_DV_DEV_FC:
      return parse_fc(reader, reader.parse_struct<dmp_dv_cmdraw_fc_v0>());
    case DMP_DV_DEV_IPU:
      return parse_ipu(reader, reader.parse_struct<dmp_dv_cmdraw_ipu_v0>());
    default:
      return parse_argmax(reader, reader.parse_struct<dmp_dv_cmdraw_maximizer_v0>());
  }
}

}  // namespace

Command parse_command(std::span<const std::byte> raw, const MemoryResolver& resolve, bool strict) {
  return parse_raw_command(CommandReader(raw, resolve, strict), raw);
}

std::vector<std::pair<std::string, uint64_t>> compute_required_bytes(std::span<const std::byte> raw, bool strict) {
  FieldBytes field_bytes;
  parse_raw_command(CommandReader(raw, field_bytes, strict), raw);
  return field_bytes;
}

std::vector<Extent> compute_run_outputs(std::span<const std::byte> raw, bool strict) {
  FieldBytes field_bytes;
  const Command command = parse_raw_command(CommandReader(raw, field_bytes, strict), raw);
  const auto* conv = std::get_if<ConvCommand>(&command);
  if (!conv) throw DvError("header.device_type", "a convolution command", std::to_string(get_device_type(command)));
  std::vector<Extent> outputs;
  for (const ConvRun& run : conv->runs) outputs.push_back(conv->is_transposed ? run.output.transposed() : run.output);
  return outputs;
}

}  // namespace pumice::dv
