// Four adjacent output channels of a GEMM or convolution. Include after conv_gemm.glsl and buffer Y.
#ifndef PM_FOUR_CHANNELS_GLSL
#define PM_FOUR_CHANNELS_GLSL
vec4 four_biases(uint channel) {
  return vec4(channel_bias(channel), channel_bias(channel + 1u), channel_bias(channel + 2u), channel_bias(channel + 3u));
}

#if !Y_EIGHTS
// Stores the sums of four channels of the pixel at index `at`; channels past channels_out are skipped.
void store_four(uint at, uint channel, vec4 sums_of_four) {
#if Y_VEC4
  const uint place = at + y_channel(channel);
  SET_Y4(place >> 2, finished(sums_of_four, place));
#else
  for (uint k = 0u; k < 4u; ++k) {
    const uint place = at + y_channel(channel + k);
    if (channel + k < p.channels_out) SET_Y(place, finished(sums_of_four[k], place));
  }
#endif
}
#endif
#endif
