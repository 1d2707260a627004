// The only file that compiles volk's implementation.
#define VK_NO_PROTOTYPES
#define VOLK_IMPLEMENTATION
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#include <volk.h>
#pragma GCC diagnostic pop
