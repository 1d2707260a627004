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
std::filesystem::path module_folder() {
  Dl_info info{};
  if (!dladdr(reinterpret_cast<const void*>(&glslang_version), &info) || !info.dli_fname) return {};
  std::error_code unknown;
  const auto path = std::filesystem::weakly_canonical(info.dli_fname, unknown);
  return (unknown ? std::filesystem::path(info.dli_fname) : path).parent_path();
}

Error load_error(const std::string& detail) {
  return Error("the shader compiler could not be loaded: " + detail);
}

// Reports a library that exists but cannot be mapped, because the process is out of address space.
[[noreturn]] void throw_load_error(const std::string& detail) {
  rlimit space{};
  const bool is_limited = getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY;
  const auto contains = [&](const char* text) { return detail.find(text) != std::string::npos; };
  const bool is_fully_connected = contains("annot allocate memory") ||
                                  (is_limited && (contains("failed to map") || contains("cannot map") || contains("cannot create")));
  if (!is_fully_connected) throw load_error(detail);
  throw OutOfMemoryError(std::string(load_error(detail).what()) +
                         (is_limited ? "; the process may have " + std::to_string(space.rlim_cur >> 20) + " MiB of address space" : ""));
}

const PumiceGlslang& load() {
  const auto path = module_folder() / "libpumice_glslang.so";
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);  // never closed: glslang keeps process-wide tables
  if (!library) throw_load_error(dlerror());
  const auto entry = reinterpret_cast<decltype(&pumice_glslang)>(dlsym(library, "pumice_glslang"));
  if (!entry) throw load_error(dlerror());
  const PumiceGlslang* loaded = entry();
  if (loaded->interface != kPumiceGlslangInterface || loaded->version != glslang_version())
    throw load_error("expected " + path.string() + " to be of interface " + std::to_string(kPumiceGlslangInterface) + " and glslang " +
                     std::string(glslang_version()) + ", given interface " + std::to_string(loaded->interface) + " and glslang " +
                     loaded->version);
  return *loaded;
}

bool test_extension(const std::string& extension) {
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
  const std::unique_ptr<const PumiceGlslangResult, void (*)(const PumiceGlslangResult*)> result(glslang().run(&request), glslang().release);
  if (result->missing_bytes > 0) throw OutOfMemoryError("the shader compiler could not be asked for " + extension + ": no memory");
  return result->ok;
}

}  // namespace

const PumiceGlslang& glslang() {
  static const PumiceGlslang& library = load();  // the load is retried after an exception
  return library;
}

std::string_view glslang_version() {
  return PUMICE_GLSLANG_VERSION;
}

bool glslang_accepts(const std::string& extension) {
  static std::mutex mutex;
  static std::map<std::string, bool> results;
  const std::lock_guard guard(mutex);
  const auto found = results.find(extension);
  return found != results.end() ? found->second : results.emplace(extension, test_extension(extension)).first->second;
}

}  // namespace pumice
