// Operand tables of the NNAPI operations IF and WHILE. They run graphs, which are not values; Graph::if_ and Graph::while_ add them.
#include "core/error.h"
#include "graph/nnapi/expansion.h"
#include "graph/nnapi/operations.h"

namespace pumice::nnapi {
namespace {

void reject_expansion(Expansion&) {
  throw Error("IF and WHILE run graphs, which values cannot represent");  // callers cannot reach this
}

}  // namespace

Operations make_control_flow_operations() {
  constexpr DTypeSet all = kFloat | kInt | kTruth | kQuant | kQuant16;
  const auto graph = [](std::string_view name) { return Operand{{name, 0}, OperandKind::graph}; };
  const auto rest = [](std::string_view name) { return Operand{{name, all, true, true}, OperandKind::tensor}; };
  return {{"nnapi::IF",
           4,
           "One of two graphs, by a condition.",
           {tensor_arg("condition", kTruth), graph("then"), graph("else"), rest("inputs")},
           {rest("y")},
           reject_expansion},
          {"nnapi::WHILE",
           4,
           "A graph again and again, as long as another gives true. Its operands are the carried values, as many as there are outputs, "
           "then states, as many as the body gives beyond them, then what does not change.",
           {graph("condition"), graph("body"), rest("inputs")},
           {rest("y")},
           reject_expansion}};
}

}  // namespace pumice::nnapi
