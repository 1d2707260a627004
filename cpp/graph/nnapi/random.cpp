// NNAPI RANDOM_MULTINOMIAL. The host generates the uniform numbers with the generator of NNAPI, so equal seeds give equal samples.
#include <array>
#include <cmath>
#include <random>

#include "core/error.h"
#include "graph/nnapi/operations.h"
#include "graph/nnapi/recurrent_helpers.h"

namespace pumice::nnapi {
namespace {

// The Philox 4x32-10 random number generator.
class Philox {
 public:
  Philox(int32_t key, int32_t stream) : key_{low_word(key), high_word(key)}, counter_{0, 0, low_word(stream), high_word(stream)} {}

  // Returns the next number in [0, 1), made from 52 random bits of two words of a Philox block.
  double next_uniform() {
    if (next_word_ == kWords) block_ = generate_block(), next_word_ = 0, advance_counter();
    const uint64_t first = block_[next_word_] & 0xFFFFFu, second = block_[next_word_ + 1];
    next_word_ += 2;
    return std::ldexp(static_cast<double>((first << 32) + second), -52);
  }

 private:
  static constexpr size_t kWords = 4;
  using Words = std::array<uint32_t, kWords>;

  static uint32_t low_word(int32_t number) { return static_cast<uint32_t>(number); }
  static uint32_t high_word(int32_t number) { return number < 0 ? 0xFFFFFFFFu : 0; }

  Words generate_block() const {
    Words c = counter_;
    uint32_t k0 = key_[0], k1 = key_[1];
    for (int round = 0; round < 10; ++round) {
      const uint64_t p = uint64_t{0xD2511F53} * c[0], q = uint64_t{0xCD9E8D57} * c[2];
      c = {static_cast<uint32_t>(q >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(q), static_cast<uint32_t>(p >> 32) ^ c[3] ^ k1,
           static_cast<uint32_t>(p)};
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    return c;
  }

  void advance_counter() {
    for (uint32_t& word : counter_)
      if (++word != 0) return;
  }

  std::array<uint32_t, 2> key_;
  Words counter_, block_{};
  size_t next_word_ = kWords;
};

void check_multinomial(Operands& o) {
  o.expect_rank(0, 2);
  if (const int64_t count = o.read_int(1); count < 1) o.fail(1, "N20.1", "a positive number expected; given " + std::to_string(count));
  o.expect_length(2, 2, "seeds expected", "N20.1");
  reject_empty(o, "NG2");
}

Philox make_generator(const Expansion& e) {
  const auto seeds = e.read_list(2);
  if (seeds[0] != 0 || seeds[1] != 0) return {static_cast<int32_t>(seeds[0]), static_cast<int32_t>(seeds[1])};
  std::random_device entropy;
  return {static_cast<int32_t>(entropy()), static_cast<int32_t>(entropy())};
}

// Samples by the inverse CDF: the class is the number of cumulative sums up to a random fraction of the total.
void expand_multinomial(Expansion& e) {
  const int64_t rows = e.size(0, 0), count = e.read_int(1);
  Philox generator = make_generator(e);
  std::vector<double> uniforms(static_cast<size_t>(checked_mul(rows, count, "samples")));
  for (double& uniform : uniforms) uniform = generator.next_uniform();
  const auto number = [&](double value) { return e.add_scalar(value, DType::float32); };
  const auto reduce_last = [&](ValueId id, std::string_view op, int64_t axis) {
    return e.add(op, {id, e.add_int64_vector({axis})}, make_attrs({{"keepdims", int64_t{1}}}));
  };
  const ValueId x = e.cast(e[0], DType::float32);
  const ValueId is_not_finite = e.add("Or", {e.add("IsNaN", {x}), e.add("IsInf", {x})});
  const ValueId row_max = reduce_last(e.add("Where", {is_not_finite, number(-3e38), x}), "ReduceMax", 1);
  const ValueId exp_values = e.add("Where", {is_not_finite, number(0), e.add("Exp", {e.add("Sub", {x, row_max})})});
  const ValueId sums = e.add("CumSum", {exp_values, e.add_scalar(1, DType::int64)});
  const ValueId totals = reduce_last(sums, "ReduceMax", 1);
  const ValueId targets = e.add("Mul", {e.reshape(e.add_vector(uniforms, DType::float32), {{rows}, {count}}), totals});
  const auto unsqueeze = [&](ValueId id, int64_t axis) { return e.add("Unsqueeze", {id, e.add_int64_vector({axis})}); };
  const ValueId before = e.cast(e.add("LessOrEqual", {unsqueeze(sums, 1), unsqueeze(targets, 2)}), DType::int32);
  const ValueId class_indices = e.add("ReduceSum", {before, e.add_int64_vector({2})}, make_attrs({{"keepdims", int64_t{0}}}));
  // Rows without a finite number give class 0. The class is clamped, because rounding could exceed the last class.
  const ValueId classes = e.cast(e.add("Sub", {e.add_sizes({e.length(0, 1)}), e.add_int64_vector({1})}), DType::int32);
  e.add_output(
      e.add("Where", {e.add("Greater", {totals, number(0)}), e.add("Min", {class_indices, classes}), e.add_scalar(0, DType::int32)}));
}

}  // namespace

Operations make_random_operations() {
  return {
      {"nnapi::RANDOM_MULTINOMIAL",
       3,
       "Classes drawn by the exponentials of a row's numbers. Equal seeds give equal samples; both 0 are seeds drawn when the operation "
       "is added.",
       {tensor_arg("logits", kFloat), scalar_arg("count"), list_arg("seeds")},
       {tensor_arg("y", kInt)},
       expand_multinomial,
       {},
       check_multinomial}};
}

}  // namespace pumice::nnapi
