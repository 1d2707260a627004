// Lowers Einsum: diagonals become strides, sums become reductions, and operands are combined pairwise by matrix products.
#include "operators/conv_gemm/einsum.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "core/error.h"
#include "operators/conv_gemm/lowerings.h"
#include "operators/common/composition.h"

namespace pumice {
namespace {

using Labels = std::vector<int>;

constexpr int kDots = 0;  // placeholder for the ellipsis axes until their number is known

bool has(const Labels& labels, int label) {
  return std::find(labels.begin(), labels.end(), label) != labels.end();
}

class Equation {
 public:
  Equation(std::string_view node, std::string_view text) : node_(node), text_(text) {
    const size_t arrow = text.find("->");
    std::string_view rest = text.substr(0, arrow);
    for (;;) {
      const size_t comma = rest.find(',');
      inputs.push_back(term(rest.substr(0, comma)));
      if (comma == std::string_view::npos) break;
      rest.remove_prefix(comma + 1);
    }
    output = arrow == std::string_view::npos ? implied() : term(text.substr(arrow + 2));
  }

  [[noreturn]] void fail(const std::string& message) const {
    throw GraphError(std::string(node_), "equation '" + std::string(text_) + "': " + message);
  }

  std::vector<Labels> inputs;
  Labels output;

 private:
  Labels term(std::string_view text) const {
    Labels labels;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == ' ') continue;
      if (text.substr(i, 3) == "...") {
        if (has(labels, kDots)) fail("two ellipses in one term");
        labels.push_back(kDots);
        i += 2;
      } else if (std::isalpha(static_cast<unsigned char>(text[i]))) {
        labels.push_back(text[i]);
      } else {
        fail("letters, commas, '...' and '->' expected; given '" + std::string(1, text[i]) + "'");
      }
    }
    return labels;
  }

  // The ellipsis, then the letters that appear once, in alphabetical order.
  Labels implied() const {
    std::map<int, int> counts;
    for (const Labels& labels : inputs)
      for (const int label : labels) ++counts[label];
    Labels labels;
    for (const auto& [label, count] : counts)
      if (label == kDots || count == 1) labels.push_back(label);
    return labels;
  }

  std::string_view node_, text_;
};

Labels with_dots(const Labels& labels, int count) {
  Labels result;
  for (const int label : labels) {
    if (label != kDots) result.push_back(label);
    for (int axis = -count; label == kDots && axis < 0; ++axis) result.push_back(axis);
  }
  return result;
}

// An operand or intermediate product, with its axis labels.
struct Term {
  Piece piece;
  Labels labels;
};

class EinsumContraction {
 public:
  EinsumContraction(LowerContext& node, EinsumLabels labels) : node_(node), parts_(node), labels_(std::move(labels)) {}

  void run() {
    std::vector<Term> terms;
    for (size_t i = 0; i < node_.inputs.size(); ++i) terms.push_back(without_repeats({{node_.input(i), node_.in(i)}, labels_.inputs[i]}));
    Term result = summed(terms[0], needed(terms, 1));
    for (size_t i = 1; i < terms.size(); ++i) {
      const Term next = summed(terms[i], needed(terms, i + 1, result.labels));
      const bool last = i + 1 == terms.size();
      if (product(result, next, needed(terms, i + 1), last)) return;
    }
    parts_.map("a0", {arranged(result, labels_.output)}, {node_.output(0), node_.out(0)}, true);
  }

 private:
  // Labels still needed: those of the output, of the terms from `first` on and of `others`.
  std::set<int> needed(const std::vector<Term>& terms, size_t first, const Labels& others = {}) const {
    std::set<int> labels(labels_.output.begin(), labels_.output.end());
    for (size_t i = first; i < terms.size(); ++i) labels.insert(terms[i].labels.begin(), terms[i].labels.end());
    labels.insert(others.begin(), others.end());
    return labels;
  }

  // The stride of a diagonal is the sum of its axes' strides; broadcast axes are dropped.
  Term without_repeats(const Term& term) const {
    Labels labels;
    Shape shape;
    Strides strides;
    for (size_t i = 0; i < term.labels.size(); ++i) {
      const int label = term.labels[i];
      if (term.piece.desc.shape[i] == 1 && labels_.sizes.at(label) != 1) continue;
      const auto found = std::find(labels.begin(), labels.end(), label);
      if (found != labels.end()) {
        strides[static_cast<size_t>(found - labels.begin())] += term.piece.desc.strides[i];
        continue;
      }
      labels.push_back(label);
      shape.push_back(term.piece.desc.shape[i]);
      strides.push_back(term.piece.desc.strides[i]);
    }
    return {{TensorDesc(term.piece.desc.dtype, shape, strides), term.piece.operand}, labels};
  }

  Term summed(const Term& term, const std::set<int>& kept) {
    std::vector<int64_t> axes;
    Labels labels;
    for (size_t i = 0; i < term.labels.size(); ++i) {
      if (kept.contains(term.labels[i]))
        labels.push_back(term.labels[i]);
      else
        axes.push_back(static_cast<int64_t>(i));
    }
    if (axes.empty()) return term;
    const Piece y = parts_.scratch(term.piece.desc.dtype, labels_.shape_of(labels));
    Attributes attributes;
    attributes.set("axes", axes);
    attributes.set("keepdims", int64_t{0});
    parts_.add("ReduceSum", attributes, {term.piece}, y);
    return {y, labels};
  }

  // The elements with axes in this order; missing axes are broadcast.
  Piece arranged(const Term& term, const Labels& order) const {
    Strides strides;
    for (const int label : order) {
      const auto found = std::find(term.labels.begin(), term.labels.end(), label);
      strides.push_back(found == term.labels.end() ? 0 : term.piece.desc.strides[static_cast<size_t>(found - term.labels.begin())]);
    }
    return {TensorDesc(term.piece.desc.dtype, labels_.shape_of(order), strides), term.piece.operand};
  }

  // The term as dense matrices, one per batch index.
  Piece matrices(const Term& term, const Labels& batch, const Labels& rows, const Labels& columns) {
    Labels order = batch;
    order.insert(order.end(), rows.begin(), rows.end());
    order.insert(order.end(), columns.begin(), columns.end());
    Piece piece = arranged(term, order);
    if (!piece.desc.is_packed()) {
      const Piece copy = parts_.scratch(piece.desc.dtype, piece.desc.shape);
      parts_.map("a0", {piece}, copy);
      piece = copy;
    }
    return piece.seen_as({size_of(batch), size_of(rows), size_of(columns)});
  }

  int64_t size_of(const Labels& labels) const { return element_count(labels_.shape_of(labels)); }

  // Multiplies `left` by `right`, summing over labels that are no longer needed. Returns true if this writes the output.
  bool product(Term& left, const Term& right, const std::set<int>& kept, bool last) {
    Labels batch, rows, columns, inner;
    for (const int label : left.labels) (!has(right.labels, label) ? rows : kept.contains(label) ? batch : inner).push_back(label);
    for (const int label : right.labels)
      if (!has(left.labels, label)) columns.push_back(label);
    const Piece a = matrices(left, batch, rows, inner), b = matrices(right, batch, inner, columns);
    Labels made = batch;
    made.insert(made.end(), rows.begin(), rows.end());
    made.insert(made.end(), columns.begin(), columns.end());
    const Shape shape{size_of(batch), size_of(rows), size_of(columns)};
    const bool final = last && made == labels_.output && node_.output(0).is_packed();
    const Piece y = final ? parts_.output(0) : parts_.scratch(a.desc.dtype, labels_.shape_of(made));
    parts_.add("MatMul", {}, {a, b}, y.seen_as(shape), final);
    left = {y, made};
    return final;
  }

  LowerContext& node_;
  Composition parts_;
  EinsumLabels labels_;
};

}  // namespace

Shape EinsumLabels::shape_of(const std::vector<int>& labels) const {
  Shape shape;
  for (const int label : labels) shape.push_back(sizes.at(label));
  return shape;
}

EinsumLabels einsum_labels(std::string_view node, std::string_view text, const std::vector<Shape>& shapes) {
  const Equation equation(node, text);
  if (equation.inputs.size() != shapes.size())
    equation.fail(std::to_string(equation.inputs.size()) + " terms for " + std::to_string(shapes.size()) + " inputs");
  EinsumLabels result;
  int most_dots = 0;
  for (size_t i = 0; i < shapes.size(); ++i) {
    const Labels& labels = equation.inputs[i];
    const auto letters = static_cast<int>(labels.size()) - (has(labels, kDots) ? 1 : 0), rank = static_cast<int>(shapes[i].size());
    if (letters > rank || (letters < rank && !has(labels, kDots)))
      equation.fail("term " + std::to_string(i) + " has " + std::to_string(letters) + " letters; input " + std::to_string(i) + " is " +
                    to_string(shapes[i]));
    most_dots = std::max(most_dots, rank - letters);
    result.inputs.push_back(with_dots(labels, rank - letters));
    std::map<int, int64_t> own;  // a letter repeated in one term is a diagonal, without broadcasting
    for (size_t axis = 0; axis < shapes[i].size(); ++axis) {
      const int64_t first = own.emplace(result.inputs[i][axis], shapes[i][axis]).first->second;
      if (first != shapes[i][axis])
        equation.fail("input " + std::to_string(i) + " has axes of " + std::to_string(first) + " and " + std::to_string(shapes[i][axis]) +
                      " for one letter");
      int64_t& size = result.sizes.emplace(result.inputs[i][axis], shapes[i][axis]).first->second;
      if (size == 1) size = shapes[i][axis];
      if (shapes[i][axis] != size && shapes[i][axis] != 1)
        equation.fail("an axis of " + std::to_string(shapes[i][axis]) + " of input " + std::to_string(i) + " meets one of " +
                      std::to_string(size));
    }
  }
  result.output = with_dots(equation.output, most_dots);
  for (size_t i = 0; i < result.output.size(); ++i) {
    if (!result.sizes.contains(result.output[i])) equation.fail("the result has a letter that no input has");
    if (std::count(result.output.begin(), result.output.end(), result.output[i]) > 1) equation.fail("the result has a letter twice");
  }
  return result;
}

static EinsumLabels labels_of(const LowerContext& node) {
  std::vector<Shape> shapes;
  for (size_t i = 0; i < node.inputs.size(); ++i) shapes.push_back(node.input(i).shape);
  return einsum_labels(node.node, node.attributes->text("equation"), shapes);
}

uint64_t einsum_flop(const LowerContext& node) {
  const EinsumLabels labels = labels_of(node);
  const auto places = [&](const std::set<int>& some) {
    uint64_t count = 1;
    for (const int label : some) count *= static_cast<uint64_t>(labels.sizes.at(label));
    return count;
  };
  std::set<int> joined;  // labels of the product so far
  uint64_t flop = 0;
  for (size_t i = 0; i < labels.inputs.size(); ++i) {
    std::set<int> next(labels.inputs[i].begin(), labels.inputs[i].end()), needed(labels.output.begin(), labels.output.end());
    for (size_t k = i + 1; k < labels.inputs.size(); ++k) needed.insert(labels.inputs[k].begin(), labels.inputs[k].end());
    const uint64_t read = places(next);
    if (std::erase_if(next, [&](int label) { return !needed.contains(label) && !joined.contains(label); }) > 0) flop += read;
    joined.merge(next);
    if (i > 0) flop += 2 * places(joined);
    std::erase_if(joined, [&](int label) { return !needed.contains(label); });
  }
  return flop;
}

void lower_einsum(LowerContext& node) {
  if (node.output(0).elements() == 0) return;
  EinsumContraction(node, labels_of(node)).run();
}

}  // namespace pumice
