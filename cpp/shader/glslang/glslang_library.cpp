#include "glslang_library.h"

#include <glslang/Public/ResourceLimits.h>
#include <glslang/Public/ShaderLang.h>
#include <glslang/SPIRV/GlslangToSpv.h>
#include <glslang/SPIRV/disassemble.h>

#include <exception>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace {

// Owns what a PumiceGlslangResult points to.
struct Result : PumiceGlslangResult {
  std::string text_storage, log_storage;
  std::vector<unsigned int> spirv_storage;

  const PumiceGlslangResult* finish() {
    text = {text_storage.data(), text_storage.size()};
    log = {log_storage.data(), log_storage.size()};
    spirv = spirv_storage.data();
    words = spirv_storage.size();
    return this;
  }
};

// Asks the engine for the texts of includes.
class Includer : public glslang::TShader::Includer {
 public:
  explicit Includer(const PumiceGlslangRequest& request) : request_(request) {}

  IncludeResult* includeLocal(const char* path, const char* includer, size_t depth) override { return find(path, includer, depth); }
  IncludeResult* includeSystem(const char* path, const char* includer, size_t depth) override { return find(path, includer, depth); }
  void releaseInclude(IncludeResult* result) override { delete result; }

 private:
  IncludeResult* find(const char* path, const char* includer, size_t depth) {
    static constexpr char kTooDeep[] = "includes nest deeper than 64: does a file include itself?";
    if (depth > 64) return new IncludeResult("", kTooDeep, sizeof kTooDeep - 1, nullptr);
    PumiceText name{}, text{};
    if (!request_.include) return nullptr;
    if (!request_.include(request_.user, path, includer, &name, &text)) return new IncludeResult("", text.text, text.bytes, nullptr);
    return new IncludeResult(std::string(name.text, name.bytes), text.text, text.bytes, nullptr);
  }

  const PumiceGlslangRequest& request_;
};

struct Target {
  glslang::EShTargetClientVersion client;
  glslang::EShTargetLanguageVersion language;
};

Target target_of(int vulkan_minor) {
  switch (vulkan_minor) {
    case 0:
      return {glslang::EShTargetVulkan_1_0, glslang::EShTargetSpv_1_0};
    case 1:
      return {glslang::EShTargetVulkan_1_1, glslang::EShTargetSpv_1_3};
    case 2:
      return {glslang::EShTargetVulkan_1_2, glslang::EShTargetSpv_1_5};
    default:
      return {glslang::EShTargetVulkan_1_3, glslang::EShTargetSpv_1_6};
  }
}

constexpr int kVersion = 450;
constexpr EShMessages kMessages = static_cast<EShMessages>(EShMsgSpvRules | EShMsgVulkanRules);

void set_up(glslang::TShader& shader, const PumiceGlslangRequest& request) {
  const Target target = target_of(request.vulkan_minor);
  shader.setStringsWithLengthsAndNames(request.texts, request.bytes, request.names, request.count);
  shader.setEnvInput(glslang::EShSourceGlsl, EShLangCompute, glslang::EShClientVulkan, 100);
  shader.setEnvClient(glslang::EShClientVulkan, target.client);
  shader.setEnvTarget(glslang::EShTargetSpv, target.language);
}

bool compile(glslang::TShader& shader, Includer& includer, const PumiceGlslangRequest& request, Result& result) {
  const bool parsed = shader.parse(GetDefaultResources(), kVersion, ENoProfile, false, false, kMessages, includer);
  result.log_storage = shader.getInfoLog();
  if (!parsed) return false;
  glslang::TProgram program;
  program.addShader(&shader);
  if (!program.link(kMessages)) {
    result.log_storage += program.getInfoLog();
    return false;
  }
  spv::SpvBuildLogger logger;
  glslang::SpvOptions options;  // no optimiser: it strips the names that reflection reads, and drivers optimise anyway
  options.generateDebugInfo = request.source_lines;
  glslang::GlslangToSpv(*program.getIntermediate(EShLangCompute), result.spirv_storage, &logger, &options);
  result.log_storage += logger.getAllMessages();
  return !result.spirv_storage.empty();
}

bool run_request(const PumiceGlslangRequest& request, Result& result) {
  static const bool initialized = glslang::InitializeProcess();
  if (!initialized) {
    result.log_storage = "ERROR: glslang could not be initialised\n";
    return false;
  }
  glslang::TShader shader(EShLangCompute);
  set_up(shader, request);
  Includer includer(request);
  if (!request.preprocess) return compile(shader, includer, request, result);
  const bool ok = shader.preprocess(GetDefaultResources(), kVersion, ENoProfile, false, false, kMessages, &result.text_storage, includer);
  result.log_storage = shader.getInfoLog();
  return ok;
}

const PumiceGlslangResult* run(const PumiceGlslangRequest* request) {
  auto result = std::make_unique<Result>();
  try {
    result->ok = run_request(*request, *result);
  } catch (const std::exception& exception) {
    result->ok = false;
    result->log_storage += std::string("ERROR: glslang: ") + exception.what() + "\n";
  } catch (...) {
    result->ok = false;
    result->log_storage += "ERROR: glslang failed\n";
  }
  return result.release()->finish();
}

const PumiceGlslangResult* disassemble(const uint32_t* spirv, size_t words) {
  auto result = std::make_unique<Result>();
  std::ostringstream text;
  spv::Disassemble(text, {spirv, spirv + words});
  result->text_storage = text.str();
  result->ok = true;
  return result.release()->finish();
}

void release(const PumiceGlslangResult* result) {
  delete static_cast<const Result*>(result);
}

const char* version() {
  static const std::string text = [] {
    const glslang::Version number = glslang::GetVersion();
    return std::to_string(number.major) + "." + std::to_string(number.minor) + "." + std::to_string(number.patch);
  }();
  return text.c_str();
}

}  // namespace

const PumiceGlslang* pumice_glslang() {
  static const PumiceGlslang library{kPumiceGlslangInterface, version(), run, disassemble, release};
  return &library;
}
