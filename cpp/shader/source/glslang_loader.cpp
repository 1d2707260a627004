#include "shader/source/glslang_loader.h"

#include <dlfcn.h>
#include <sys/resource.h>

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>

#include "core/error.h"

namespace pumice {
namespace {

// Returns the folder of the module that contains this code; symlinks are resolved.
std::filesystem::path find_module_folder() {
  Dl_info info{};
  if (!dladdr(reinterpret_cast<const void*>(&get_glslang_version), &info) || !info.dli_fname) return {};
  std::error_code unknown;
  const auto path = std::filesystem::weakly_canonical(info.dli_fname, unknown);
  return (unknown ? std::filesystem::path(info.dli_fname) : path).parent_path();
}

Error make_load_error(const std::string& detail) {
  return Error("the shader compiler could not be loaded: " + detail);
}

// Throws OutOfMemoryError if the library cannot be mapped for lack of address space, otherwise Error.
[[noreturn]] void throw_load_error(const std::string& detail) {
  rlimit space{};
  const bool is_limited = getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY;
  const auto contains = [&](const char* text) { return detail.find(text) != std::string::npos; };
  const bool is_out_of_memory = contains("annot allocate memory") ||
                                (is_limited && (contains("failed to map") || contains("cannot map") || contains("cannot create")));
  if (!is_out_of_memory) throw make_load_error(detail);
  throw OutOfMemoryError(
      std::string(make_load_error(detail).what()) +
      (is_limited ? "; the process is limited to " + std::to_string(space.rlim_cur >> 20) + " MiB of address space" : ""));
}

const PumiceGlslang& load_glslang() {
  const auto path = find_module_folder() / "libpumice_glslang.so";
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);  // never closed: glslang keeps process-wide tables
  if (!library) throw_load_error(dlerror());
  const auto entry = reinterpret_cast<decltype(&pumice_glslang)>(dlsym(library, "pumice_glslang"));
  if (!entry) throw make_load_error(dlerror());
  const PumiceGlslang* loaded = entry();
  if (loaded->interface != kPumiceGlslangInterface || loaded->version != get_glslang_version())
    throw make_load_error("expected " + path.string() + " to be of interface " + std::to_string(kPumiceGlslangInterface) + " and glslang " +
                          std::string(get_glslang_version()) + ", given interface " + std::to_string(loaded->interface) + " and glslang " +
                          loaded->version);
  return *loaded;
}

bool can_compile_with_extension(const std::string& extension) {
  const std::string text = "#version 450\n#extension " + extension + " : require\nvoid main() {}\n";
  const char* strings[] = {text.c_str()};
  const char* names[] = {"probe"};
  const int bytes[] = {static_cast<int>(text.size())};
  PumiceGlslangRequest request{};
  request.strings = strings;
  request.names = names;
  request.bytes = bytes;
  request.count = 1;
  request.vulkan_minor = 3;
  request.stack_bytes = size_t{4} << 20;
  const std::unique_ptr<const PumiceGlslangResult, void (*)(const PumiceGlslangResult*)> result(get_glslang().run(&request),
                                                                                                get_glslang().release);
  if (result->missing_bytes > 0) throw OutOfMemoryError("the shader compiler could not be queried for " + extension + ": out of memory");
  return result->ok;
}

}  // namespace

const PumiceGlslang& get_glslang() {
  static const PumiceGlslang& library = load_glslang();  // the load is retried after an exception
  return library;
}

std::string_view get_glslang_version() {
  return PUMICE_GLSLANG_VERSION;
}

bool glslang_supports_extension(const std::string& extension) {
  static std::mutex mutex;
  static std::map<std::string, bool> results;
  const std::lock_guard guard(mutex);
  const auto found = results.find(extension);
  return found != results.end() ? found->second : results.emplace(extension, can_compile_with_extension(extension)).first->second;
}

}  // namespace pumice
