// LSH_PROJECTION: signs of sums of hashes, one per seed.
#include "graph/nnapi/operations.h"
#include "graph/nnapi/recurrent_helpers.h"

namespace pumice::nnapi {
namespace {

constexpr size_t kSeeds = 0, kHashed = 1, kHashWeights = 2, kHashForm = 3;
constexpr int64_t kOldSparseHash = 1, kDenseHash = 2, kSparseHash = 3, kMostHashBits = 32;

void check_projection(Operands& o) {
  const int64_t form = o.integer(kHashForm);
  if (form < kOldSparseHash || form > kSparseHash)
    o.fail(kHashForm, "N18.1", "1 (sparse, as it was), 2 (dense) or 3 (sparse) expected; given " + std::to_string(form));
  if (form == kDenseHash && !o.has(kHashWeights)) o.fail(kHashWeights, "N18.1", "weights expected, as the form is dense; left out");
  if (form != kDenseHash && o.has(kHashWeights)) o.fail(kHashWeights, "N18.1", "no weights expected, as the form is sparse; given some");
  o.expect_rank(kSeeds, 2);
  o.expect_least_rank(kHashed, 1);
  if (o.has(kHashWeights)) {
    o.expect_rank(kHashWeights, 1);
    if (o.rank(kHashed)) expect_one_size(o, {{kHashed, 0}, {kHashWeights, 0}}, "N18.1");
  }
  if (const auto bits = o.size(kSeeds, 1); bits && *bits > kMostHashBits)
    o.fail(kSeeds, "N18.1", "at most 32 bits of each function expected; given " + o.shape_text(kSeeds));
  refuse_empty(o, "NG2");
}

// Returns operand i as the bits of float32.
ValueId float_bits(Expansion& e, size_t i) {
  return e.bits_as(e.cast(e[i], DType::float32), DType::uint32);
}

// Returns the bit patterns of operand i, which are hashed, as integers.
ValueId plain_bits(Expansion& e, size_t i) {
  const DType given = e.dtype(i);
  if (given == DType::float32) return float_bits(e, i);
  return given == DType::float16 ? e.bits_as(e[i], DType::uint16) : e[i];
}

// Packs the bits of each hash function into a signature, first bit highest. The newer form adds the function's index above its bits. 32-bit
// arithmetic wraps around.
ValueId signatures(Expansion& e, ValueId bits, bool is_new) {
  const auto number = [&](int64_t value) { return e.scalar(static_cast<double>(value), DType::int64); };
  const auto size = [&](size_t axis) { return e.add("Squeeze", {e.sizes({e.length(kSeeds, axis)}), e.integers({0})}); };
  const auto shifted = [&](ValueId value, ValueId by) {
    const ValueId words = e.add("BitShift", {e.cast(value, DType::uint32), e.cast(by, DType::uint32)}, with({{"direction", "LEFT"}}));
    return e.bits_as(words, DType::int32);
  };
  const ValueId count = size(1), last = e.add("Sub", {count, number(1)});
  const ValueId places = shifted(number(1), e.add("Range", {last, number(-1), number(-1)}));
  const ValueId sums = e.add("ReduceSum", {e.add("Mul", {bits, places}), e.integers({1})}, with({{"keepdims", int64_t{0}}}));
  if (!is_new) return sums;
  return e.add("Add", {sums, shifted(e.add("Range", {number(0), size(0), number(1)}), count)});
}

void projection(Expansion& e) {
  if (e.has(kHashWeights) && e.dtype(kHashWeights) != e.dtype(kSeeds))
    e.fail(kHashWeights, "N18.1",
           std::string(name(e.dtype(kSeeds))) + " expected, as the seeds; given " + std::string(name(e.dtype(kHashWeights))));
  std::vector<ValueId> inputs{float_bits(e, kSeeds), plain_bits(e, kHashed)};
  if (e.has(kHashWeights)) inputs.push_back(float_bits(e, kHashWeights));
  const ValueId bits = e.add("pumice::HashProjection", inputs);
  const int64_t form = e.integer(kHashForm);
  e.give(form == kDenseHash ? e.add("Reshape", {bits, e.integers({-1})}) : signatures(e, bits, form == kSparseHash));
}

}  // namespace

Operations projection_operations() {
  return {{"nnapi::LSH_PROJECTION",
           1,
           "Bits that tell whether sums of hashes are above 0, one for each seed: of each part of x a hash of the seed's bytes and its "
           "own, times its weight. Dense: all bits; sparse: a number for each function, of its bits.",
           {tensor("seeds", kFloat),
            tensor("x", kFloat | kInt | set_of(DType::uint8)),
            {{"weights", kFloat, true}, OperandKind::tensor},
            scalar("form")},
           {tensor("y", kInt)},
           projection,
           {},
           check_projection}};
}

}  // namespace pumice::nnapi
