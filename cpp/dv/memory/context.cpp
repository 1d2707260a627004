#include "dv/memory/context.h"

#include "dv/include/dmp_dv_cmdraw_v0.h"
#include "dv/memory/dv_error.h"

namespace pumice::dv {

Context::Context(std::shared_ptr<pumice::Context> device, bool strict, bool separate)
    : device_(std::move(device)), strict_(strict), separate_(separate) {
  device_->require_execution("a command list of the DV interface");
  info_.header = {sizeof info_, 0};
  info_.ub_size = kUnifiedBufferBytes;
  info_.max_kernel_size = kMaxKernelSide;
  info_.conv_freq = info_.fc_freq = 1;  // nonzero means supported; clock rates are not reported
  info_.max_fc_vector_size = kMaxFcSize;
  info_string_ = "DMP DV: ub_size=" + std::to_string(info_.ub_size) + " max_kernel_size=" + std::to_string(info_.max_kernel_size) +
                 " conv_freq=" + std::to_string(info_.conv_freq) + " fc_freq=" + std::to_string(info_.fc_freq) +
                 " max_fc_vector_size=" + std::to_string(info_.max_fc_vector_size);
}

bool Context::has_device(int type) const {
  if (type < DMP_DV_DEV_CONV || type >= DMP_DV_DEV_COUNT)
    throw DvError("dev_type_id", "a device type from 1 to " + std::to_string(DMP_DV_DEV_COUNT - 1), std::to_string(type));
  return true;
}

BufferRange Context::palette() const {
  constexpr uint64_t kBytes = sizeof(dmp_dv_cmdraw_ipu_v0::lut);
  const std::lock_guard lock(mutex_);
  if (!palette_) {
    const auto buffer = Buffer::create(device_, kBytes);
    fill({buffer, 0, kBytes}, 0);
    palette_ = buffer;
  }
  return {palette_, 0, kBytes};
}

std::string Context::last_error() const {
  const std::lock_guard lock(mutex_);
  return last_error_;
}

void Context::set_last_error(const std::string& text) {
  const std::lock_guard lock(mutex_);
  last_error_ = text;
}

const char* get_version_string() {
  return "7.2.20201106";
}

}  // namespace pumice::dv
