// The part of a window that lies within its input, whatever the window's own size.

// The steps k of a window, from x up to y, for which begin + k * dilation lies within 0 .. size - 1.
ivec2 steps_within(int begin, int dilation, int size, int window) {
  const int first = (max(-begin, 0) + dilation - 1) / dilation, end = min((max(size - begin, 0) + dilation - 1) / dilation, window);
  return ivec2(min(first, end), end);
}
