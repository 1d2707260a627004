// Detects a lack of memory that the Vulkan loader reports as a missing driver.
#pragma once

namespace pumice {

// Throws OutOfMemoryError naming the failed `call` if the process cannot map as much memory as a driver needs. The loader skips drivers
// whose libraries it cannot map, then reports that there is no driver.
void check_memory_for_driver(const char* call);

}  // namespace pumice
