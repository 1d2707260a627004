// Fuzzes the SPIR-V readers and rewriters: reflection, variable sizes, index checks, loop hints, lowering of 64-bit integers to word
// pairs, and the bounds checks of debugged shaders. Modules come from glslang, from the disk cache, and from users of pumice.reflect().
//
// The mutator mostly works on whole instructions, because parsing stops at a wrong instruction length.
#include "shader/spirv/spirv.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "shader/debug/bounds_checks.h"
#include "shader/int64/int64_emulation.h"
#include "shader/spirv/int64_comparisons.h"
#include "shader/spirv/robustness.h"
#include "shader/spirv/interface.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

using Words = std::vector<uint32_t>;

const std::map<uint32_t, uint64_t> kConstants = {{0, 3}, {1, uint64_t{1} << 40}, {2, 0}, {5, 0xffffffff}};

// Runs the call. Only pumice::Error is expected; any other exception ends the run.
template <typename Call>
void attempt(const Call& call) {
  try {
    call();
  } catch (const pumice::Error&) {
  }
}

// Checks that a rewritten module still consists of well-framed instructions.
void check_framing(const Words& module) {
  try {
    pumice::spirv::parse_instructions(module);
  } catch (const pumice::Error&) {
    std::abort();
  }
}

Words words_of(const uint8_t* data, size_t size) {
  Words words(size / sizeof(uint32_t));
  if (!words.empty()) std::memcpy(words.data(), data, words.size() * sizeof(uint32_t));
  return words;
}

// Returns the index of the first word of each instruction.
std::vector<size_t> starts_of(const Words& words) {
  std::vector<size_t> starts;
  for (size_t at = pumice::spirv::kHeaderWords; at < words.size(); at += words[at] >> 16) {
    if (words[at] >> 16 == 0 || words[at] >> 16 > words.size() - at) break;
    starts.push_back(at);
  }
  return starts;
}

void mutate_instruction(Words& words, std::mt19937& random) {
  const auto starts = starts_of(words);
  if (starts.empty()) return;
  const size_t at = starts[random() % starts.size()], other = starts[random() % starts.size()];
  const size_t length = words[at] >> 16, other_length = words[other] >> 16;
  const auto place = [&](size_t i) { return words.begin() + static_cast<ptrdiff_t>(i); };
  switch (random() % 6) {
    case 0:  // another opcode
      words[at] = (words[at] & 0xffff0000u) | (words[other] & 0xffffu);
      return;
    case 1: {  // a copy of another instruction
      const Words copy(place(other), place(other + other_length));
      words.insert(place(at), copy.begin(), copy.end());
      return;
    }
    case 2:
      words.erase(place(at), place(at + length));
      return;
    case 3:  // fewer operands
      if (length < 2) return;
      words.erase(place(at + length - 1));
      words[at] -= 1u << 16;
      return;
    case 4:  // more operands
      words.insert(place(at + length), words[other + random() % other_length]);
      words[at] += 1u << 16;
      return;
    default:  // an operand of another instruction, or a small number
      if (length > 1) words[at + 1 + random() % (length - 1)] = random() % 2 ? words[other + random() % other_length] : random() % 80;
  }
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  std::mt19937 random(seed);
  if (random() % 4 == 0) return LLVMFuzzerMutate(data, size, max_size);
  Words words = words_of(data, size);
  mutate_instruction(words, random);
  const size_t bytes = std::min(words.size() * sizeof(uint32_t), max_size);
  if (bytes > 0) std::memcpy(data, words.data(), bytes);
  return bytes;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pumice;
  const Words module = words_of(data, size);
  attempt([&] { reflect(module); });
  attempt([&] { compute_variable_sizes(module, kConstants); });
  attempt([&] { check_framing(spirv::remove_unroll_hints(module)); });
  attempt([&] { check_framing(spirv::complement_int64_comparisons(module)); });
  attempt([&] {
    std::vector<std::string> dropped;
    check_framing(limit_unrolling(module, dropped));
  });
  attempt([&] { check_framing(clamp_local_indices(module)); });
  attempt([&] { check_framing(emulate_int64(module, kConstants).spirv); });
  attempt([&] {
    static const SourceSet sources("fuzz.comp", "void main() {}", {});
    Words debugged = module;
    assign_debug_bindings(debugged);
    add_bounds_checks(debugged, sources);
    check_framing(debugged);
  });
  return 0;
}
