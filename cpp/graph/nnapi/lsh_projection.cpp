// NNAPI LSH_PROJECTION: signs of sums of hashes, one for each seed.
#include "graph/nnapi/operations.h"
#include "graph/nnapi/recurrent_helpers.h"

namespace pumice::nnapi {
namespace {

constexpr size_t kSeeds = 0, kHashedInput = 1, kHashWeights = 2, kHashForm = 3;
constexpr int64_t kOldSparseHash = 1, kDenseHash = 2, kSparseHash = 3, kMaxHashBits = 32;

void check_lsh_projection(Operands& o) {
  const int64_t form = o.read_int(kHashForm);
  if (form < kOldSparseHash || form > kSparseHash)
    o.fail(kHashForm, "N18.1", "1 (sparse, old form), 2 (dense) or 3 (sparse) expected; given " + std::to_string(form));
  if (form == kDenseHash && !o.has(kHashWeights)) o.fail(kHashWeights, "N18.1", "weights expected, because the form is dense; given none");
  if (form != kDenseHash && o.has(kHashWeights)) o.fail(kHashWeights, "N18.1", "no weights expected in the sparse form; weights given");
  o.expect_rank(kSeeds, 2);
  o.expect_min_rank(kHashedInput, 1);
  if (o.has(kHashWeights)) {
    o.expect_rank(kHashWeights, 1);
    if (o.rank(kHashedInput)) expect_equal_sizes(o, {{kHashedInput, 0}, {kHashWeights, 0}}, "N18.1");
  }
  if (const auto bits = o.size(kSeeds, 1); bits && *bits > kMaxHashBits)
    o.fail(kSeeds, "N18.1", "at most 32 bits of each function expected; given " + o.format_shape(kSeeds));
  reject_empty(o, "NG2");
}

// Casts operand i to float32 and returns its bit patterns as uint32.
ValueId get_float_bits(Expansion& e, size_t i) {
  return e.bit_cast_to(e.cast(e[i], DType::float32), DType::uint32);
}

// Returns the bit patterns of operand i as integers, which are the hash input.
ValueId get_element_bits(Expansion& e, size_t i) {
  const DType actual = e.dtype(i);
  if (actual == DType::float32) return get_float_bits(e, i);
  return actual == DType::float16 ? e.bit_cast_to(e[i], DType::uint16) : e[i];
}

// Packs the bits of each hash function into an int32 signature, most significant bit first. The newer sparse form (`is_new`) adds the
// function index, shifted left by the number of bits per function. 32-bit arithmetic wraps around.
ValueId pack_signatures(Expansion& e, ValueId bits, bool is_new) {
  const auto number = [&](int64_t value) { return e.add_scalar(static_cast<double>(value), DType::int64); };
  const auto size = [&](size_t axis) { return e.add("Squeeze", {e.add_sizes({e.length(kSeeds, axis)}), e.add_int64_vector({0})}); };
  const auto shifted = [&](ValueId value, ValueId by) {
    const ValueId shifted_words =
        e.add("BitShift", {e.cast(value, DType::uint32), e.cast(by, DType::uint32)}, make_attrs({{"direction", "LEFT"}}));
    return e.bit_cast_to(shifted_words, DType::int32);
  };
  const ValueId count = size(1), last = e.add("Sub", {count, number(1)});
  const ValueId bit_values = shifted(number(1), e.add("Range", {last, number(-1), number(-1)}));
  const ValueId sums =
      e.add("ReduceSum", {e.add("Mul", {bits, bit_values}), e.add_int64_vector({1})}, make_attrs({{"keepdims", int64_t{0}}}));
  if (!is_new) return sums;
  return e.add("Add", {sums, shifted(e.add("Range", {number(0), size(0), number(1)}), count)});
}

void expand_lsh_projection(Expansion& e) {
  if (e.has(kHashWeights) && e.dtype(kHashWeights) != e.dtype(kSeeds))
    e.fail(kHashWeights, "N18.1",
           std::string(name(e.dtype(kSeeds))) + " expected, as the seeds; given " + std::string(name(e.dtype(kHashWeights))));
  std::vector<ValueId> inputs{get_float_bits(e, kSeeds), get_element_bits(e, kHashedInput)};
  if (e.has(kHashWeights)) inputs.push_back(get_float_bits(e, kHashWeights));
  const ValueId bits = e.add("pumice::HashProjection", inputs);
  const int64_t form = e.read_int(kHashForm);
  e.add_output(form == kDenseHash ? e.add("Reshape", {bits, e.add_int64_vector({-1})}) : pack_signatures(e, bits, form == kSparseHash));
}

}  // namespace

Operations make_lsh_projection_operations() {
  return {{"nnapi::LSH_PROJECTION",
           1,
           "Bits that tell whether sums of hashes are above 0, one for each seed: of each part of x a hash of the seed's bytes and its "
           "own, times its weight. Dense: all bits; sparse: a number for each function, of its bits.",
           {tensor_arg("seeds", kFloat),
            tensor_arg("x", kFloat | kInt | make_dtype_set(DType::uint8)),
            {{"weights", kFloat, true}, OperandKind::tensor},
            scalar_arg("form")},
           {tensor_arg("y", kInt)},
           expand_lsh_projection,
           {},
           check_lsh_projection}};
}

}  // namespace pumice::nnapi
