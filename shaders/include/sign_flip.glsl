// Converts signed BITS-bit integers to unsigned by flipping the sign bit: XOR a word with kSignMask, and add kBias to the zero point.
#ifndef PM_SIGN_FLIP_GLSL
#define PM_SIGN_FLIP_GLSL
#if SIGNED
const uint kSignMask = BITS == 2u ? 0xaaaaaaaau : BITS == 4u ? 0x88888888u : 0x80808080u;
const float kBias = float(1u << (BITS - 1u));
#else
const uint kSignMask = 0u;
const float kBias = 0.0;
#endif
#endif
