// Known facts about the operands of an operation, and errors that name operands. The rules of an operation are checked when it is added
// and, if a fact was unknown, again when a program is bound.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/description/graph_node.h"
#include "graph/nnapi/operation.h"

namespace pumice::nnapi {

struct OperandInfo {
  bool is_present = false;  // whether the operand is not omitted
  DType dtype = DType::float32;
  std::optional<Shape> shape;          // kUnknownSize for unknown sizes; nullopt: unknown rank
  std::optional<HostTensor> elements;  // nullopt: not known yet
};

class Operands {
 public:
  Operands(const Operation& operation, std::string node, std::vector<OperandInfo> facts);

  const Operation& operation() const { return *operation_; }
  const std::string& node() const { return node_; }
  const std::vector<OperandInfo>& facts() const { return facts_; }
  size_t count() const { return facts_.size(); }
  bool has(size_t i) const { return i < facts_.size() && facts_[i].is_present; }
  bool is_implicit() const { return roles_ == &operation_->implicit; }  // whether it is the form with implicit padding
  DType dtype(size_t i) const { return facts_.at(i).dtype; }
  const Operand& get_operand_role(size_t i) const;
  const std::vector<Operand>& get_operand_roles() const { return *roles_; }

  // Return a rank or size; nullopt if it is unknown, which marks the rules as undetermined.
  std::optional<size_t> rank(size_t i) const;
  std::optional<int64_t> size(size_t i, size_t axis) const;        // `axis` must be below the rank
  std::optional<std::vector<int64_t>> known_ints(size_t i) const;  // the elements of an integer operand, if known
  // Returns the elements of a tensor; null if they are unknown, in which case the rules run again at calls that provide them.
  const HostTensor* known_elements(size_t i) const;
  bool is_checked_per_call(size_t i) const { return checked_at_calls_[i]; }
  bool is_undetermined() const { return is_undetermined_; }  // whether a rule used an unknown fact
  void mark_undetermined() const { is_undetermined_ = true; }
  // Return the value of a scalar operand. Throw UnsupportedError if it is not constant.
  int64_t read_int(size_t i, int64_t fallback = 0) const;               // `fallback` if the operand is omitted
  size_t read_axis(size_t i, size_t rank, int64_t fallback = 0) const;  // normalised to 0 .. rank - 1
  std::string format_shape(size_t i) const;                             // e.g. "[?, 3]"

  // Throw GraphError if a known fact about the operand differs; an unknown fact is set and assumed to hold.
  void expect_rank(size_t i, size_t rank);
  void expect_min_rank(size_t i, size_t rank) const;
  void expect_size(size_t i, size_t axis, int64_t size);
  void expect_length(size_t i, size_t length, const std::string& expectation, std::string_view rule = {});  // also expects a vector
  // Sets an unknown size that another rule verifies.
  void assume_size(size_t i, size_t axis, int64_t size);
  bool is_assumed(size_t i) const { return assumed_[i]; }

  // Throw GraphError, about operand i if given. `rule`: id of the violated rule in get_nnapi_rules(); "" for the general rules on counts,
  // types and ranks.
  [[noreturn]] void fail(size_t i, std::string_view rule, const std::string& message) const;
  [[noreturn]] void fail(std::string_view rule, const std::string& message) const;
  [[noreturn]] void fail(size_t i, const std::string& message) const { fail(i, "", message); }
  [[noreturn]] void fail(const std::string& message) const { fail("", message); }
  std::string describe_operand(size_t i) const;                          // e.g. "operand 1, 'begin'"
  [[noreturn]] void reject(size_t i, const std::string& message) const;  // throws UnsupportedError about operand i

 private:
  const std::vector<Operand>& select_form() const;
  [[noreturn]] void reject_rank(size_t i, size_t rank) const;

  const Operation* operation_;
  std::string node_;
  std::vector<OperandInfo> facts_;
  const std::vector<Operand>* roles_;  // operand list of the form in use
  std::vector<bool> assumed_;
  mutable std::vector<bool> checked_at_calls_;
  mutable bool is_undetermined_ = false;
};

}  // namespace pumice::nnapi
