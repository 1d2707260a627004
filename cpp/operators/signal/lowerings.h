// What the rows of signals name: their lowerings, packings and values on the host.
#pragma once

#include "operators/row/lowering.h"

namespace pumice {

void lower_dft(LowerContext& node);
void lower_stft(LowerContext& node);
void lower_mel_weights(LowerContext& node);

}  // namespace pumice
