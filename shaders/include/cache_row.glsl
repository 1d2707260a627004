// Returns the cache row of update row `row`, if the update starts at cache row `first` (int64); -1 if it is out of range.
int cache_row_index(ivec2 first, uint row) {
  if (!pm_fits_i32(uvec2(first))) return -1;
  return max(first.x + int(row), -1);  // a sum above 2^31 wraps to a negative value
}
