// Activations of LSTM, GRU and RNN. Most use the expression of the operator with the same name.
#include <algorithm>
#include <map>
#include <optional>

#include "core/error.h"
#include "operators/expression/expression.h"
#include "operators/recurrent/lowerings.h"
#include "operators/recurrent/recurrent.h"

namespace pumice {
namespace {

struct Activation {
  std::string_view expression;
  std::optional<double> alpha, beta;  // default values; nullopt: the activation does not have this parameter
};

Activation find_activation(std::string_view node, const std::string& name) {
  static const std::map<std::string_view, Activation> custom = {{"Affine", {"alpha * x + beta", 1, 0}},
                                                                {"ScaledTanh", {"alpha * tanh(beta * x)", 1, 1}},
                                                                {"pumice::Relu6", {"min(max(x, 0), 6)", {}, {}}},
                                                                {"ThresholdedRelu", {"x >= alpha || isnan(x) ? x : 0", 1, {}}}};
  if (const auto found = custom.find(name); found != custom.end()) return found->second;
  constexpr std::string_view kOperators[] = {"Relu", "Tanh", "Sigmoid", "LeakyRelu", "HardSigmoid", "Elu", "Softsign", "Softplus"};
  if (std::find(std::begin(kOperators), std::end(kOperators), name) == std::end(kOperators)) {
    std::string supported;
    for (const std::string_view row : kOperators) supported += std::string(row) + ", ";
    for (const auto& [other, activation] : custom) supported += std::string(other) + ", ";
    throw UnsupportedError("node '" + std::string(node) + "': activation '" + name +
                           "'; supported: " + supported.substr(0, supported.size() - 2));
  }
  const OperatorRow& row = *find_operator(name);
  Activation activation{row.expression, {}, {}};
  for (const AttributeSchema& schema : row.schema.attributes) {
    if (schema.name == "alpha") activation.alpha = std::get<double>(*schema.fallback);
    if (schema.name == "beta") activation.beta = std::get<double>(*schema.fallback);
  }
  return activation;
}

// Assigns the values of activation_alpha or activation_beta, in order, to the activations that have this parameter.
class ActivationParameters {
 public:
  explicit ActivationParameters(std::vector<double> values) : values_(std::move(values)) {}
  void take_parameter(std::string_view name, const std::optional<double>& fallback, std::map<std::string, Expression>& replacements) {
    if (!fallback) return;
    replacements.emplace(name, Expression::literal(next_ < values_.size() ? values_[next_] : *fallback));
    ++next_;
  }

 private:
  std::vector<double> values_;
  size_t next_ = 0;
};

}  // namespace

const RecurrentCell& find_recurrent_cell(int form) {
  static const RecurrentCell cells[] = {
      {4, {"Sigmoid", "Tanh", "Tanh"}}, {3, {"Sigmoid", "Tanh"}}, {1, {"Tanh"}}};  // indexed by RecurrentCellKind
  return cells[form];
}

bool is_recurrent(const OperatorRow& row) {
  return row.lower == lower_recurrent;
}

bool has_separate_output(const Attributes& attributes, size_t output) {
  return has_bit(static_cast<uint32_t>(attributes.integer(kSeparateDirections, 0)), output);
}

int64_t count_directions(const Attributes& attributes) {
  return attributes.text("direction", "forward") == "bidirectional" ? 2 : 1;
}

std::vector<std::array<std::string, 2>> make_activation_glsl(int form, std::string_view node, const Attributes& attributes) {
  const RecurrentCell& cell = find_recurrent_cell(form);
  const auto directions = static_cast<size_t>(count_directions(attributes));
  const size_t per_direction = cell.activations.size();
  std::vector<std::string> names;
  if (const auto found = attributes.all().find("activations"); found != attributes.all().end())
    names = std::get<std::vector<std::string>>(found->second);
  if (names.empty())
    for (size_t d = 0; d < directions; ++d) names.insert(names.end(), cell.activations.begin(), cell.activations.end());
  if (names.size() != per_direction * directions)
    throw GraphError(std::string(node),
                     "'activations': expected " + std::to_string(per_direction * directions) + "; given " + std::to_string(names.size()));
  ActivationParameters alphas(attributes.reals("activation_alpha")), betas(attributes.reals("activation_beta"));
  std::vector<std::array<std::string, 2>> expressions(per_direction);
  for (size_t i = 0; i < names.size(); ++i) {
    const Activation activation = find_activation(node, names[i]);
    std::map<std::string, Expression> replacements;
    alphas.take_parameter("alpha", activation.alpha, replacements);
    betas.take_parameter("beta", activation.beta, replacements);
    expressions[i % per_direction][i / per_direction] =
        Expression::parse(activation.expression).substitute(replacements).to_glsl({{"x", ExprType::f32}});
  }
  if (directions == 1)
    for (auto& activation_glsl : expressions) activation_glsl[1] = activation_glsl[0];
  return expressions;
}

}  // namespace pumice
