// Parses raw command structures.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dv/commands/command.h"

namespace pumice::dv {

// Parses a command. If it is invalid, throws Refusal naming the run and the field. `strict` also rejects what the vendor's hardware does
// not support.
Command read_command(std::span<const std::byte> raw, const MemoryResolver& resolve, bool strict);

// Returns the bytes needed at each memory field ("run[2].weight_buf"), by the same rules; the memories themselves are not checked.
std::vector<std::pair<std::string, uint64_t>> required_bytes(std::span<const std::byte> raw, bool strict);
// Returns the size (width, height, channels) of each run's output, checked like required_bytes(). Throws Refusal for commands other than
// convolutions.
std::vector<Extent> run_outputs(std::span<const std::byte> raw, bool strict);

}  // namespace pumice::dv
