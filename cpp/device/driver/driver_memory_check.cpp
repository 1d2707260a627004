#include "device/driver/driver_memory_check.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <string>

#include "core/error.h"

namespace pumice {

void check_memory_for_driver(const char* call) {
  constexpr size_t kMebibytes = 256;  // more than Mesa's llvmpipe maps with LLVM, 200 MiB
  constexpr size_t kBytes = kMebibytes << 20;
  void* const mapped = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped != MAP_FAILED) {
    munmap(mapped, kBytes);
    return;
  }
  if (errno != ENOMEM) return;
  throw OutOfMemoryError(
      std::string(call) + " failed, and this process cannot map " + std::to_string(kMebibytes) +
      " MiB, which a Vulkan driver needs: its memory is exhausted or limited (ulimit -v, a container's limit); a driver may "
      "well be installed");
}

}  // namespace pumice
