#include "device/heap.h"

namespace pumice {

std::string_view name(Heap heap) {
  switch (heap) {
    case Heap::upload:
      return "upload";
    case Heap::readback:
      return "readback";
    case Heap::written:
      return "written";
    default:
      return "default";
  }
}

}  // namespace pumice
