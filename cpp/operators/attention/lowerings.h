// This header declares the lowerings, packings and host evaluations that rows of attention name.
#pragma once

#include "operators/row/lowering.h"

namespace pumice {

void lower_attention(LowerContext& node);
void lower_recognised_attention(LowerContext& node);
void lower_rotary_embedding(LowerContext& node);

}  // namespace pumice
