// Converts signed BITS-bit integers to unsigned by flipping the sign bit: XOR a word with kSigns, and add kBias to the zero point.
#ifndef PM_INTEGER_SIGNS_GLSL
#define PM_INTEGER_SIGNS_GLSL
#if SIGNED
const uint kSigns = BITS == 2u ? 0xaaaaaaaau : BITS == 4u ? 0x88888888u : 0x80808080u;
const float kBias = float(1u << (BITS - 1u));
#else
const uint kSigns = 0u;
const float kBias = 0.0;
#endif
#endif
