// The row of a cache that row `row` of an update goes to, where the update begins at row `first`, an int64; -1 where none has this number.
int row_of_cache(ivec2 first, uint row) {
  if (!pm_fits_i32(uvec2(first))) return -1;
  return max(first.x + int(row), -1);  // a sum beyond 2**31 is negative as well
}
