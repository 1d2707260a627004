#include "shader/source_set.h"

#include <algorithm>
#include <filesystem>

#include "shader/embedded_shaders.h"
#include "shader/tokens.h"

namespace pumice {
namespace {

// The path of an #include line: "path" or <path>; empty where it has neither.
std::string include_path(const std::vector<Token>& line, std::string_view source) {
  if (line.size() < 2) return {};
  const Token& first = line[1];
  if (first.kind == TokenKind::string && first.text.size() > 2) return std::string(first.text.substr(1, first.text.size() - 2));
  if (first.text != "<") return {};
  const std::string_view rest = line_text(source.substr(first.offset + 1), 1);
  const size_t end = rest.find('>');
  return end == std::string_view::npos ? std::string() : std::string(rest.substr(0, end));
}

std::optional<std::string> load_text(const std::string& name, const IncludeLoader& loader) {
  if (loader)
    if (auto text = loader(name)) return text;
  if (const auto text = find_embedded_shader(name)) return std::string(*text);
  return {};
}

}  // namespace

SourceSet::SourceSet(std::string name, std::string text, const IncludeLoader& loader) {
  add(std::move(name), std::move(text));
  for (size_t file = 0; file < files_.size(); ++file) scan(file, loader);
}

size_t SourceSet::add(std::string name, std::string text) {
  if (!text.ends_with('\n')) text += '\n';  // glslang's preprocessor cannot do without
  files_.push_back({std::move(name), std::move(text), "@" + std::to_string(files_.size())});
  return files_.size() - 1;
}

void SourceSet::scan(size_t file, const IncludeLoader& loader) {
  const std::string text = files_[file].text;  // a copy: loading grows files_
  for (const auto& line : directives(tokenize(text), "include")) {
    const std::string path = include_path(line, text);
    if (path.empty()) continue;
    if (const auto found = load(path, file, loader)) includes_.emplace(std::pair(file, path), *found);
  }
}

// As it is written, else beside the file that includes it.
std::optional<size_t> SourceSet::load(const std::string& path, size_t includer, const IncludeLoader& loader) {
  if (const auto found = load_as(path, loader)) return found;
  const auto folder = std::filesystem::path(files_[includer].name).parent_path();
  return folder.empty() ? std::nullopt : load_as((folder / path).lexically_normal().string(), loader);
}

std::optional<size_t> SourceSet::load_as(const std::string& name, const IncludeLoader& loader) {
  if (const auto known = loaded_.find(name); known != loaded_.end()) return known->second;
  auto text = load_text(name, loader);
  const auto file = text ? std::optional(add(name, std::move(*text))) : std::nullopt;
  loaded_.emplace(name, file);
  return file;
}

std::optional<size_t> SourceSet::find(const std::string& path, size_t includer) const {
  const auto found = includes_.find({includer, path});
  if (found == includes_.end()) return {};
  return found->second;
}

std::optional<size_t> SourceSet::by_alias(std::string_view alias) const {
  const auto found = std::ranges::find(files_, alias, &SourceFile::alias);
  if (found == files_.end()) return {};
  return static_cast<size_t>(found - files_.begin());
}

}  // namespace pumice
