#include "shader/source/source_set.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "shader/source/embedded_shaders.h"

namespace pumice {
namespace {

constexpr std::string_view kFileKey = "file ", kByteOrderMark = "\xef\xbb\xbf";

std::optional<std::string> read_file(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return {};
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return file.bad() ? std::nullopt : std::optional(std::move(text));
}

// Resolves `path` relative to the folder of the file `name`.
std::string resolve_relative_path(const std::string& name, const std::string& path) {
  return (std::filesystem::path(name).parent_path() / path).lexically_normal().string();
}

}  // namespace

std::optional<std::string> FileCache::read(const std::string& path) {
  const std::lock_guard guard(mutex_);
  const auto cached = contents_.find(path);
  return cached != contents_.end() ? cached->second : contents_.emplace(path, read_file(path)).first->second;
}

SourceSet::SourceSet(std::string name, std::string text, const IncludeSearchPath& includes) : search_path_(includes) {
  add_file(std::move(name), std::move(text), includes.on_disk);
  for (size_t file = 0; file < files_.size(); ++file) load_includes(file);
}

size_t SourceSet::add_file(std::string name, std::string text, bool on_disk) {
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  if (!text.ends_with('\n')) text += '\n';  // glslang's preprocessor requires it
  auto scan = get_scanned_source(text);
  files_.push_back({std::move(name), std::move(text), on_disk, "@" + std::to_string(files_.size()), std::move(scan)});
  return files_.size() - 1;
}

void SourceSet::transform_sources(const std::function<std::string(const std::string&)>& change) {
  for (auto& file : files_) {
    file.text = change(file.text);
    file.scan = get_scanned_source(file.text);
  }
}

void SourceSet::load_includes(size_t file) {
  const auto scan = files_[file].scan;  // a copy: loading reallocates files_
  for (const auto& path : scan->includes)
    if (const auto found = load_include(path, file)) includes_.emplace(std::pair(file, path), *found);
}

// Finds an included file. A file on disk searches its own folder first. An in-memory or embedded source tries the path as written first,
// then relative to itself.
std::optional<size_t> SourceSet::load_include(const std::string& path, size_t includer) {
  const bool on_disk = files_[includer].on_disk;
  const std::string relative = resolve_relative_path(files_[includer].name, path);
  std::optional<size_t> found;
  if (on_disk) found = load_file(relative);
  if (!found) found = load_in_memory(path);
  if (!found && !on_disk) found = load_in_memory(relative);
  for (size_t i = 0; !found && i < search_path_.folders.size(); ++i)
    found = load_file((std::filesystem::path(search_path_.folders[i]) / path).lexically_normal().string());
  if (!found) found = load_embedded(path);
  if (!found && !on_disk) found = load_embedded(relative);
  return found;
}

std::vector<std::string> SourceSet::list_searched_files() const {
  std::vector<std::string> names;
  for (const auto& [key, file] : loaded_)
    if (key.starts_with(kFileKey)) names.push_back(key.substr(kFileKey.size()));
  return names;
}

std::optional<size_t> SourceSet::load_file(const std::string& name) {
  const std::string key = std::string(kFileKey) + name;
  return loaded_.contains(key) ? loaded_[key]
                               : add_once(key, name, search_path_.files ? search_path_.files->read(name) : read_file(name), true);
}

std::optional<size_t> SourceSet::load_in_memory(const std::string& name) {
  const auto text = search_path_.sources_by_path.find(name);
  if (text == search_path_.sources_by_path.end()) return {};
  return add_once("text " + name, name, text->second, false);
}

std::optional<size_t> SourceSet::load_embedded(const std::string& name) {
  const auto text = find_embedded_shader(name);
  if (!text) return {};
  return add_once("embedded " + name, name, std::string(*text), false);
}

std::optional<size_t> SourceSet::add_once(const std::string& key, const std::string& name, std::optional<std::string> source,
                                          bool on_disk) {
  if (const auto cached = loaded_.find(key); cached != loaded_.end()) return cached->second;
  return loaded_[key] = source ? std::optional(add_file(name, std::move(*source), on_disk)) : std::nullopt;
}

std::string SourceSet::describe_missing_include(const std::string& path, size_t includer) const {
  const SourceFile& from = files_[includer];
  std::string locations;
  const auto add_location = [&](const std::string& location) { locations += (locations.empty() ? "" : ", ") + location; };
  if (from.on_disk) add_location("'" + resolve_relative_path(from.name, path) + "'");
  if (!search_path_.sources_by_path.empty()) add_location("the given includes");
  for (const auto& folder : search_path_.folders) add_location("the folder '" + folder + "'");
  return "'" + path + "' was not found" + (locations.empty() ? ": no includes and no folders were given" : "; looked for in " + locations);
}

std::optional<size_t> SourceSet::find_include(const std::string& path, size_t includer) const {
  const auto found = includes_.find({includer, path});
  if (found == includes_.end()) return {};
  return found->second;
}

std::optional<size_t> SourceSet::find_file_by_alias(std::string_view alias) const {
  const auto found = std::ranges::find(files_, alias, &SourceFile::alias);
  if (found == files_.end()) return {};
  return static_cast<size_t>(found - files_.begin());
}

}  // namespace pumice
