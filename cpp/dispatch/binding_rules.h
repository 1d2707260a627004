// The rules of the binding tables: counts and kinds (C), initializers (I), owned tensors (O), memory (M), ranges (R), hazards (H),
// temporary and persistent resources (P). Each refusal is a BindingError with the rule's id; the order is kind, count, null, memory,
// range, alignment, size, hazards.
#pragma once

#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "dispatch/dispatchable.h"

namespace pumice {

// One binding: nothing, a buffer range, or an array of them (an initializer's inputs of one operator).
using BufferArray = std::vector<BufferRange>;
using Binding = std::variant<std::monostate, BufferRange, BufferArray>;

// What a table holds. Lists are empty optionals while nothing is bound.
struct BoundState {
  std::optional<std::vector<Binding>> inputs, outputs;
  Binding temporary, persistent;
};

// The range of a binding; a null buffer where there is none.
BufferRange range_of(const Binding& binding);

void check_inputs(const Dispatchable& dispatchable, const std::vector<Binding>& bindings);
void check_outputs(const Dispatchable& dispatchable, const std::vector<Binding>& bindings);
void check_resource(const Dispatchable& dispatchable, std::string_view slot, const Binding& binding, uint64_t bytes);
// Potential hazards among everything bound so far (H1 .. H13).
void check_hazards(const Dispatchable& dispatchable, const BoundState& state);
// Every required binding present (C9, P2).
void check_complete(const Dispatchable& dispatchable, const BoundState& state);

}  // namespace pumice
