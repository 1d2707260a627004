// Fuzzes raw commands of the dv interface: computes their sizes and adds them to a command list. With PUMICE_FUZZ_EXECUTE=1 it also
// executes accepted commands. A memory handle modulo three selects no memory or one of two.
#include <cstdlib>
#include <string_view>

#include "dv/command_list.h"
#include "dv/commands/parse_command.h"
#include "dv/memory/dv_error.h"

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

// Returns whether the call succeeds. Only pumice::Error is expected; any other exception ends the run.
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
  accepted([&] { compute_required_bytes(raw, strict); });
  accepted([&] { compute_run_outputs(raw, strict); });
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
