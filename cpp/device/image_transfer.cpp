#include "device/image_transfer.h"

#include "core/error.h"
#include "device/buffer.h"
#include "device/command_buffer.h"

namespace pumice {
namespace {

template <typename Record>
void record_and_submit(Context& context, const InterruptCallback& interrupted, Record&& record) {
  CommandBuffer commands(context.shared_from_this(), {});
  commands.begin();
  record(commands);
  commands.end();
  context.wait(commands.submit(), {}, interrupted);
}

void check_transfer(const Image& image, size_t host_bytes) {
  if (image.closed()) throw StateError("this Image is closed", "L1");
  if (host_bytes != image.bytes())
    throw BindingError("R2", "image", "", std::to_string(image.bytes()) + " bytes of host memory", std::to_string(host_bytes));
}

}  // namespace

std::shared_ptr<Image> create_image_in_general_layout(std::shared_ptr<Context> context, ImageFormat format, Shape shape,
                                                      const SamplerOptions& sampler, const InterruptCallback& interrupted) {
  auto image = Image::create(std::move(context), format, std::move(shape), sampler);
  record_and_submit(*image->context(), interrupted, [&](CommandBuffer& commands) { commands.transition_to_general(*image); });
  return image;
}

void upload(const Image& target, std::span<const std::byte> source, const InterruptCallback& interrupted) {
  check_transfer(target, source.size());
  const auto staging = Buffer::create(target.context(), target.bytes(), Heap::upload);
  const BufferRange range{staging, 0, target.bytes()};
  upload(range, source, interrupted);
  record_and_submit(*target.context(), interrupted, [&](CommandBuffer& commands) { commands.copy(range, target); });
}

void download(const Image& source, std::span<std::byte> target, const InterruptCallback& interrupted) {
  check_transfer(source, target.size());
  source.context()->require_execution("an image");
  const auto staging = Buffer::create(source.context(), source.bytes(), Heap::readback);
  const BufferRange range{staging, 0, source.bytes()};
  record_and_submit(*source.context(), interrupted, [&](CommandBuffer& commands) { commands.copy(source, range); });
  download(range, target, interrupted);
}

}  // namespace pumice
