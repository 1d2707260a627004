// Compiled shaders by content: in memory for the process, on disk for the next one.
#pragma once

#include <memory>
#include <string>

#include "shader/shader.h"

namespace pumice {

// Thread-safe. Keys are digests of everything that the SPIR-V depends on; entries from disk are checked before they are believed.
class ShaderCache {
 public:
  static ShaderCache& instance();
  std::shared_ptr<const Shader> find(const std::string& key, const std::string& name);
  std::shared_ptr<const Shader> add(const std::string& key, std::shared_ptr<const Shader> shader);
  CompileCounts counts();

 private:
  struct State;
  ShaderCache();
  State& state_;
};

}  // namespace pumice
