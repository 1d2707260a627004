// Windows over up to three spatial axes, shared by pool_nd and conv3d. Missing axes have size 1.
layout(constant_id = 0) const int KERNEL_D = 1;
layout(constant_id = 1) const int KERNEL_H = 1;
layout(constant_id = 2) const int KERNEL_W = 1;
layout(constant_id = 3) const int STEP_D = 1;
layout(constant_id = 4) const int STEP_H = 1;
layout(constant_id = 5) const int STEP_W = 1;
layout(constant_id = 6) const int DILATION_D = 1;
layout(constant_id = 7) const int DILATION_H = 1;
layout(constant_id = 8) const int DILATION_W = 1;
layout(constant_id = 9) const int PAD_D = 0;
layout(constant_id = 10) const int PAD_H = 0;
layout(constant_id = 11) const int PAD_W = 0;

ivec3 kernel_size() { return ivec3(KERNEL_D, KERNEL_H, KERNEL_W); }
ivec3 steps() { return ivec3(STEP_D, STEP_H, STEP_W); }
ivec3 dilations() { return ivec3(DILATION_D, DILATION_H, DILATION_W); }
ivec3 pads() { return ivec3(PAD_D, PAD_H, PAD_W); }

// Batch item, channel and spatial position of an element.
struct Position {
  uint n, c;
  uvec3 at;
};
Position element_position(uint i, uint channels, uvec3 size) {
  Position position;
  position.at.z = i % size.z; i /= size.z;
  position.at.y = i % size.y; i /= size.y;
  position.at.x = i % size.x; i /= size.x;
  position.c = i % channels;
  position.n = i / channels;
  return position;
}
uint element_offset(uint n, uint c, uvec3 at, uint stride[5]) {
  return n * stride[0] + c * stride[1] + at.x * stride[2] + at.y * stride[3] + at.z * stride[4];
}
bool is_inside(ivec3 at, ivec3 size) { return all(greaterThanEqual(at, ivec3(0))) && all(lessThan(at, size)); }
