// Lowerings of DFT, STFT and MelWeightMatrix.
#pragma once

#include "operators/table/lowering.h"

namespace pumice {

void lower_dft(LowerContext& node);
void lower_stft(LowerContext& node);
void lower_mel_weights(LowerContext& node);

}  // namespace pumice
