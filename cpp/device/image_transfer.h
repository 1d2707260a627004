// Image initialisation and transfers between host and image, each in a submission of its own.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "device/image.h"

namespace pumice {

// Creates an image ready for every usage, with undefined content. Waits for the layout transition. Throws like Image::create().
std::shared_ptr<Image> create_ready_image(std::shared_ptr<Context> context, ImageFormat format, Shape shape,
                                          const SamplerOptions& sampler = {}, const Interrupted& interrupted = {});

// Copy packed row-major host bytes to the texels and back. Both wait and are ordered after work already submitted. Throw BindingError (R2)
// if the size differs.
void upload(const Image& target, std::span<const std::byte> source, const Interrupted& interrupted = {});
void download(const Image& source, std::span<std::byte> target, const Interrupted& interrupted = {});

}  // namespace pumice
