// Returns the cache row for row `row` of an update that starts at cache row `first` (int64); -1 if out of range.
int cache_row_index(ivec2 first, uint row) {
  if (!pm_fits_i32(uvec2(first))) return -1;
  return max(first.x + int(row), -1);  // a sum above 2^31 wraps to a negative value
}
