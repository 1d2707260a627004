// Lowers Einsum: diagonals become strides, sums become reductions, and operands are combined pairwise by matrix products.
#include "operators/conv_gemm/einsum.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "core/error.h"
#include "operators/common/composite_lowering.h"
#include "operators/conv_gemm/lowerings.h"

namespace pumice {
namespace {

using Labels = std::vector<int>;

constexpr int kEllipsis = 0;  // placeholder for the ellipsis axes until their number is known

bool has_label(const Labels& labels, int label) {
  return std::find(labels.begin(), labels.end(), label) != labels.end();
}

class EinsumEquation {
 public:
  EinsumEquation(std::string_view node, std::string_view text) : node_(node), text_(text) {
    const size_t arrow = text.find("->");
    std::string_view rest = text.substr(0, arrow);
    for (;;) {
      const size_t comma = rest.find(',');
      inputs.push_back(parse_term(rest.substr(0, comma)));
      if (comma == std::string_view::npos) break;
      rest.remove_prefix(comma + 1);
    }
    output = arrow == std::string_view::npos ? get_implicit_output() : parse_term(text.substr(arrow + 2));
  }

  [[noreturn]] void fail(const std::string& message) const {
    throw GraphError(std::string(node_), "equation '" + std::string(text_) + "': " + message);
  }

  std::vector<Labels> inputs;
  Labels output;

 private:
  Labels parse_term(std::string_view text) const {
    Labels labels;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == ' ') continue;
      if (text.substr(i, 3) == "...") {
        if (has_label(labels, kEllipsis)) fail("two ellipses in one term");
        labels.push_back(kEllipsis);
        i += 2;
      } else if (std::isalpha(static_cast<unsigned char>(text[i]))) {
        labels.push_back(text[i]);
      } else {
        fail("expected letters, commas, '...' and '->'; given '" + std::string(1, text[i]) + "'");
      }
    }
    return labels;
  }

  // Returns the output labels of an equation without "->": the ellipsis, then the letters that occur only once, in alphabetical order.
  Labels get_implicit_output() const {
    std::map<int, int> counts;
    for (const Labels& labels : inputs)
      for (const int label : labels) ++counts[label];
    Labels labels;
    for (const auto& [label, count] : counts)
      if (label == kEllipsis || count == 1) labels.push_back(label);
    return labels;
  }

  std::string_view node_, text_;
};

Labels expand_ellipsis(const Labels& labels, int count) {
  Labels result;
  for (const int label : labels) {
    if (label != kEllipsis) result.push_back(label);
    for (int axis = -count; label == kEllipsis && axis < 0; ++axis) result.push_back(axis);
  }
  return result;
}

// An operand or intermediate product, with its axis labels.
struct EinsumTerm {
  TensorOperand tensor;
  Labels labels;
};

class EinsumLowering {
 public:
  EinsumLowering(LowerContext& node, EinsumLabels labels) : node_(node), composition_(node), labels_(std::move(labels)) {}

  void run() {
    std::vector<EinsumTerm> terms;
    for (size_t i = 0; i < node_.inputs.size(); ++i)
      terms.push_back(take_diagonals({{node_.input(i), node_.input_operand(i)}, labels_.inputs[i]}));
    EinsumTerm result = sum_labels(terms[0], find_remaining_labels(terms, 1));
    for (size_t i = 1; i < terms.size(); ++i) {
      const EinsumTerm next = sum_labels(terms[i], find_remaining_labels(terms, i + 1, result.labels));
      const bool last = i + 1 == terms.size();
      if (multiply(result, next, find_remaining_labels(terms, i + 1), last)) return;
    }
    composition_.add_elementwise("a0", {view_with_axes(result, labels_.output)}, {node_.output(0), node_.output_operand(0)}, true);
  }

 private:
  // Returns the labels that are still needed by the output, the terms from `first` on, or `others`.
  std::set<int> find_remaining_labels(const std::vector<EinsumTerm>& terms, size_t first, const Labels& others = {}) const {
    std::set<int> labels(labels_.output.begin(), labels_.output.end());
    for (size_t i = first; i < terms.size(); ++i) labels.insert(terms[i].labels.begin(), terms[i].labels.end());
    labels.insert(others.begin(), others.end());
    return labels;
  }

  // Views the axes of a repeated label as one diagonal axis, whose stride is the sum of their strides. Drops broadcast axes.
  EinsumTerm take_diagonals(const EinsumTerm& term) const {
    Labels labels;
    Shape shape;
    Strides strides;
    for (size_t i = 0; i < term.labels.size(); ++i) {
      const int label = term.labels[i];
      if (term.tensor.desc.shape[i] == 1 && labels_.sizes.at(label) != 1) continue;
      const auto found = std::find(labels.begin(), labels.end(), label);
      if (found != labels.end()) {
        strides[static_cast<size_t>(found - labels.begin())] += term.tensor.desc.strides[i];
        continue;
      }
      labels.push_back(label);
      shape.push_back(term.tensor.desc.shape[i]);
      strides.push_back(term.tensor.desc.strides[i]);
    }
    return {{TensorDesc(term.tensor.desc.dtype, shape, strides), term.tensor.operand}, labels};
  }

  EinsumTerm sum_labels(const EinsumTerm& term, const std::set<int>& keep) {
    std::vector<int64_t> axes;
    Labels labels;
    for (size_t i = 0; i < term.labels.size(); ++i) {
      if (keep.contains(term.labels[i]))
        labels.push_back(term.labels[i]);
      else
        axes.push_back(static_cast<int64_t>(i));
    }
    if (axes.empty()) return term;
    const TensorOperand y = composition_.allocate_scratch(term.tensor.desc.dtype, labels_.get_shape(labels));
    Attributes attributes;
    attributes.set("axes", axes);
    attributes.set("keepdims", int64_t{0});
    composition_.add_operator("ReduceSum", attributes, {term.tensor}, y);
    return {y, labels};
  }

  // Views the term with its axes in this order. Labels that the term does not have become broadcast axes.
  TensorOperand view_with_axes(const EinsumTerm& term, const Labels& order) const {
    Strides strides;
    for (const int label : order) {
      const auto found = std::find(term.labels.begin(), term.labels.end(), label);
      strides.push_back(found == term.labels.end() ? 0 : term.tensor.desc.strides[static_cast<size_t>(found - term.labels.begin())]);
    }
    return {TensorDesc(term.tensor.desc.dtype, labels_.get_shape(order), strides), term.tensor.operand};
  }

  // Returns the term as contiguous matrices, one per batch index.
  TensorOperand to_matrices(const EinsumTerm& term, const Labels& batch, const Labels& rows, const Labels& columns) {
    Labels order = batch;
    order.insert(order.end(), rows.begin(), rows.end());
    order.insert(order.end(), columns.begin(), columns.end());
    TensorOperand tensor = view_with_axes(term, order);
    if (!tensor.desc.is_packed()) {
      const TensorOperand copy = composition_.allocate_scratch(tensor.desc.dtype, tensor.desc.shape);
      composition_.add_elementwise("a0", {tensor}, copy);
      tensor = copy;
    }
    return tensor.reshaped({count_elements(batch), count_elements(rows), count_elements(columns)});
  }

  int64_t count_elements(const Labels& labels) const { return element_count(labels_.get_shape(labels)); }

  // Replaces `left` by its product with `right`, summed over the labels that are not in `keep`. Returns true if this wrote the node's
  // output.
  bool multiply(EinsumTerm& left, const EinsumTerm& right, const std::set<int>& keep, bool last) {
    Labels batch, rows, columns, inner;
    for (const int label : left.labels) (!has_label(right.labels, label) ? rows : keep.contains(label) ? batch : inner).push_back(label);
    for (const int label : right.labels)
      if (!has_label(left.labels, label)) columns.push_back(label);
    const TensorOperand a = to_matrices(left, batch, rows, inner), b = to_matrices(right, batch, inner, columns);
    Labels result_labels = batch;
    result_labels.insert(result_labels.end(), rows.begin(), rows.end());
    result_labels.insert(result_labels.end(), columns.begin(), columns.end());
    const Shape shape{count_elements(batch), count_elements(rows), count_elements(columns)};
    const bool final = last && result_labels == labels_.output && node_.output(0).is_packed();
    const TensorOperand y = final ? composition_.output(0) : composition_.allocate_scratch(a.desc.dtype, labels_.get_shape(result_labels));
    composition_.add_operator("MatMul", {}, {a, b}, y.reshaped(shape), final);
    left = {y, result_labels};
    return final;
  }

  LowerContext& node_;
  CompositeLowering composition_;
  EinsumLabels labels_;
};

}  // namespace

Shape EinsumLabels::get_shape(const std::vector<int>& labels) const {
  Shape shape;
  for (const int label : labels) shape.push_back(sizes.at(label));
  return shape;
}

EinsumLabels parse_einsum(std::string_view node, std::string_view text, const std::vector<Shape>& shapes) {
  const EinsumEquation equation(node, text);
  if (equation.inputs.size() != shapes.size())
    equation.fail(std::to_string(equation.inputs.size()) + " terms for " + std::to_string(shapes.size()) + " inputs");
  EinsumLabels result;
  int max_ellipsis_rank = 0;
  for (size_t i = 0; i < shapes.size(); ++i) {
    const Labels& labels = equation.inputs[i];
    const auto letters = static_cast<int>(labels.size()) - (has_label(labels, kEllipsis) ? 1 : 0),
               rank = static_cast<int>(shapes[i].size());
    if (letters > rank || (letters < rank && !has_label(labels, kEllipsis)))
      equation.fail("term " + std::to_string(i) + " has " + std::to_string(letters) + " letters; input " + std::to_string(i) + " is " +
                    to_string(shapes[i]));
    max_ellipsis_rank = std::max(max_ellipsis_rank, rank - letters);
    result.inputs.push_back(expand_ellipsis(labels, rank - letters));
    std::map<int, int64_t> term_sizes;  // a letter that is repeated in one term is a diagonal: its axes must have equal sizes
    for (size_t axis = 0; axis < shapes[i].size(); ++axis) {
      const int64_t first = term_sizes.emplace(result.inputs[i][axis], shapes[i][axis]).first->second;
      if (first != shapes[i][axis])
        equation.fail("input " + std::to_string(i) + " has axes of " + std::to_string(first) + " and " + std::to_string(shapes[i][axis]) +
                      " for one letter");
      int64_t& size = result.sizes.emplace(result.inputs[i][axis], shapes[i][axis]).first->second;
      if (size == 1) size = shapes[i][axis];
      if (shapes[i][axis] != size && shapes[i][axis] != 1)
        equation.fail("an axis of " + std::to_string(shapes[i][axis]) + " of input " + std::to_string(i) + " does not match one of " +
                      std::to_string(size));
    }
  }
  result.output = expand_ellipsis(equation.output, max_ellipsis_rank);
  for (size_t i = 0; i < result.output.size(); ++i) {
    if (!result.sizes.contains(result.output[i])) equation.fail("the result has a letter that no input has");
    if (std::count(result.output.begin(), result.output.end(), result.output[i]) > 1) equation.fail("the result has a letter twice");
  }
  return result;
}

static EinsumLabels parse_node_equation(const LowerContext& node) {
  std::vector<Shape> shapes;
  for (size_t i = 0; i < node.inputs.size(); ++i) shapes.push_back(node.input(i).shape);
  return parse_einsum(node.node, node.attributes->text("equation"), shapes);
}

uint64_t count_einsum_flops(const LowerContext& node) {
  const EinsumLabels labels = parse_node_equation(node);
  const auto count_indices = [&](const std::set<int>& subset) {
    uint64_t count = 1;
    for (const int label : subset) count *= static_cast<uint64_t>(labels.sizes.at(label));
    return count;
  };
  std::set<int> product_labels;  // labels of the product so far
  uint64_t flop = 0;
  for (size_t i = 0; i < labels.inputs.size(); ++i) {
    std::set<int> next(labels.inputs[i].begin(), labels.inputs[i].end()), remaining_labels(labels.output.begin(), labels.output.end());
    for (size_t k = i + 1; k < labels.inputs.size(); ++k) remaining_labels.insert(labels.inputs[k].begin(), labels.inputs[k].end());
    const uint64_t read = count_indices(next);
    if (std::erase_if(next, [&](int label) { return !remaining_labels.contains(label) && !product_labels.contains(label); }) > 0)
      flop += read;
    product_labels.merge(next);
    if (i > 0) flop += 2 * count_indices(product_labels);
    std::erase_if(product_labels, [&](int label) { return !remaining_labels.contains(label); });
  }
  return flop;
}

void lower_einsum(LowerContext& node) {
  if (node.output(0).elements() == 0) return;
  EinsumLowering(node, parse_node_equation(node)).run();
}

}  // namespace pumice
