// The C interface of libpumice_glslang.so, the only code that uses glslang. The engine loads it on the first shader that no cache has.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

// Raised with every change of this file.
inline constexpr uint32_t kPumiceGlslangInterface = 3;

struct PumiceText {
  const char* text;
  size_t bytes;
};

// The text of an include and the name that messages give it; false where there is none: `text` then says why.
typedef bool (*PumiceInclude)(void* user, const char* path, const char* includer, PumiceText* name, PumiceText* text);

struct PumiceGlslangRequest {
  const char* const* texts;  // parts of one source, in order
  const int* bytes;
  const char* const* names;  // names of the parts, for messages
  int count;
  int vulkan_minor;
  bool preprocess;    // only expand macros and includes, into `text`
  bool source_lines;  // the SPIR-V says which line its instructions come from
  PumiceInclude include;
  void* user;
  size_t stack_bytes;  // stack of the thread that walks through the text by recursion
};

struct PumiceGlslangResult {
  bool ok;
  const uint32_t* spirv;
  size_t words;
  PumiceText text;       // preprocessed
  PumiceText log;        // messages, one a line
  size_t missing_bytes;  // memory that was lacking where it failed for that; else 0
};

struct PumiceGlslang {
  uint32_t interface;
  const char* version;  // of the library that runs, "13.1.1"
  // The result is null only where memory is short. Thread-safe.
  const PumiceGlslangResult* (*run)(const PumiceGlslangRequest* request);
  const PumiceGlslangResult* (*disassemble)(const uint32_t* spirv, size_t words);  // into `text`; of modules that glslang wrote
  void (*release)(const PumiceGlslangResult* result);
};

__attribute__((visibility("default"))) const PumiceGlslang* pumice_glslang();
}
