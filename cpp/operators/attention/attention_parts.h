// Cuts an attention into parts where the device takes no grid that the whole would need.
#pragma once

#include <vector>

#include "operators/attention/attention_terms.h"

namespace pumice {

// Some images, heads and rows of an attention. The rows of all its heads follow each other in the dense [images, heads, rows] of the whole,
// from number `first` on, except where the part has only some rows of several heads.
struct AttentionPart {
  Attention attention;
  int64_t first = 0;
};

// Cuts an attention into halves of its rows.
std::vector<AttentionPart> row_parts(const Attention& whole);
// Cuts it into halves of the images; of the heads where there is one image; of the rows where there is one head, too. None of a single row.
std::vector<AttentionPart> dense_parts(const Attention& whole);

}  // namespace pumice
