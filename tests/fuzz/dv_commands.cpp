// Fuzzes raw commands of the dv interface: they are read as untrusted bytes, measured and added to a list. The program is for libFuzzer
// (clang) and AFL++, or takes files as arguments. Build it with -DPUMICE_FUZZ=ON, best with -DPUMICE_SANITIZE=ON; corpus/dv_commands has
// commands to begin with.
//
// A command that is accepted is executed on the device too with PUMICE_FUZZ_EXECUTE=1. Places of memories are taken modulo three: none,
// and two.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string_view>

#include "dv/command_list.h"
#include "dv/commands/read_command.h"
#include "dv/memory/refusal.h"

namespace {

using namespace pumice::dv;

constexpr uint64_t kMemoryBytes = 1 << 16;

bool executes() {
  static const bool wanted = [] {
    const char* const given = std::getenv("PUMICE_FUZZ_EXECUTE");
    return given && std::string_view(given) == "1";
  }();
  return wanted;
}

struct Device {
  std::shared_ptr<Context> loose, strict;
  std::shared_ptr<Memory> memories[2];
};

const Device& device() {
  static const Device* const made = [] {
    const auto engine = pumice::Context::create();
    const auto loose = std::make_shared<Context>(engine, false);
    return new Device{
        loose, std::make_shared<Context>(engine, true), {Memory::create(loose, kMemoryBytes), Memory::create(loose, kMemoryBytes)}};
  }();
  return *made;
}

// Errors of the engine's tree are answers; anything else ends the run.
template <typename Call>
bool accepted(const Call& call) {
  try {
    call();
    return true;
  } catch (const pumice::Error&) {
    return false;
  }
}

void try_command(std::span<const std::byte> raw, const std::shared_ptr<Context>& context) {
  const bool strict = context->strict();
  accepted([&] { required_bytes(raw, strict); });
  accepted([&] { run_outputs(raw, strict); });
  CommandList list(context);
  const bool added =
      accepted([&] { list.add(raw, [](uint64_t handle) { return handle % 3 == 0 ? nullptr : device().memories[handle % 3 - 1]; }); });
  if (!added || !executes()) return;
  accepted([&] {
    list.commit();
    list.wait(list.exec(), 60);
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span raw(reinterpret_cast<const std::byte*>(data), size);
  try_command(raw, device().loose);
  try_command(raw, device().strict);
  return 0;
}

#ifndef PUMICE_LIBFUZZER
int main(int count, char** names) {
  for (int i = 1; i < count; ++i) {
    std::ifstream file(names[i], std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), {});
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  }
  std::printf("%d files\n", count - 1);
  return 0;
}
#endif
