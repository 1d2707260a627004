// Raw structures read as commands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dv/commands/command.h"

namespace pumice::dv {

// Reads a command. Throws Refusal, which names the run and the field. `strict` also refuses what the vendor's hardware does not take.
Command read_command(std::span<const std::byte> raw, const Resolve& resolve, bool strict);

// Bytes that a command needs at each place that it names ("run[2].weight_buf"), by the same rules; the places themselves are not looked at.
std::vector<std::pair<std::string, uint64_t>> required_bytes(std::span<const std::byte> raw, bool strict);
// The extent (width, height, channels) of each run's result, checked like required_bytes(). Throws Refusal for anything but a convolution.
std::vector<Extent> run_outputs(std::span<const std::byte> raw, bool strict);

}  // namespace pumice::dv
