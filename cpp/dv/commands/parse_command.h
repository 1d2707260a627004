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

// Parses a command. If it is invalid, throws DvError naming the run and the field. `strict`: also rejects commands that the vendor's
// hardware does not support.
Command parse_command(std::span<const std::byte> raw, const MemoryResolver& resolve, bool strict);

// Returns the bytes that a command needs at each memory field ("run[2].weight_buf"). Applies the same rules, but does not check the
// memories.
std::vector<std::pair<std::string, uint64_t>> compute_required_bytes(std::span<const std::byte> raw, bool strict);
// Returns the size (width, height, channels) of each run's output, checked like compute_required_bytes(). Throws DvError for commands other
// than convolutions.
std::vector<Extent> compute_run_outputs(std::span<const std::byte> raw, bool strict);

}  // namespace pumice::dv
