// A small coverage-guided fuzzer for compilers without libFuzzer, with the same arguments:
//
//   fuzz_NAME [-max_total_time=SECONDS] [-runs=0] [-seed=N] [-artifact_prefix=FOLDER/] [-max_len=BYTES] [FILE | FOLDER]...
//
// It runs all files first. Without -runs=0 it then mutates them until the time is up, and keeps mutants that reach new code. The target
// is compiled with -fsanitize-coverage=trace-pc,trace-cmp: __sanitizer_cov_trace_pc() counts the edges between basic blocks, and
// __sanitizer_cov_trace_cmp*() records operands of comparisons, which mutations copy into the input. An input that crashes, or uses more
// than 20 seconds of CPU time, is written to FOLDER/crash-HASH or FOLDER/timeout-HASH.
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" {
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
__attribute__((weak)) size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed);
__attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());
__attribute__((weak)) int __lsan_do_recoverable_leak_check();
size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);
const char* __asan_default_options() {
  return "max_allocation_size_mb=2048:detect_leaks=1";
}
}

namespace {

using Input = std::vector<uint8_t>;

constexpr size_t kEdges = 1 << 16, kComparisons = 1 << 10, kDefaultMaxBytes = 1 << 14;
constexpr int kTimeoutSeconds = 20;
constexpr uint64_t kRunsPerLeakCheck = 1 << 16;

struct Comparison {
  uint64_t a, b;
  uint8_t bytes;
};

std::array<uint8_t, kEdges> edge_counts;  // hits per edge in the current run
std::array<uint8_t, kEdges> seen;         // bitmask of hit-count classes per edge over all runs
std::array<Comparison, kComparisons> comparisons;
size_t num_comparisons = 0;
bool is_tracing = false;
uintptr_t previous_edge = 0;

const Input* current_input = nullptr;
std::string artifact_prefix = "./";
volatile uint64_t num_runs = 0;
std::mt19937_64 random_bits;

uint64_t below(uint64_t bound) {
  return bound == 0 ? 0 : random_bits() % bound;
}

// ---- crashes

void save_input(const char* kind) {
  if (!current_input) return;
  uint64_t hash = 14695981039346656037u;
  for (const uint8_t byte : *current_input) hash = (hash ^ byte) * 1099511628211u;
  char name[32];
  std::snprintf(name, sizeof name, "%s-%016llx", kind, static_cast<unsigned long long>(hash));
  const std::string path = artifact_prefix + name;
  if (std::FILE* const file = std::fopen(path.c_str(), "wb")) {
    std::fwrite(current_input->data(), 1, current_input->size(), file);
    std::fclose(file);
  }
  std::fprintf(stderr, "%s: the input is in %s\n", kind, path.c_str());
  current_input = nullptr;
}

void save_crash() {
  save_input("crash");
}

[[noreturn]] void save_and_abort() {
  save_input("crash");
  std::abort();
}

// Handles failed assertions and faults that no sanitizer handles, then runs the default action.
void save_and_raise(int number) {
  save_input("crash");
  signal(number, SIG_DFL);
  raise(number);
}

// Reports a timeout if the same run is active at two ticks, kTimeoutSeconds apart.
void check_timeout(int) {
  static uint64_t last_run = ~uint64_t{0};
  if (current_input && num_runs == last_run) {
    save_input("timeout");
    _exit(70);
  }
  last_run = num_runs;
}

void install_handlers() {
  if (__sanitizer_set_death_callback)
    __sanitizer_set_death_callback(save_crash);
  else
    for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) signal(number, save_and_raise);
  signal(SIGABRT, save_and_raise);  // not handled by sanitizers by default
  std::set_terminate(save_and_abort);
  signal(SIGPROF, check_timeout);
  const itimerval every{{kTimeoutSeconds, 0}, {kTimeoutSeconds, 0}};
  setitimer(ITIMER_PROF, &every, nullptr);
}

// ---- one run

void run(const Input& input) {
  current_input = &input;
  num_runs = num_runs + 1;
  edge_counts.fill(0);
  previous_edge = 0;
  is_tracing = true;
  const Input exact(input);  // without spare capacity, to detect reads past the end
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
  is_tracing = false;
  current_input = nullptr;
}

// Classes of hit counts: 1, 2, 3, 4-7, 8-15, 16-31, 32-127, 128 and more.
uint8_t class_of(uint8_t count) {
  if (count <= 3) return static_cast<uint8_t>(count == 0 ? 0 : 1 << (count - 1));
  return count < 8 ? 8 : count < 16 ? 16 : count < 32 ? 32 : count < 128 ? 64 : 128;
}

bool found_new_edges() {
  bool is_new = false;
  for (size_t i = 0; i < kEdges; ++i) {
    const uint8_t bit = class_of(edge_counts[i]);
    is_new = is_new || (bit & ~seen[i]) != 0;
    seen[i] |= bit;
  }
  return is_new;
}

// ---- mutations

void copy_number(uint8_t* target, uint64_t value, size_t bytes) {
  std::memcpy(target, &value, bytes);
}

// Replaces a number in the input by one that it was compared with.
bool mutate_by_comparison(uint8_t* data, size_t size) {
  if (num_comparisons == 0) return false;
  const Comparison chosen = comparisons[below(std::min(num_comparisons, kComparisons))];
  const auto [from, to] = below(2) ? std::pair(chosen.a, chosen.b) : std::pair(chosen.b, chosen.a);
  if (size < chosen.bytes) return false;
  const size_t begin = below(size - chosen.bytes + 1);
  for (size_t i = 0; i + chosen.bytes <= size; ++i) {
    const size_t at = (begin + i) % (size - chosen.bytes + 1);
    if (std::memcmp(data + at, &from, chosen.bytes) != 0) continue;
    copy_number(data + at, to, chosen.bytes);
    return true;
  }
  return false;
}

void mutate_number(uint8_t* data, size_t size) {
  static constexpr uint64_t kInteresting[] = {0, 1, 2, 7, 8, 16, 32, 64, 127, 128, 255, 256, 1024, 32767, 65535, 1u << 31, ~uint64_t{0}};
  const size_t bytes = std::min<size_t>(size_t{1} << below(4), size), at = below(size - bytes + 1);
  uint64_t value = 0;
  std::memcpy(&value, data + at, bytes);
  switch (below(4)) {
    case 0:
      value = kInteresting[below(std::size(kInteresting))];
      break;
    case 1:
      value = random_bits();
      break;
    case 2:
      value += below(33) - 16;
      break;
    default:
      value ^= uint64_t{1} << below(bytes * 8);
  }
  copy_number(data + at, value, bytes);
}

size_t erase_bytes(uint8_t* data, size_t size) {
  const size_t bytes = 1 + below(std::min<size_t>(size - 1, 64)), at = below(size - bytes + 1);
  std::memmove(data + at, data + at + bytes, size - at - bytes);
  return size - bytes;
}

size_t insert_bytes(uint8_t* data, size_t size, size_t max_size) {
  const size_t bytes = std::min<size_t>(1 + below(64), max_size - size), at = below(size + 1),
               from = below(size - std::min(size, bytes) + 1);
  Input inserted(data + from, data + from + std::min(bytes, size));
  inserted.resize(bytes);
  std::memmove(data + at + bytes, data + at, size - at);
  std::ranges::copy(inserted, data + at);
  return size + bytes;
}

void copy_within(uint8_t* data, size_t size) {
  const size_t bytes = 1 + below(std::min<size_t>(size, 64));
  std::memmove(data + below(size - bytes + 1), data + below(size - bytes + 1), bytes);
}

Input mutated(const std::vector<Input>& corpus, size_t max_bytes) {
  Input input = corpus[below(corpus.size())];
  if (below(8) == 0) {  // crossover: the start of one input and the end of another
    const Input& other = corpus[below(corpus.size())];
    const size_t at = below(std::min(input.size(), other.size()) + 1);
    input.resize(at);
    input.insert(input.end(), other.begin() + static_cast<ptrdiff_t>(at), other.end());
  }
  size_t size = std::min(input.size(), max_bytes);
  input.resize(max_bytes);
  for (uint64_t left = 1 + below(4); left > 0; --left)
    size = LLVMFuzzerCustomMutator ? LLVMFuzzerCustomMutator(input.data(), size, max_bytes, static_cast<unsigned>(random_bits()))
                                   : LLVMFuzzerMutate(input.data(), size, max_bytes);
  input.resize(size);
  return input;
}

// ---- the loop

std::vector<Input> read_inputs(const std::vector<std::string>& paths) {
  namespace fs = std::filesystem;
  std::vector<fs::path> files;
  for (const std::string& path : paths) {
    if (!fs::exists(path)) {
      std::fprintf(stderr, "%s: no such file or folder\n", path.c_str());
      std::exit(2);
    }
    if (!fs::is_directory(path)) files.emplace_back(path);
    if (fs::is_directory(path))
      for (const auto& entry : fs::directory_iterator(path)) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  std::vector<Input> inputs;
  for (const auto& path : files) {
    std::ifstream file(path, std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return inputs;
}

void check_leaks() {
  if (__lsan_do_recoverable_leak_check && __lsan_do_recoverable_leak_check() != 0) {
    std::fprintf(stderr, "leak: within the last %llu runs\n", static_cast<unsigned long long>(kRunsPerLeakCheck));
    _exit(71);
  }
}

void fuzz(std::vector<Input>& corpus, double seconds, size_t max_bytes) {
  const auto begin = std::chrono::steady_clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  while (elapsed() < seconds) {
    const Input input = mutated(corpus, max_bytes);
    run(input);
    if (found_new_edges()) corpus.push_back(input);
    if (num_runs % kRunsPerLeakCheck == 0) check_leaks();
  }
}

}  // namespace

extern "C" {

size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size) {
  if (size == 0) return insert_bytes(data, size, max_size);
  switch (below(8)) {
    case 0:
    case 1:
      if (!mutate_by_comparison(data, size)) mutate_number(data, size);
      return size;
    case 2:
      return size > 1 ? erase_bytes(data, size) : size;
    case 3:
      return size < max_size ? insert_bytes(data, size, max_size) : size;
    case 4:
      copy_within(data, size);
      return size;
    default:
      mutate_number(data, size);
      return size;
  }
}

void __sanitizer_cov_trace_pc() {
  if (!is_tracing) return;
  const auto block = reinterpret_cast<uintptr_t>(__builtin_return_address(0));
  uint8_t& count = edge_counts[(block ^ previous_edge) % kEdges];
  if (count != 255) ++count;
  previous_edge = block >> 1;
}

static void note_comparison(uint64_t a, uint64_t b, uint8_t bytes) {
  if (is_tracing && a != b) comparisons[num_comparisons++ % kComparisons] = {a, b, bytes};
}

void __sanitizer_cov_trace_cmp1(uint8_t a, uint8_t b) {
  note_comparison(a, b, 1);
}
void __sanitizer_cov_trace_cmp2(uint16_t a, uint16_t b) {
  note_comparison(a, b, 2);
}
void __sanitizer_cov_trace_cmp4(uint32_t a, uint32_t b) {
  note_comparison(a, b, 4);
}
void __sanitizer_cov_trace_cmp8(uint64_t a, uint64_t b) {
  note_comparison(a, b, a > UINT32_MAX || b > UINT32_MAX ? 8 : 4);
}
void __sanitizer_cov_trace_const_cmp1(uint8_t a, uint8_t b) {
  note_comparison(a, b, 1);
}
void __sanitizer_cov_trace_const_cmp2(uint16_t a, uint16_t b) {
  note_comparison(a, b, 2);
}
void __sanitizer_cov_trace_const_cmp4(uint32_t a, uint32_t b) {
  note_comparison(a, b, 4);
}
void __sanitizer_cov_trace_const_cmp8(uint64_t a, uint64_t b) {
  __sanitizer_cov_trace_cmp8(a, b);
}
void __sanitizer_cov_trace_cmpf(float, float) {}
void __sanitizer_cov_trace_cmpd(double, double) {}

// cases: number of cases, bits per value, values.
void __sanitizer_cov_trace_switch(uint64_t value, const uint64_t* cases) {
  for (uint64_t i = 0; i < cases[0]; ++i) note_comparison(value, cases[2 + i], static_cast<uint8_t>(std::min<uint64_t>(cases[1] / 8, 4)));
}
}

int main(int count, char** arguments) {
  double seconds = 1e9;
  bool only_replay = false;
  size_t max_bytes = kDefaultMaxBytes;
  std::vector<std::string> paths;
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    const std::string name = argument.substr(0, argument.find('=') + 1), value = argument.substr(name.size());
    if (name == "-max_total_time=")
      seconds = std::atof(value.c_str());
    else if (name == "-runs=")
      only_replay = value == "0";
    else if (name == "-seed=")
      random_bits.seed(std::strtoull(value.c_str(), nullptr, 10));
    else if (name == "-artifact_prefix=")
      artifact_prefix = value;
    else if (name == "-max_len=")
      max_bytes = std::strtoull(value.c_str(), nullptr, 10);
    else if (!argument.starts_with("-"))
      paths.push_back(argument);
  }
  std::vector<Input> corpus = read_inputs(paths);
  install_handlers();
  for (const Input& input : corpus) {
    run(input);
    found_new_edges();
  }
  const size_t num_seeds = corpus.size();
  if (corpus.empty()) corpus.push_back(Input(1));
  if (!only_replay) fuzz(corpus, seconds, max_bytes);
  check_leaks();
  const auto num_edges = std::ranges::count_if(seen, [](uint8_t bits) { return bits != 0; });
  std::printf("%zu seeds, %llu runs, %td edges, %zu inputs in the corpus\n", num_seeds, static_cast<unsigned long long>(num_runs),
              num_edges, corpus.size());
  return 0;
}
