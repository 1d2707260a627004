
// Range [x, y) of the window indices k whose position begin + k * dilation is inside 0 .. size - 1.
ivec2 window_range(int begin, int dilation, int size, int window) {
  const int first = (max(-begin, 0) + dilation - 1) / dilation, end = min((max(size - begin, 0) + dilation - 1) / dilation, window);
  return ivec2(min(first, end), end);
}
