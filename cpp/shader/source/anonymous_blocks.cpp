#include "shader/source/anonymous_blocks.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "shader/source/glsl_tokens.h"

namespace pumice {
namespace {

struct AnonymousBlock {
  std::string_view name, file;  // file: name shown to the user
  size_t line;
  std::vector<std::string_view> members;
};

// Returns the members of a block: the last word of each declarator, outside of brackets.
std::vector<std::string_view> parse_member_names(const std::vector<Token>& tokens, size_t first, size_t last) {
  std::vector<std::string_view> members;
  std::string_view word;
  int depth = 0;
  for (size_t i = first; i < last; ++i) {
    const std::string_view text = tokens[i].text;
    if (text == "[" || text == "(") ++depth;
    if (text == "]" || text == ")") --depth;
    if (depth > 0) continue;
    if (tokens[i].kind == TokenKind::word) word = text;
    if (text == "," || text == ";") members.push_back(word);
  }
  return members;
}

// Appends the blocks without an instance name in a file: `buffer` or `uniform`, qualifiers, a block name, braces, a semicolon.
void collect_anonymous_blocks(std::vector<AnonymousBlock>& blocks, const SourceFile& file) {
  const std::vector<Token> all = tokenize(file.text);
  std::vector<Token> tokens;
  std::ranges::copy_if(all, std::back_inserter(tokens), [](const Token& token) { return token.directive == 0; });
  const auto lines = map_source_lines(file.text);
  std::optional<size_t> keyword;
  for (size_t i = 0; i + 1 < tokens.size(); ++i) {
    const std::string_view text = tokens[i].text;
    if (text == "buffer" || text == "uniform") keyword = i;
    if (text == ";" || text == "}") keyword.reset();
    if (!keyword || text != "{" || i == *keyword + 1) continue;
    size_t end = i;
    while (end < tokens.size() && tokens[end].text != "}") ++end;
    if (end + 1 < tokens.size() && tokens[end + 1].text == ";") {
      const Token& name = tokens[i - 1];
      blocks.push_back({name.text, file.name, name.line <= lines.size() ? lines[name.line - 1].line : name.line,
                        parse_member_names(tokens, i + 1, end)});
    }
    keyword.reset();
  }
}

}  // namespace

std::string describe_shared_member(const SourceSet& sources, std::string_view block) {
  std::vector<AnonymousBlock> blocks;
  for (const SourceFile& file : sources.files()) collect_anonymous_blocks(blocks, file);
  for (const AnonymousBlock& candidate : blocks) {
    if (candidate.name != block) continue;
    for (const AnonymousBlock& other : blocks)
      for (const std::string_view member : candidate.members)
        if (&other != &candidate && std::ranges::find(other.members, member) != other.members.end())
          return ": '" + std::string(member) + "' is a member of block '" + std::string(other.name) + "' in " + std::string(other.file) +
                 ":" + std::to_string(other.line) + ", too; give one of them an instance name: } name;";
  }
  return {};
}

}  // namespace pumice
