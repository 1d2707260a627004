// Fused epilogue EPILOGUE(x). With RESIDUAL it also reads `residual`, an element of a second tensor. The macro is expanded only here, so
// that compilers cannot combine it with surrounding expressions; `precise` makes every operation round. Include after include/math.glsl.
#ifndef PM_EPILOGUE_GLSL
#define PM_EPILOGUE_GLSL
#ifndef EPILOGUE
#define EPILOGUE(x) x
#endif
#if RESIDUAL
float epilogue(float x, float residual) {
  precise float y = EPILOGUE(x);
  return y;
}
vec4 epilogue(vec4 v, vec4 r) { return vec4(epilogue(v.x, r.x), epilogue(v.y, r.y), epilogue(v.z, r.z), epilogue(v.w, r.w)); }
#else
float epilogue(float x) {
  precise float y = EPILOGUE(x);
  return y;
}
vec4 epilogue(vec4 v) { return vec4(epilogue(v.x), epilogue(v.y), epilogue(v.z), epilogue(v.w)); }
#endif
#ifdef POOL_EPILOGUE
// The expression fused after MaxPool.
float pool_epilogue(float x) {
  precise float y = POOL_EPILOGUE(x);
  return y;
}
#endif
#endif
