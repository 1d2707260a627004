// Axis indices: int32, or int64 read as two words; negative indices count from the end. Before including this file, define the parameter
// block `p` with index_words (1 or 2) and indices_offset.
layout(binding = 1) readonly buffer I { int indices[]; };

// Normalises index i to 0 .. size - 1; returns -1 if out of range.
int index_at(uint i, int size) {
  const uint word = (p.indices_offset + i) * p.index_words;
  const int low = indices[word], high = p.index_words == 2u ? indices[word + 1u] : low >> 31;
  const int at = low < 0 ? low + size : low;
  return high == low >> 31 && at >= 0 && at < size ? at : -1;
}
