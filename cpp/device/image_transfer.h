// Work on images that a submission of its own does: a new image is made ready, and host bytes go to its texels and back.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "device/image.h"

namespace pumice {

// Makes an image that every kind of use may follow; its content is undefined. Waits until the device has made it ready. Throws what
// Image::create() throws.
std::shared_ptr<Image> ready_image(std::shared_ptr<Context> context, ImageFormat format, Shape shape, const SamplerOptions& sampler = {},
                                   const Interrupted& interrupted = {});

// Copy packed row-major host bytes to the texels and back. Both wait, ordered after work already submitted, and throw BindingError (R2) for
// another size.
void upload(const Image& target, std::span<const std::byte> source, const Interrupted& interrupted = {});
void download(const Image& source, std::span<std::byte> target, const Interrupted& interrupted = {});

}  // namespace pumice
