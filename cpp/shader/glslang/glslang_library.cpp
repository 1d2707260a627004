#include "glslang_library.h"

#include <glslang/Include/intermediate.h>
#include <glslang/MachineIndependent/localintermediate.h>
#include <glslang/Public/ResourceLimits.h>
#include <glslang/Public/ShaderLang.h>
#include <glslang/SPIRV/GlslangToSpv.h>
#include <glslang/SPIRV/disassemble.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>

#include <exception>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

// Owns the data that a PumiceGlslangResult points to.
struct OwnedResult : PumiceGlslangResult {
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

// Requests included sources from the engine.
class Includer : public glslang::TShader::Includer {
 public:
  explicit Includer(const PumiceGlslangRequest& request) : request_(request) {}

  IncludeResult* includeLocal(const char* path, const char* includer, size_t depth) override { return find_include(path, includer, depth); }
  IncludeResult* includeSystem(const char* path, const char* includer, size_t depth) override {
    return find_include(path, includer, depth);
  }
  void releaseInclude(IncludeResult* result) override { delete result; }

 private:
  IncludeResult* find_include(const char* path, const char* includer, size_t depth) {
    static constexpr char kTooDeep[] = "includes nest deeper than 64: does a file include itself?";
    static constexpr char kTooMany[] = "more than 10000 includes, or 16 MiB of them: do files include each other?";
    if (depth > 64) return new IncludeResult("", kTooDeep, sizeof kTooDeep - 1, nullptr);
    if (++includes_ > 10'000 || bytes_ > (size_t{16} << 20)) return new IncludeResult("", kTooMany, sizeof kTooMany - 1, nullptr);
    PumiceString name{}, text{};
    if (!request_.include) return nullptr;
    if (!request_.include(request_.user, path, includer, &name, &text)) return new IncludeResult("", text.text, text.bytes, nullptr);
    bytes_ += text.bytes;
    return new IncludeResult(std::string(name.text, name.bytes), text.text, text.bytes, nullptr);
  }

  size_t includes_ = 0, bytes_ = 0;
  const PumiceGlslangRequest& request_;
};

struct TargetVersions {
  glslang::EShTargetClientVersion client;
  glslang::EShTargetLanguageVersion language;
};

TargetVersions get_target_versions(int vulkan_minor) {
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

void configure_shader(glslang::TShader& shader, const PumiceGlslangRequest& request) {
  const TargetVersions target = get_target_versions(request.vulkan_minor);
  shader.setStringsWithLengthsAndNames(request.strings, request.bytes, request.names, request.count);
  shader.setEnvInput(glslang::EShSourceGlsl, EShLangCompute, glslang::EShClientVulkan, 100);
  shader.setEnvClient(glslang::EShClientVulkan, target.client);
  shader.setEnvTarget(glslang::EShTargetSpv, target.language);
}

// Rejects whole-array operations on large arrays: if layouts differ, copying, comparing or passing one becomes one instruction per element.
class WholeArrayChecker : public glslang::TIntermTraverser {
 public:
  static constexpr double kMaxElements = 16'384;
  static constexpr double kMaxConstants = 65'532;  // limit imposed by the maximum length of a SPIR-V instruction

  bool visitBinary(glslang::TVisit, glslang::TIntermBinary* node) override {
    const bool is_indexing = node->getOp() == glslang::EOpIndexDirect || node->getOp() == glslang::EOpIndexIndirect ||
                             node->getOp() == glslang::EOpIndexDirectStruct;
    if (!is_indexing) check_array(*node->getLeft());
    return true;
  }
  bool visitAggregate(glslang::TVisit, glslang::TIntermAggregate* node) override {
    if (node->getOp() == glslang::EOpFunctionCall)
      for (auto* argument : node->getSequence())
        if (argument->getAsTyped()) check_array(*argument->getAsTyped());
    return true;
  }
  bool visitSelection(glslang::TVisit, glslang::TIntermSelection* node) override {
    check_array(*node);
    return true;
  }
  void visitConstantUnion(glslang::TIntermConstantUnion* node) override { check_array(*node, kMaxConstants); }
  bool visitBranch(glslang::TVisit, glslang::TIntermBranch* node) override {
    if (node->getExpression()) check_array(*node->getExpression());
    return true;
  }

  std::string errors;

 private:
  static double count_elements(const glslang::TType& type) {
    double count = 1;
    if (type.isArray())
      for (int i = 0; i < type.getArraySizes()->getNumDims(); ++i) count *= type.getArraySizes()->getDimSize(i);
    if (!type.isStruct()) return count;
    double members = 0;
    for (const auto& member : *type.getStruct()) members += count_elements(*member.type);
    return count * members;
  }

  void check_array(const glslang::TIntermTyped& node, double limit = kMaxElements) {
    const double count = count_elements(node.getType());
    if (count <= limit || !errors.empty()) return;
    const auto& location = node.getLoc();
    errors = "ERROR: " + std::string(location.getStringNameOrNum(false).c_str()) + ":" + std::to_string(location.line) +
             ": '' : " + "an array is used as a whole: given " + std::to_string(static_cast<unsigned long long>(count)) +
             " elements, the limit is " + std::to_string(static_cast<int>(limit)) + "\n";
  }
};

// Storage-only 8- and 16-bit types must be constructed through a 32-bit type; glslang omits that conversion.
class WideningConversionInserter : public glslang::TIntermTraverser {
 public:
  explicit WideningConversionInserter(const glslang::TIntermediate& intermediate) : intermediate_(intermediate) {}

  bool visitAggregate(glslang::TVisit, glslang::TIntermAggregate* node) override {
    const glslang::TBasicType target_type = node->getBasicType();
    if (!is_32bit_constructor(node->getOp())) return true;
    for (auto*& argument : node->getSequence())
      if (auto* typed = argument->getAsTyped(); typed && typed->getBasicType() != target_type)
        if (auto* converted = convert_via_32bit(target_type, typed)) argument = converted;
    return true;
  }

 private:
  static bool is_32bit_constructor(glslang::TOperator op) {
    switch (op) {
      case glslang::EOpConstructFloat:
      case glslang::EOpConstructVec2:
      case glslang::EOpConstructVec3:
      case glslang::EOpConstructVec4:
      case glslang::EOpConstructInt:
      case glslang::EOpConstructIVec2:
      case glslang::EOpConstructIVec3:
      case glslang::EOpConstructIVec4:
      case glslang::EOpConstructUint:
      case glslang::EOpConstructUVec2:
      case glslang::EOpConstructUVec3:
      case glslang::EOpConstructUVec4:
        return true;
      default:
        return false;
    }
  }

  // Returns the 32-bit type that a storage-only 8- or 16-bit type converts to.
  static glslang::TBasicType get_widened_type(glslang::TBasicType type) {
    switch (type) {
      case glslang::EbtFloat16:
        return glslang::EbtFloat;
      case glslang::EbtInt8:
      case glslang::EbtInt16:
        return glslang::EbtInt;
      case glslang::EbtUint8:
      case glslang::EbtUint16:
        return glslang::EbtUint;
      default:
        return type;
    }
  }

  glslang::TIntermTyped* convert_via_32bit(glslang::TBasicType target_type, glslang::TIntermTyped* value) const {
    const glslang::TBasicType widened = get_widened_type(value->getBasicType());
    if (widened != value->getBasicType()) value = intermediate_.addConversion(widened, value);
    return value && widened != target_type ? intermediate_.addConversion(target_type, value) : value;
  }

  const glslang::TIntermediate& intermediate_;
};

// Removes repeated decorations: glslang decorates a variable twice as Coherent if it is declared coherent and volatile.
std::vector<unsigned int> remove_repeated_decorations(const std::vector<unsigned int>& words) {
  constexpr size_t kHeaderWords = 5;
  constexpr unsigned int kOpDecorate = 71, kOpMemberDecorate = 72;
  std::set<std::vector<unsigned int>> seen_decorations;
  std::vector<unsigned int> unique_words(words.begin(), words.begin() + kHeaderWords);
  for (size_t at = kHeaderWords; at < words.size(); at += words[at] >> 16) {
    const unsigned int op = words[at] & 0xffff;
    const auto begin = words.begin() + static_cast<ptrdiff_t>(at), end = begin + (words[at] >> 16);
    if ((op == kOpDecorate || op == kOpMemberDecorate) && !seen_decorations.emplace(begin, end).second) continue;
    unique_words.insert(unique_words.end(), begin, end);
  }
  return unique_words;
}

bool compile_shader(glslang::TShader& shader, Includer& includer, const PumiceGlslangRequest& request, OwnedResult& result) {
  const bool parsed = shader.parse(GetDefaultResources(), kVersion, ENoProfile, false, false, kMessages, includer);
  result.log_storage = shader.getInfoLog();
  if (!parsed) return false;
  glslang::TProgram program;
  program.addShader(&shader);
  if (!program.link(kMessages)) {
    result.log_storage += program.getInfoLog();
    return false;
  }
  glslang::TIntermediate& intermediate = *program.getIntermediate(EShLangCompute);
  WideningConversionInserter constructors(intermediate);
  intermediate.getTreeRoot()->traverse(&constructors);
  WholeArrayChecker arrays;
  intermediate.getTreeRoot()->traverse(&arrays);
  if (!arrays.errors.empty()) {
    result.log_storage += arrays.errors;
    return false;
  }
  spv::SpvBuildLogger logger;
  glslang::SpvOptions options;  // no optimizer: it strips the names that reflection needs, and drivers optimize anyway
  options.generateDebugInfo = request.source_lines;
  glslang::GlslangToSpv(intermediate, result.spirv_storage, &logger, &options);
  result.log_storage += logger.getAllMessages();
  if (result.spirv_storage.empty()) return false;
  result.spirv_storage = remove_repeated_decorations(result.spirv_storage);
  return true;
}

bool run_request(const PumiceGlslangRequest& request, OwnedResult& result) {
  static const bool initialized = glslang::InitializeProcess();
  if (!initialized) {
    result.log_storage = "ERROR: glslang could not be initialised\n";
    return false;
  }
  glslang::TShader shader(EShLangCompute);
  configure_shader(shader, request);
  Includer includer(request);
  if (!request.preprocess) return compile_shader(shader, includer, request, result);
  const bool ok = shader.preprocess(GetDefaultResources(), kVersion, ENoProfile, false, false, kMessages, &result.text_storage, includer);
  result.log_storage = shader.getInfoLog();
  return ok;
}

// Heap memory required for a run, in addition to its stack. The first run needs more.
constexpr size_t kGlslangHeapBytes = size_t{32} << 20;
// Address space that the C library reserves for a new thread's heap.
constexpr size_t kThreadHeapBytes = size_t{128} << 20;

struct CompileJob {
  const PumiceGlslangRequest& request;
  OwnedResult& result;
};

void* run_compile_job(void* argument) {
  const auto& [request, result] = *static_cast<CompileJob*>(argument);
  try {
    result.ok = run_request(request, result);
  } catch (const std::bad_alloc&) {
    result.ok = false;
    result.missing_bytes = kGlslangHeapBytes;
  } catch (const std::exception& exception) {
    result.ok = false;
    result.log_storage += std::string("ERROR: glslang: ") + exception.what() + "\n";
  } catch (...) {
    result.ok = false;
    result.log_storage += "ERROR: glslang failed\n";
  }
  return nullptr;
}

// Returns whether this much memory can be mapped. Checked before a thread is started, because a failed allocation in it ends the process.
bool can_map_memory(size_t bytes) {
  void* const mapping = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) return false;
  munmap(mapping, bytes);
  return true;
}

// Returns memory to the system after the first run. glslang frees most of it after building its tables, but the C library would keep it.
void trim_heap_once() {
#ifdef __GLIBC__
  static std::once_flag trimmed;
  std::call_once(trimmed, [] { malloc_trim(0); });
#endif
}

// Returns the remaining stack of the calling thread, in bytes.
size_t get_remaining_stack_bytes() {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return 0;
  void* lowest = nullptr;
  size_t bytes = 0;
  const bool known = pthread_attr_getstack(&attributes, &lowest, &bytes) == 0;
  pthread_attr_destroy(&attributes);
  const auto here = reinterpret_cast<uintptr_t>(&attributes), end = reinterpret_cast<uintptr_t>(lowest);
  return known && here > end ? here - end : 0;
}

// glslang recurses through nested source. If the caller's stack is too small, it runs in a thread with a larger one.
const PumiceGlslangResult* run_on_sufficient_stack(const PumiceGlslangRequest* request) {
  auto result = std::make_unique<OwnedResult>();
  CompileJob job{*request, *result};
  const bool has_stack = get_remaining_stack_bytes() >= request->stack_bytes;
  const size_t needed = kGlslangHeapBytes + (has_stack ? 0 : request->stack_bytes + kThreadHeapBytes);
  if (!can_map_memory(needed)) {
    result->missing_bytes = needed;
    return result.release()->finish();
  }
  if (has_stack) {
    run_compile_job(&job);
    trim_heap_once();
    return result.release()->finish();
  }
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, request->stack_bytes);
  pthread_t thread;
  const int failure = pthread_create(&thread, &attributes, run_compile_job, &job);
  pthread_attr_destroy(&attributes);
  if (failure == 0)
    pthread_join(thread, nullptr), trim_heap_once();
  else
    result->missing_bytes = needed;
  return result.release()->finish();
}

const PumiceGlslangResult* disassemble(const uint32_t* spirv, size_t words) {
  auto result = std::make_unique<OwnedResult>();
  std::ostringstream text;
  spv::Disassemble(text, {spirv, spirv + words});
  result->text_storage = text.str();
  result->ok = true;
  return result.release()->finish();
}

void release_result(const PumiceGlslangResult* result) {
  delete static_cast<const OwnedResult*>(result);
}

const char* get_version() {
  static const std::string text = [] {
    const glslang::Version number = glslang::GetVersion();
    return std::to_string(number.major) + "." + std::to_string(number.minor) + "." + std::to_string(number.patch);
  }();
  return text.c_str();
}

}  // namespace

const PumiceGlslang* pumice_glslang() {
  static const PumiceGlslang library{kPumiceGlslangInterface, get_version(), run_on_sufficient_stack, disassemble, release_result};
  return &library;
}
