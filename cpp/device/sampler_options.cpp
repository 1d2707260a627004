#include "device/sampler_options.h"

namespace pumice {

std::string_view name(Filter filter) {
  return filter == Filter::linear ? "linear" : "nearest";
}
std::string_view name(AddressMode mode) {
  return mode == AddressMode::clamp ? "clamp" : mode == AddressMode::repeat ? "repeat" : "border";
}

bool supports_unnormalized_coordinates(size_t dimensions, AddressMode mode) {
  return dimensions < 3 && mode != AddressMode::repeat;
}

}  // namespace pumice
