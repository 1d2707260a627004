#include "graph/nnapi/operands.h"

#include <algorithm>

#include "core/error.h"

namespace pumice::nnapi {

Operands::Operands(const Operation& operation, std::string node, std::vector<OperandInfo> facts)
    : operation_(&operation),
      node_(std::move(node)),
      facts_(std::move(facts)),
      roles_(&select_form()),
      assumed_(facts_.size(), false),
      checked_at_calls_(facts_.size(), false) {}

// Returns the operand list of the form in use. The implicit form has fewer operands, or the layout flag in place of a number.
const std::vector<Operand>& Operands::select_form() const {
  const auto &longer = operation_->inputs, &shorter = operation_->implicit;
  if (shorter.empty()) return longer;
  const auto required = std::ranges::count(longer, false, &Operand::optional);
  const auto flag = static_cast<size_t>(std::ranges::find(shorter, kTruth, &Operand::dtypes) - shorter.begin());
  const bool implicit = std::ssize(facts_) < required || (has(flag) && dtype(flag) == DType::bool_);
  return implicit ? shorter : longer;
}

// Returns the description of operand i; descriptions after a variadic operand apply to the last operands.
const Operand& Operands::get_operand_role(size_t i) const {
  const auto variadic = std::ranges::find(*roles_, true, &Operand::variadic);
  const auto first = static_cast<size_t>(variadic - roles_->begin());
  if (variadic == roles_->end() || i < first) return roles_->at(i);
  const size_t trailing = roles_->size() - 1 - first;
  return i + trailing < facts_.size() ? *variadic : roles_->at(roles_->size() - (facts_.size() - i));
}

// ---- errors

std::string Operands::describe_operand(size_t i) const {
  return "operand " + std::to_string(i) + ", '" + std::string(get_operand_role(i).name) + "'";
}

void Operands::fail(std::string_view rule, const std::string& message) const {
  throw GraphError(node_, std::string(operation_->name) + ": " + message, std::string(rule));
}

void Operands::fail(size_t i, std::string_view rule, const std::string& message) const {
  fail(rule, describe_operand(i) + ": " + message);
}

void Operands::reject(size_t i, const std::string& message) const {
  throw UnsupportedError("node '" + node_ + "': " + std::string(operation_->name) + " with " + describe_operand(i) + ", " + message);
}

// The length of a list may require a rank above kMaxRank.
void Operands::reject_rank(size_t i, size_t rank) const {
  throw GraphError(node_,
                   std::string(operation_->name) + ": " + describe_operand(i) + ": a rank of " + std::to_string(rank) +
                       " expected, implied by the other operands; the highest rank is " + std::to_string(kMaxRank),
                   "R8");
}

std::string Operands::format_shape(size_t i) const {
  return pumice::format_shape(facts_.at(i).shape);
}

// ---- queries

std::optional<size_t> Operands::rank(size_t i) const {
  const auto& shape = facts_.at(i).shape;
  is_undetermined_ = is_undetermined_ || !shape;
  return shape ? std::optional(shape->size()) : std::nullopt;
}

std::optional<int64_t> Operands::size(size_t i, size_t axis) const {
  const auto& shape = facts_.at(i).shape;
  const bool known = shape && shape->at(axis) != kUnknownSize;
  is_undetermined_ = is_undetermined_ || !known;
  return known ? std::optional((*shape)[axis]) : std::nullopt;
}

std::optional<std::vector<int64_t>> Operands::known_ints(size_t i) const {
  const auto& elements = facts_.at(i).elements;
  is_undetermined_ = is_undetermined_ || !elements;
  return elements ? std::optional(elements->as_int64()) : std::nullopt;
}

const HostTensor* Operands::known_elements(size_t i) const {
  const auto& elements = facts_.at(i).elements;
  if (!elements) checked_at_calls_[i] = is_undetermined_ = true;
  return elements ? &*elements : nullptr;
}

int64_t Operands::read_int(size_t i, int64_t fallback) const {
  if (!has(i)) return fallback;
  if (!facts_[i].elements) reject(i, "which is not a constant");
  return facts_[i].elements->as_int64().at(0);
}

size_t Operands::read_axis(size_t i, size_t rank, int64_t fallback) const {
  const int64_t actual = read_int(i, fallback), end = static_cast<int64_t>(rank);
  if (actual < -end || actual >= end)
    fail(i, "an axis from " + std::to_string(-end) + " to " + std::to_string(end - 1) + " expected; given " + std::to_string(actual));
  return static_cast<size_t>(actual < 0 ? actual + end : actual);
}

// ---- expectations

void Operands::expect_rank(size_t i, size_t rank) {
  OperandInfo& fact = facts_.at(i);
  if (rank > kMaxRank) reject_rank(i, rank);
  if (fact.shape) {
    if (fact.shape->size() != rank) fail(i, "a rank of " + std::to_string(rank) + " expected; given " + format_shape(i));
    return;
  }
  fact.shape = Shape(rank, kUnknownSize);
  assumed_[i] = is_undetermined_ = true;
}

void Operands::expect_min_rank(size_t i, size_t rank) const {
  if (const auto actual = this->rank(i); actual && *actual < rank)
    fail(i, "a rank of at least " + std::to_string(rank) + " expected; given " + format_shape(i));
}

void Operands::expect_size(size_t i, size_t axis, int64_t size) {
  const int64_t actual = facts_.at(i).shape->at(axis);
  if (actual != kUnknownSize && actual != size)
    fail(i, std::to_string(size) + " elements expected on axis " + std::to_string(axis) + "; given " + format_shape(i));
  assume_size(i, axis, size);
}

void Operands::expect_length(size_t i, size_t length, const std::string& expectation, std::string_view rule) {
  expect_rank(i, 1);
  if (const auto actual = size(i, 0); actual && *actual != static_cast<int64_t>(length))
    fail(i, rule, std::to_string(length) + " " + expectation + "; given " + std::to_string(*actual));
  assume_size(i, 0, static_cast<int64_t>(length));
}

void Operands::assume_size(size_t i, size_t axis, int64_t size) {
  int64_t& actual = facts_.at(i).shape->at(axis);
  if (actual != kUnknownSize) return;
  actual = size;
  assumed_[i] = is_undetermined_ = true;
}

}  // namespace pumice::nnapi
