// The C interface of libpumice_glslang.so, the only code that uses glslang. The engine loads it on the first cache miss.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

// Interface version; increase it with every change to this file.
inline constexpr uint32_t kPumiceGlslangInterface = 3;

struct PumiceString {
  const char* text;
  size_t bytes;
};

// Gets an included file's source and its name in messages. Returns false if it is not found; `text` then contains the reason.
typedef bool (*PumiceInclude)(void* user, const char* path, const char* includer, PumiceString* name, PumiceString* text);

struct PumiceGlslangRequest {
  const char* const* strings;  // strings of one source, in order
  const int* bytes;
  const char* const* names;  // names of the strings in messages
  int count;
  int vulkan_minor;
  bool preprocess;    // only expand macros and includes, into `text`
  bool source_lines;  // emit line numbers in the SPIR-V
  PumiceInclude include;
  void* user;
  size_t stack_bytes;  // required stack of the thread that recurses through the source
};

struct PumiceGlslangResult {
  bool ok;
  const uint32_t* spirv;
  size_t words;
  PumiceString text;     // preprocessed source
  PumiceString log;      // one message per line
  size_t missing_bytes;  // size of the failed allocation if out of memory; else 0
};

struct PumiceGlslang {
  uint32_t interface;
  const char* version;  // version of the loaded library, "13.1.1"
  // Returns null only if out of memory. Thread-safe.
  const PumiceGlslangResult* (*run)(const PumiceGlslangRequest* request);
  // Disassembles into `text`; only for modules that glslang wrote.
  const PumiceGlslangResult* (*disassemble)(const uint32_t* spirv, size_t words);
  void (*release)(const PumiceGlslangResult* result);
};

__attribute__((visibility("default"))) const PumiceGlslang* pumice_glslang();
}
