// The device of dv programs: any Vulkan device, with the properties that they query.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "device/buffer.h"
#include "device/context.h"
#include "dv/include/dmp_dv.h"

namespace pumice::dv {

inline constexpr int kMaxKernelSide = 7;                 // maximum kernel side in the packed weight format
inline constexpr int kMaxFcSize = 16384;                 // vector length limit of the vendor's hardware
inline constexpr int kUnifiedBufferBytes = 1024 * 1024;  // size on the vendor's largest hardware

class Context {
 public:
  // `strict`: lists reject commands that the vendor's hardware does not support. `separate`: the host maps copies of memories, as on
  // devices without host-visible memory.
  Context(std::shared_ptr<pumice::Context> device, bool strict, bool separate = false);
  const std::shared_ptr<pumice::Context>& device() const { return device_; }
  bool strict() const { return strict_; }
  bool separate() const { return separate_; }
  const dmp_dv_info_v0& info() const { return info_; }
  const std::string& info_string() const { return info_string_; }
  // Returns whether a device of that kind (DMP_DV_DEV_CONV ...) exists. Throws DvError if the number is not a device kind.
  bool has_device(int type) const;
  std::string last_error() const;  // initially empty
  void set_last_error(const std::string& text);
  // Returns the RGBA palette that IPU commands set and use; initially zeros.
  BufferRange palette() const;

 private:
  std::shared_ptr<pumice::Context> device_;
  bool strict_, separate_;
  dmp_dv_info_v0 info_{};
  std::string info_string_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<Buffer> palette_;  // allocated on first use
  std::string last_error_;
};

const char* get_version_string();  // hardware version major.minor, then the date of the interface

}  // namespace pumice::dv
