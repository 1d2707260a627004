// The geometry that every contraction shares: convolutions, the phases of transposed ones, and matrix products (a 1x1 convolution
// whose pixels are the rows). An output pixel (n, i, j) sums over taps (th, tw) and input channels:
//   ih = i * in_step_h + th * tap_step_h + base_h, and so for w; outside the input counts as zero.
// Pixels of all images are numbered through; groups are gl_WorkGroupID.z.
layout(push_constant) uniform parameter {
  uint pixels;                      // images * out_h * out_w
  uint out_h, out_w;                // of this dispatch
  int in_h, in_w;
  int in_step_h, in_step_w;
  int tap_step_h, tap_step_w;
  int base_h, base_w;
  uint taps_h, taps_w;
  uint tap_first, tap_row, tap_column;  // index in the packed kernel of tap (0, 0), and from one tap to the next
  uint kernel_taps;                 // taps of the packed kernel
  uint channels_in, channels_out;   // of one group
  uint x_stride_n, x_stride_h, x_stride_w, x_stride_c;  // in elements
  uint y_stride_n, y_stride_h, y_stride_w, y_stride_c;
  uint x_stride_group, y_stride_group, w_stride_group;  // groups of a convolution, or the batch of a matrix product
  uint x_offset, y_offset;
} p;

#ifndef EPILOGUE
#define EPILOGUE(x) (x)
#endif
float epilogue(float x) { return EPILOGUE(x); }

// Where a pixel is: its image and its place in it.
uvec3 place_of(uint pixel) {
  const uint area = p.out_h * p.out_w;
  const uint n = pixel / area, rest = pixel - n * area;
  const uint i = rest / p.out_w;
  return uvec3(n, i, rest - i * p.out_w);
}

uint y_index(uvec3 place) { return p.y_offset + place.x * p.y_stride_n + place.y * p.y_stride_h + place.z * p.y_stride_w; }
