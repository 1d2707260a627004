// Pairs of adjacent nodes that one fused operator computes.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "operators/table/attributes.h"

namespace pumice {

struct TensorDesc;

// A producer with a constant input 1, and the node that reads its result.
struct NodePair {
  const Attributes &producer, &consumer;
  const TensorDesc& weights;                 // input 1 of the producer
  bool has_bias = false;                     // whether the producer has input 2
  const Shape* bias = nullptr;               // its shape if it is a constant; otherwise null
  std::optional<size_t> rank = {};           // of the producer's result; nullopt: unknown
  std::string_view consumer_epilogue = "x";  // elementwise expression applied to the consumer's result
};

// A row of the table of fused pairs. The fused node has the inputs and the epilogue of the producer, and output 0 of the consumer.
struct FusedPair {
  std::string_view fusion;                     // name in list_fusions()
  std::string_view producer, consumer, fused;  // operators
  // Returns the attributes of the fused node, or nullopt if its kernels do not support the pair.
  std::optional<Attributes> (*match)(const NodePair&) = nullptr;
  // Whether the fused operator has the producer's result as output 1, so that the producer may have other readers.
  bool keeps_producer_output = false;
};

std::span<const FusedPair> get_fused_pairs();

}  // namespace pumice
