// Bias and stores of four adjacent output channels of a GEMM or convolution. Include after conv_gemm.glsl and buffer Y.
#ifndef PM_STORE_VEC4_GLSL
#define PM_STORE_VEC4_GLSL
vec4 bias_vec4(uint channel) {
  return vec4(channel_bias(channel), channel_bias(channel + 1u), channel_bias(channel + 2u), channel_bias(channel + 3u));
}

#if !Y_VEC8
// Stores the sums of four channels of the pixel at index `at`; channels past channels_out are skipped.
void store_vec4(uint at, uint channel, vec4 values) {
#if Y_VEC4
  const uint index = at + y_channel(channel);
  SET_Y4(index >> 2, apply_epilogue(values, index));
#else
  for (uint k = 0u; k < 4u; ++k) {
    const uint index = at + y_channel(channel + k);
    if (channel + k < p.channels_out) SET_Y(index, apply_epilogue(values[k], index));
  }
#endif
}
#endif
#endif
