#include "shader/source/source_set.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "shader/source/embedded_shaders.h"

namespace pumice {
namespace {

constexpr std::string_view kFileKey = "file ", kByteOrderMark = "\xef\xbb\xbf";

std::optional<std::string> read_text(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return {};
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return file.bad() ? std::nullopt : std::optional(std::move(text));
}

// Resolves `path` relative to the folder of the file `name`.
std::string beside(const std::string& name, const std::string& path) {
  return (std::filesystem::path(name).parent_path() / path).lexically_normal().string();
}

}  // namespace

std::optional<std::string> FileTexts::read(const std::string& path) {
  const std::lock_guard guard(mutex_);
  const auto known = texts_.find(path);
  return known != texts_.end() ? known->second : texts_.emplace(path, read_text(path)).first->second;
}

SourceSet::SourceSet(std::string name, std::string text, const Includes& includes) : where_(includes) {
  add(std::move(name), std::move(text), includes.on_disk);
  for (size_t file = 0; file < files_.size(); ++file) scan(file);
}

size_t SourceSet::add(std::string name, std::string text, bool on_disk) {
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  if (!text.ends_with('\n')) text += '\n';  // glslang's preprocessor requires it
  auto facts = facts_of(text);
  files_.push_back({std::move(name), std::move(text), on_disk, "@" + std::to_string(files_.size()), std::move(facts)});
  return files_.size() - 1;
}

void SourceSet::replace_texts(const std::function<std::string(const std::string&)>& change) {
  for (auto& file : files_) {
    file.text = change(file.text);
    file.facts = facts_of(file.text);
  }
}

void SourceSet::scan(size_t file) {
  const auto facts = files_[file].facts;  // a copy: loading reallocates files_
  for (const auto& path : facts->includes)
    if (const auto found = load(path, file)) includes_.emplace(std::pair(file, path), *found);
}

// Finds an included file. A file on disk searches its own folder first. An in-memory or embedded source tries the path as written first,
// then relative to itself.
std::optional<size_t> SourceSet::load(const std::string& path, size_t includer) {
  const bool on_disk = files_[includer].on_disk;
  const std::string near = beside(files_[includer].name, path);
  std::optional<size_t> found;
  if (on_disk) found = load_file(near);
  if (!found) found = load_text(path);
  if (!found && !on_disk) found = load_text(near);
  for (size_t i = 0; !found && i < where_.folders.size(); ++i)
    found = load_file((std::filesystem::path(where_.folders[i]) / path).lexically_normal().string());
  if (!found) found = load_embedded(path);
  if (!found && !on_disk) found = load_embedded(near);
  return found;
}

std::vector<std::string> SourceSet::looked_for() const {
  std::vector<std::string> names;
  for (const auto& [key, file] : loaded_)
    if (key.starts_with(kFileKey)) names.push_back(key.substr(kFileKey.size()));
  return names;
}

std::optional<size_t> SourceSet::load_file(const std::string& name) {
  const std::string key = std::string(kFileKey) + name;
  return loaded_.contains(key) ? loaded_[key] : remember(key, name, where_.files ? where_.files->read(name) : read_text(name), true);
}

std::optional<size_t> SourceSet::load_text(const std::string& name) {
  const auto text = where_.texts.find(name);
  if (text == where_.texts.end()) return {};
  return remember("text " + name, name, text->second, false);
}

std::optional<size_t> SourceSet::load_embedded(const std::string& name) {
  const auto text = find_embedded_shader(name);
  if (!text) return {};
  return remember("embedded " + name, name, std::string(*text), false);
}

std::optional<size_t> SourceSet::remember(const std::string& key, const std::string& name, std::optional<std::string> text, bool on_disk) {
  if (const auto known = loaded_.find(key); known != loaded_.end()) return known->second;
  return loaded_[key] = text ? std::optional(add(name, std::move(*text), on_disk)) : std::nullopt;
}

std::string SourceSet::missing(const std::string& path, size_t includer) const {
  const SourceFile& from = files_[includer];
  std::string places;
  const auto add_place = [&](const std::string& place) { places += (places.empty() ? "" : ", ") + place; };
  if (from.on_disk) add_place("'" + beside(from.name, path) + "'");
  if (!where_.texts.empty()) add_place("the given includes");
  for (const auto& folder : where_.folders) add_place("the folder '" + folder + "'");
  return "'" + path + "' was not found" + (places.empty() ? ": no includes and no folders were given" : "; looked for in " + places);
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
