#include <array>
#include <cctype>
#include <charconv>
#include <limits>

#include "core/error.h"
#include "operators/expression/expression_node.h"

namespace pumice {
namespace {

// Binary operators by increasing precedence, as in C. Longer operators precede their prefixes.
constexpr std::array<std::array<std::string_view, 4>, 10> kPrecedenceLevels{{
    {"||"},
    {"&&"},
    {"|"},
    {"^"},
    {"&"},
    {"==", "!="},
    {"<=", ">=", "<", ">"},
    {"<<", ">>"},
    {"+", "-"},
    {"*", "/", "%"},
}};
constexpr int kMaxDepth = 200;

// Recursive-descent parser for expressions.
class ExpressionParser {
 public:
  explicit ExpressionParser(std::string_view text) : text_(text) {}

  ExprPtr parse() {
    ExprPtr root = parse_conditional();
    if (position_ < text_.size()) fail("'" + std::string(1, text_[position_]) + "' after the expression's end");
    return root;
  }

 private:
  [[noreturn]] void fail(const std::string& message) const {
    throw Error("expression '" + std::string(text_) + "', position " + std::to_string(position_) + ": " + message);
  }

  void skip_space() {
    while (position_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[position_]))) ++position_;
  }

  // Consumes `symbol` if it is next and not the prefix of a longer operator ("<" of "<<", "&" of "&&", "=" of "=="). Returns whether it
  // did.
  bool consume(std::string_view symbol) {
    skip_space();
    if (text_.substr(position_, symbol.size()) != symbol) return false;
    const std::string_view rest = text_.substr(position_ + symbol.size());
    const char next = rest.empty() ? '\0' : rest[0];
    if (symbol.size() == 1 &&
        ((symbol.find_first_of("<>&|") == 0 && next == symbol[0]) || (symbol.find_first_of("<>!") == 0 && next == '=')))
      return false;
    position_ += symbol.size();
    return true;
  }

  void expect(std::string_view symbol) {
    if (!consume(symbol)) fail("expected '" + std::string(symbol) + "'");
  }

  ExprPtr parse_conditional() {
    if (++depth_ > kMaxDepth) fail("nested too deeply");
    ExprPtr condition = parse_binary(0);
    if (consume("?")) {
      ExprPtr yes = parse_conditional();
      expect(":");
      condition = make_node({ExprKind::conditional, "?", 0, false, {condition, yes, parse_conditional()}});
    }
    --depth_;
    return condition;
  }

  std::string_view consume_operator(size_t level) {
    for (const std::string_view symbol : kPrecedenceLevels[level])
      if (!symbol.empty() && consume(symbol)) return symbol;
    return {};
  }

  ExprPtr parse_binary(size_t level) {
    if (level == kPrecedenceLevels.size()) return parse_unary();
    ExprPtr left = parse_binary(level + 1);
    for (std::string_view symbol = consume_operator(level); !symbol.empty(); symbol = consume_operator(level))
      left = make_node({ExprKind::binary, std::string(symbol), 0, false, {left, parse_binary(level + 1)}});
    return left;
  }

  ExprPtr parse_unary() {
    for (const std::string_view symbol : {"-", "!", "~"}) {
      if (!consume(symbol)) continue;
      if (++depth_ > kMaxDepth) fail("nested too deeply");
      ExprPtr node = make_node({ExprKind::unary, std::string(symbol), 0, false, {parse_unary()}});
      --depth_;
      return node;
    }
    return parse_primary();
  }

  ExprPtr parse_primary() {
    skip_space();
    if (position_ == text_.size()) fail("expected an operand");
    const auto first = static_cast<unsigned char>(text_[position_]);
    if (consume("(")) {
      ExprPtr inner = parse_conditional();
      expect(")");
      return inner;
    }
    if (std::isdigit(first) || first == '.') return parse_number();
    if (std::isalpha(first) || first == '_') return parse_name_or_call();
    if (first == '\'') return parse_string();
    fail("'" + std::string(1, text_[position_]) + "' where an operand is expected");
  }

  ExprPtr parse_number() {
    double value = 0;
    const auto [end, error] = std::from_chars(text_.data() + position_, text_.data() + text_.size(), value);
    if (error != std::errc()) fail("a number that is out of range or malformed");
    const std::string_view number_literal(text_.data() + position_, static_cast<size_t>(end - text_.data()) - position_);
    position_ += number_literal.size();
    if (position_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[position_])) || text_[position_] == '_'))
      fail("a number runs into a name");
    return make_node({ExprKind::literal, {}, value, number_literal.find_first_of(".eE") != std::string_view::npos, {}});
  }

  std::string_view parse_identifier() {
    const size_t start = position_;
    while (position_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[position_])) || text_[position_] == '_')) ++position_;
    return text_.substr(start, position_ - start);
  }

  ExprPtr parse_string() {
    const size_t end = text_.find('\'', position_ + 1);
    if (end == std::string_view::npos) fail("an unterminated string");
    const std::string inner(text_.substr(position_ + 1, end - position_ - 1));
    position_ = end + 1;
    return make_node({ExprKind::text, inner, 0, false, {}});
  }

  ExprPtr parse_name_or_call() {
    const std::string name(parse_identifier());
    if (consume("(")) return parse_call(name);
    if (name == "true" || name == "false") return make_node({ExprKind::bool_literal, name, name == "true" ? 1.0 : 0.0, false, {}});
    if (name == "inf") return make_literal(std::numeric_limits<double>::infinity());
    if (name == "nan") return make_literal(std::numeric_limits<double>::quiet_NaN());
    return make_node({ExprKind::name, name, 0, false, {}});
  }

  ExprPtr parse_call(const std::string& name) {
    const ExprFunction* function = find_expr_function(name);
    if (!function) fail("unknown function '" + name + "'");
    std::vector<ExprPtr> arguments;
    do arguments.push_back(parse_conditional());
    while (consume(","));
    expect(")");
    if (arguments.size() != function->arity)
      fail("'" + name + "' takes " + std::to_string(function->arity) + " arguments; given " + std::to_string(arguments.size()));
    return make_node({ExprKind::call, name, 0, false, std::move(arguments)});
  }

  std::string_view text_;
  size_t position_ = 0;
  int depth_ = 0;
};

}  // namespace

ExprPtr parse_expression(std::string_view text) {
  return ExpressionParser(text).parse();
}

}  // namespace pumice
