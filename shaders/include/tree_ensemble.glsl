// Evaluates decision trees for a row of x: folds the leaf values for one of `targets` targets by FOLD: 0 sum, 1 mean over trees, 2 min, 3
// max. NUMBER: float or double, of WORDS words each.
// A node is: feature; comparison (0 leaf, 1 <=, 2 <, 3 >=, 4 >, 5 ==, 6 !=; + 8 if NaN counts as true); true child; false child; threshold.
// A leaf stores the index of its first entry and the number of entries in place of the children. An entry is a target and its weight.
// `depth` limits the path length.
layout(binding = 2) readonly buffer N { uint nodes[]; };
layout(binding = 3) readonly buffer E { uint entries[]; };
layout(binding = 4) readonly buffer R { uint roots[]; };

bool takes_true_branch(uint mode, NUMBER v, NUMBER limit) {
  if (IS_NAN(v)) return (mode & 8u) != 0u || (mode & 7u) == 6u;
  switch (mode & 7u) {
    case 1u:
      return v <= limit;
    case 2u:
      return v < limit;
    case 3u:
      return v >= limit;
    case 4u:
      return v > limit;
    case 5u:
      return v == limit;
    default:
      return v != limit;
  }
}

NUMBER evaluate_trees(uint id) {
  const uint target = id % p.targets, row = p.x_offset + id / p.targets * p.features;
  NUMBER result = NUMBER(0);
  bool any = false;
  for (uint tree = 0u; tree < p.trees; ++tree) {
    uint at = roots[p.roots_offset + tree];
    for (uint step = 0u; step <= p.depth; ++step) {
      at = p.nodes_offset + min(at, p.node_count - 1u) * (4u + WORDS);
      const uint mode = nodes[at + 1u];
      if ((mode & 7u) == 0u) {
        const uint first = nodes[at + 2u], end = min(first + nodes[at + 3u], p.entry_count);
        for (uint k = first; k < end; ++k) {
          const uint entry = p.entries_offset + k * (1u + WORDS);
          if (entries[entry] != target) continue;
          const NUMBER weight = NUMBER_AT(entries, entry + 1u);
#if FOLD < 2
          result += weight;
#else
          result = !any || (FOLD == 2 ? weight < result : weight > result) ? weight : result;
#endif
          any = true;
        }
        break;
      }
      const NUMBER v = FEATURE(row + min(nodes[at], p.features - 1u));
      at = nodes[at + (takes_true_branch(mode, v, NUMBER_AT(nodes, at + 4u)) ? 2u : 3u)];
    }
  }
  return FOLD == 1 ? result / NUMBER(p.trees) : result;
}
