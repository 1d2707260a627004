#include "dv/weights/quantizer.h"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/half.h"

namespace pumice::dv {
namespace {

constexpr size_t kCentroids = kTableEntries - 1;
constexpr uint32_t kInfinity = 0x7c00;

// Map float16 bits to unsigned integers that sort like the values, and back.
uint32_t to_ordered_bits(uint16_t bits) {
  return bits & 0x8000 ? 0xffffu - bits : bits + 0x8000u;
}

uint16_t from_ordered_bits(uint32_t rank) {
  return static_cast<uint16_t>(rank < 0x8000 ? 0xffff - rank : rank - 0x8000);
}

// The distinct values in ascending order, with prefix sums.
struct DistinctValues {
  std::vector<uint16_t> bits;
  std::vector<double> count{0}, sum{0}, squares{0};

  explicit DistinctValues(std::span<const uint16_t> weights) {
    std::vector<uint32_t> occurrences(1 << 16, 0);
    for (const uint16_t weight : weights) ++occurrences[to_ordered_bits(weight)];
    for (uint32_t rank = 0; rank < occurrences.size(); ++rank) {
      const double value = float_from_half(from_ordered_bits(rank)), times = occurrences[rank];
      if (times == 0 || value == 0) continue;
      bits.push_back(from_ordered_bits(rank));
      count.push_back(count.back() + times);
      sum.push_back(sum.back() + times * value);
      squares.push_back(squares.back() + times * value * value);
    }
  }
  size_t size() const { return bits.size(); }
  double mean(size_t begin, size_t end) const { return (sum[end] - sum[begin]) / (count[end] - count[begin]); }
  // Returns the squared error of values [begin, end) about their mean.
  double cost(size_t begin, size_t end) const {
    const double total = sum[end] - sum[begin];
    return std::max(0.0, squares[end] - squares[begin] - total * total / (count[end] - count[begin]));
  }
};

// Exact 1-D k-means by divide and conquer. The optimal start of the last cluster increases with the end of the values, so the optimum for
// the middle end bounds the search on both sides.
class OptimalClustering {
 public:
  explicit OptimalClustering(const DistinctValues& values) : values_(values), cost_(values.size() + 1), next_(cost_.size()) {
    for (size_t end = 1; end < cost_.size(); ++end) cost_[end] = values.cost(0, end);
  }
  // Returns the start of each cluster.
  std::vector<size_t> find_cluster_starts(size_t clusters) {
    std::vector<std::vector<uint16_t>> best(clusters);  // start of the last cluster for each end
    for (size_t count = 2; count <= clusters; ++count) {
      best[count - 1].resize(cost_.size());
      find_best_splits(best[count - 1], count, values_.size(), count - 1, values_.size() - 1);
      cost_.swap(next_);
    }
    std::vector<size_t> begins(clusters, 0);
    for (size_t cluster = clusters, end = values_.size(); cluster-- > 1;) begins[cluster] = end = best[cluster][end];
    return begins;
  }

 private:
  // Finds, for each end in [first, last], the start of the last cluster in [lowest, highest].
  void find_best_splits(std::vector<uint16_t>& best, size_t first, size_t last, size_t lowest, size_t highest) {
    if (first > last) return;
    const size_t end = (first + last) / 2;
    double best_cost = std::numeric_limits<double>::infinity();
    size_t split = lowest;
    for (size_t begin = lowest; begin <= std::min(highest, end - 1); ++begin)
      if (const double cost = cost_[begin] + values_.cost(begin, end); cost < best_cost) best_cost = cost, split = begin;
    next_[end] = best_cost;
    best[end] = static_cast<uint16_t>(split);
    find_best_splits(best, first, end - 1, lowest, split);
    find_best_splits(best, end + 1, last, split, highest);
  }

  const DistinctValues& values_;
  std::vector<double> cost_, next_;  // cost_[end]: cost of the best clustering of the first `end` values
};

std::vector<uint16_t> round_to_fp16(std::span<const float> weights) {
  std::vector<uint16_t> fp16_weights(weights.size());
  for (size_t i = 0; i < weights.size(); ++i) {
    fp16_weights[i] = half_from_float(weights[i]);
    if ((fp16_weights[i] & kInfinity) == kInfinity)
      throw BindingError("D7", "weights", "", "finite values that float16 can hold",
                         std::to_string(weights[i]) + " at index " + std::to_string(i));
  }
  return fp16_weights;
}

}  // namespace

Table quantize_weights(std::span<const float> weights, std::span<uint8_t> indices) {
  Table table{};
  const std::vector<uint16_t> fp16_weights = round_to_fp16(weights);
  const DistinctValues values(fp16_weights);
  const size_t clusters = std::min(kCentroids, values.size());
  std::vector<float> centroids;
  if (clusters > 0) {
    const std::vector<size_t> cluster_starts = OptimalClustering(values).find_cluster_starts(clusters);
    for (size_t i = 0; i < clusters; ++i) {
      const size_t end = i + 1 < clusters ? cluster_starts[i + 1] : values.size();
      table[i + 1] = half_from_float(static_cast<float>(values.mean(cluster_starts[i], end)));
      centroids.push_back(float_from_half(table[i + 1]));
    }
  }
  std::vector<uint8_t> index(1 << 16, 0);  // table index of each weight, keyed by its float16 bits
  size_t nearest = 0;
  for (const uint16_t bits : values.bits) {
    const float value = float_from_half(bits);
    while (nearest + 1 < clusters && centroids[nearest + 1] - value < value - centroids[nearest]) ++nearest;
    index[bits] = static_cast<uint8_t>(nearest + 1);
  }
  std::transform(fp16_weights.begin(), fp16_weights.end(), indices.begin(), [&](uint16_t bits) { return index[bits]; });
  return table;
}

}  // namespace pumice::dv
