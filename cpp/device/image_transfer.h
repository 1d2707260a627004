// Image initialisation and transfers between host and image, each as a separate submission.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "device/image.h"

namespace pumice {

// Creates an image in the general layout, which permits every usage. Its content is undefined. Waits for the layout transition. Throws like
// Image::create().
std::shared_ptr<Image> create_image_in_general_layout(std::shared_ptr<Context> context, ImageFormat format, Shape shape,
                                                      const SamplerOptions& sampler = {}, const InterruptCallback& interrupted = {});

// Copy between packed row-major host bytes and the texels. Both functions run after work already submitted, and wait. They throw
// BindingError (R2) if the size differs.
void upload(const Image& target, std::span<const std::byte> source, const InterruptCallback& interrupted = {});
void download(const Image& source, std::span<std::byte> target, const InterruptCallback& interrupted = {});

}  // namespace pumice
