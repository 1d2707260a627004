#include "dv/commands/command.h"

namespace pumice::dv {

FcDims make_weight_dims(const FcCommand& command) {
  return {static_cast<int>(command.inputs), 1, 1, static_cast<int>(command.outputs), 1, 1, command.quantized};
}

int get_device_type(const Command& command) {
  constexpr int types[] = {DMP_DV_DEV_CONV, DMP_DV_DEV_FC, DMP_DV_DEV_IPU, DMP_DV_DEV_MAXIMIZER};
  return types[command.index()];
}

MemoryRange get_written_range(const Command& command) {
  if (const auto* conv = std::get_if<ConvCommand>(&command)) return {conv->output, conv->images * conv->output_elements * sizeof(uint16_t)};
  if (const auto* fc = std::get_if<FcCommand>(&command)) return {fc->output, fc->outputs * sizeof(uint16_t)};
  if (const auto* ipu = std::get_if<IpuCommand>(&command)) return ipu->output_range();
  const auto& maximizer = std::get<ArgmaxCommand>(command);
  return {maximizer.output, uint64_t{maximizer.width} * maximizer.height};
}

}  // namespace pumice::dv
