// Four neighbouring channels of a contraction's result. Comes after contraction.glsl and the binding Y, whose array is y.
#ifndef PM_FOUR_CHANNELS_GLSL
#define PM_FOUR_CHANNELS_GLSL
vec4 four_biases(uint channel) {
  return vec4(channel_bias(channel), channel_bias(channel + 1u), channel_bias(channel + 2u), channel_bias(channel + 3u));
}

#if !Y_EIGHTS
// Stores the sums of four channels, the last of which may be past the result's, for the element at which their pixel begins.
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
