"""Kernel sources: every function of the GLSL extension, and kernels over two float buffers."""

from __future__ import annotations

SCALE = """
layout(binding = 0) readonly  buffer X { sfp x[]; };
layout(binding = 1) writeonly buffer Y { sfp y[]; };
void main() {
  uint i = gl_GlobalInvocationID.x;
  buffer_st1(y, i, buffer_ld1(x, i) * afp(2));
}
"""
STORES = """
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) buffer S1 { sfp s1[]; };
layout(binding = 2) writeonly buffer S2 { sfpvec2 s2[]; };
layout(binding = 3) writeonly buffer S4 { sfpvec4 s4[]; };
layout(binding = 4) writeonly buffer SM { sfpmat4 sm[]; };
layout(binding = 5) writeonly buffer B { uint b[]; };
void main() {
  const uint i = gl_GlobalInvocationID.x;
  if (i >= x.length()) buffer_st1(s1, i, 0.0); else buffer_st1(s1, i, x[i]);
  if ((i & 1u) == 0u) {
    const vec2 v = vec2(x[i], x[i + 1u]);
    buffer_st2(s2, i >> 1, v);
    b[i >> 1] = packBFloat2x16(v);
  }
  if ((i & 3u) == 0u) buffer_st4(s4, i >> 2, vec4(x[i], x[i + 1u], x[i + 2u], x[i + 3u]));
  if ((i & 15u) == 0u) {
    mat4 m;
    for (uint k = 0u; k < 16u; ++k) m[k >> 2][k & 3u] = x[i + k];
    sm[i >> 4] = afp2sfpmat4(m);
  }
}
"""

LOADS = """
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer S1 { sfp s1[]; };
layout(binding = 1) readonly buffer S2 { sfpvec2 s2[]; };
layout(binding = 2) readonly buffer S4 { sfpvec4 s4[]; };
layout(binding = 3) readonly buffer SM { sfpmat4 sm[]; };
layout(binding = 4) writeonly buffer Y1 { float y1[]; };
layout(binding = 5) writeonly buffer Y2 { vec2 y2[]; };
layout(binding = 6) writeonly buffer Y4 { vec4 y4[]; };
layout(binding = 7) writeonly buffer YM { mat4 ym[]; };
layout(binding = 8) buffer C1 { sfp c1[]; };
layout(binding = 9) writeonly buffer C2 { sfpvec2 c2[]; };
layout(binding = 10) writeonly buffer C4 { sfpvec4 c4[]; };
layout(binding = 11) writeonly buffer G4 { sfpvec4 g4[]; };
layout(binding = 12) buffer G1 { sfp g1[]; };
layout(binding = 13) writeonly buffer M1 { float m1[]; };
layout(binding = 14) writeonly buffer M4 { vec4 m4[]; };
layout(binding = 15) writeonly buffer R1 { float r1[]; };
layout(binding = 16) writeonly buffer R4 { vec4 r4[]; };
layout(binding = 17) readonly buffer B { uint b[]; };
layout(binding = 18) writeonly buffer YB { vec2 yb[]; };
shared lfp near1[64];
shared lfpvec4 near4[16];
void main() {
  const uint i = gl_GlobalInvocationID.x, last = gl_NumWorkGroups.x * 64u - 1u, local = gl_LocalInvocationID.x;
  const uint quad = i >> 2, last_quad = last >> 2;
  const bool first = (i & 3u) == 0u;
  y1[i] = float(buffer_ld1(s1, i));
  buffer_cp1(c1, last - i, s1, i);
  near1[local] = buffer_sm1(s1, i);
  if (first) near4[local >> 2] = buffer_sm4(s4, quad);
  barrier();
  m1[i] = float(lfp2afp(near1[63u - local]));
  if (first) m4[quad] = vec4(lfp2afpvec4(near4[15u - (local >> 2)]));
  barrier();
  near1[local] = afp2lfp(buffer_ld1(s1, i));
  if (first) near4[local >> 2] = afp2lfpvec4(buffer_ld4(s4, quad));
  barrier();
  r1[i] = float(lfp2afp(near1[local]));
  if (first) {
    r4[quad] = vec4(lfp2afpvec4(near4[local >> 2]));
    y4[quad] = vec4(buffer_ld4(s4, quad));
    buffer_cp4(c4, last_quad - quad, s4, quad);
    const ivec4 lanes = ivec4(i + 2u, i, i + 3u, i + 1u);
    buffer_cp1to4(g4, quad, s1, lanes);
    buffer_cp4to1(g1, lanes, s4, quad);
  }
  if ((i & 1u) == 0u) {
    y2[i >> 1] = vec2(buffer_ld2(s2, i >> 1));
    buffer_cp2(c2, (last - i) >> 1, s2, i >> 1);
    yb[i >> 1] = unpackBFloat2x16(b[i >> 1]);
  }
  if ((i & 15u) == 0u) ym[i >> 4] = mat4(sfp2afpmat4(sm[i >> 4]));
}
"""

INTEGERS = """
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer A { sint8 a[]; };
layout(binding = 1) readonly buffer A4 { sint8vec4 a4[]; };
layout(binding = 2) buffer YA { sint8 ya[]; };
layout(binding = 3) writeonly buffer YA4 { sint8vec4 ya4[]; };
layout(binding = 4) buffer CA { sint8 ca[]; };
layout(binding = 5) writeonly buffer CA4 { sint8vec4 ca4[]; };
layout(binding = 6) writeonly buffer GA4 { sint8vec4 ga4[]; };
layout(binding = 7) buffer GA { sint8 ga[]; };
layout(binding = 8) writeonly buffer WA { int wa[]; };
layout(binding = 9) writeonly buffer WA4 { ivec4 wa4[]; };
layout(binding = 10) readonly buffer B { sint16 b[]; };
layout(binding = 11) readonly buffer B4 { sint16vec4 b4[]; };
layout(binding = 12) buffer YB { sint16 yb[]; };
layout(binding = 13) buffer YB2 { sint16 yb2[]; };
layout(binding = 14) writeonly buffer YB4 { sint16vec4 yb4[]; };
layout(binding = 15) writeonly buffer WB { int wb[]; };
layout(binding = 16) writeonly buffer WB2 { ivec2 wb2[]; };
layout(binding = 17) writeonly buffer WB4 { ivec4 wb4[]; };
layout(binding = 18) writeonly buffer LB { int lb[]; };
layout(binding = 19) writeonly buffer LB4 { ivec4 lb4[]; };
layout(binding = 20) readonly buffer F { float f[]; };
layout(binding = 21) writeonly buffer YF { int yf[]; };
layout(binding = 22) writeonly buffer YF4 { ivec4 yf4[]; };
layout(binding = 23) writeonly buffer P { ivec4 p[]; };
shared lint16 near[64];
shared lint16vec4 near4[16];
void main() {
  const int i = int(gl_GlobalInvocationID.x), last = int(gl_NumWorkGroups.x) * 64 - 1, quad = i >> 2;
  const uint local = gl_LocalInvocationID.x;
  const bool first = (i & 3) == 0;
  const aint8 v = i8buffer_ld1(a, i);
  wa[i] = v;
  i8buffer_st1(ya, i, v + 128);  // wraps
  i8buffer_cp1(ca, last - i, a, i);
  yf[i] = float2int8(f[i]);
  wb[i] = i16buffer_ld1(b, i);
  i16buffer_st1(yb, i, i16buffer_ld1(b, i) + 32768);
  if (i < last) wb2[i] = i16buffer_ld2(b, i);
  if (i % 2 == 1 && i < last) i16buffer_st2(yb2, i, i16buffer_ld2(b, i));
  near[local] = lint16(i16buffer_ld1(b, i));
  if (first) {
    const ivec4 lanes = ivec4(i + 2, i, i + 3, i + 1);
    const aint8vec4 four = i8buffer_ld4(a4, quad);
    wa4[quad] = four;
    i8buffer_st4(ya4, quad, four + 128);
    i8buffer_cp4(ca4, quad, a4, (last >> 2) - quad);
    i8buffer_cp1to4(ga4, quad, a, lanes);
    i8buffer_cp4to1(ga, lanes, a4, quad);
    yf4[quad] = float2int8vec4(vec4(f[i], f[i + 1], f[i + 2], f[i + 3]));
    const aint16vec4 four16 = i16buffer_ld4(b4, quad);
    wb4[quad] = ivec4(four16);
    i16buffer_st4(yb4, quad, ivec4(four16) + 32768);
    near4[local >> 2] = i16buffer_sm4(b4, quad);
    const int word = i8buffer_sm4(a4, quad);
    p[quad] = ivec4(packInt4x8(unpackInt4x8(word)), packInt2x16(unpackInt2x16(word)), unpackInt2x16(word));
  }
  barrier();
  lb[i] = int(lint162aint16(near[63u - local]));
  if (first) lb4[quad] = ivec4(lint162aint16vec4(near4[15u - (local >> 2)]));
}
"""

VEC8 = """
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer S1 { sfp s1[]; };
layout(binding = 1) readonly buffer S4 { sfpvec4 s4[]; };
layout(binding = 2) readonly buffer S8 { sfpvec8 s8[]; };
layout(binding = 3) readonly buffer X { float x[]; };
layout(binding = 4) writeonly buffer Y8 { mat2x4 y8[]; };
layout(binding = 5) writeonly buffer W8 { sfpvec8 w8[]; };
layout(binding = 6) writeonly buffer C8 { sfpvec8 c8[]; };
layout(binding = 7) writeonly buffer G1 { sfpvec8 g1[]; };
layout(binding = 8) writeonly buffer G4 { sfpvec8 g4[]; };
layout(binding = 9) writeonly buffer H1 { sfp h1[]; };
layout(binding = 10) writeonly buffer H4 { sfpvec4 h4[]; };
layout(binding = 11) writeonly buffer M1 { float m1[]; };
layout(binding = 12) writeonly buffer M4 { vec4 m4[]; };
shared lfp near1[64];
shared lfpvec4 near4[64];
void main() {
  const int i = int(gl_GlobalInvocationID.x), last = int(gl_NumWorkGroups.x) * 64 - 1;
  const uint local = gl_LocalInvocationID.x;
  const afpvec8 v = buffer_ld8(s8, i);
  y8[i] = mat2x4(v);
  mat2x4 m;
  for (int k = 0; k < 8; ++k) m[k >> 2][k & 3] = x[i * 8 + k];
  buffer_st8(w8, i, m);
  buffer_cp8(c8, last - i, s8, i);
  const ivec4 low = i * 8 + ivec4(2, 0, 3, 1), high = i * 8 + ivec4(7, 5, 4, 6);
  const ivec2 two = i * 2 + ivec2(1, 0);
  buffer_cp1to8(g1, i, s1, low, high);
  buffer_cp4to8(g4, i, s4, two);
  buffer_cp8to1(h1, low, high, s8, i);
  buffer_cp8to4(h4, two, s8, i);
  near1[local] = sfp2lfp(s1[i]);
  near4[local] = sfp2lfpvec4(s4[i]);
  barrier();
  m1[i] = float(lfp2afp(near1[63u - local]));
  m4[i] = vec4(lfp2afpvec4(near4[63u - local]));
}
"""

BUFFERS = """layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) buffer Y { float y[]; };
"""


def body(text: str, header: str = "") -> str:
    """Return a kernel that reads x and writes y; `i` is the invocation's index."""
    return f"{BUFFERS}{header}\nvoid main() {{ uint i = gl_GlobalInvocationID.x;\n{text}\n}}\n"
