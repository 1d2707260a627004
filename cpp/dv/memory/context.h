// The context of dv programs, their device: any Vulkan device, with the properties that they ask for.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "device/buffer.h"
#include "device/context.h"
#include "dv/include/dmp_dv.h"

namespace pumice::dv {

inline constexpr int kMostKernel = 7;                    // a convolution's side: packed weights know no larger one
inline constexpr int kMostFullyConnected = 16384;        // elements of the vendor's vectors
inline constexpr int kUnifiedBufferBytes = 1024 * 1024;  // bytes in the vendor's largest hardware

class Context {
 public:
  // `strict`: its lists refuse what the vendor's hardware does not take. `separate`: the host maps copies of memories, as it does on
  // devices with memory of their own.
  Context(std::shared_ptr<pumice::Context> device, bool strict, bool separate = false);
  const std::shared_ptr<pumice::Context>& device() const { return device_; }
  bool strict() const { return strict_; }
  bool separate() const { return separate_; }
  const dmp_dv_info_v0& info() const { return info_; }
  const std::string& info_string() const { return info_string_; }
  // Whether there is a device of that kind (DMP_DV_DEV_CONV ..). Refusal for another number.
  bool has_device(int type) const;
  std::string last_error() const;  // empty at first
  void note_error(const std::string& text);
  // The palette of 4-byte colours that IPU commands set and use; zeros at first.
  BufferRange palette() const;

 private:
  std::shared_ptr<pumice::Context> device_;
  bool strict_, separate_;
  dmp_dv_info_v0 info_{};
  std::string info_string_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<Buffer> palette_;  // made on first use
  std::string last_error_;
};

const char* version_string();  // hardware's major.minor, then the date of the interface

}  // namespace pumice::dv
