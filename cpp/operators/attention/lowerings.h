// What the rows of attention name: their lowerings, packings and values on the host.
#pragma once

#include "operators/row/lowering.h"

namespace pumice {

void lower_attention(LowerContext& node);
void lower_recognised_attention(LowerContext& node);
void lower_rotary_embedding(LowerContext& node);

}  // namespace pumice
