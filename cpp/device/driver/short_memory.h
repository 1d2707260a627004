// Lack of memory that a Vulkan loader reports as a missing driver.
#pragma once

namespace pumice {

// Throws OutOfMemoryError naming `call`, which failed, if the process cannot map as much memory as a driver needs. A loader skips a driver
// whose libraries it cannot map, and then says that there is none.
void check_memory_for_driver(const char* call);

}  // namespace pumice
