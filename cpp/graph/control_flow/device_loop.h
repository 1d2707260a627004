// A WHILE that runs on the device: the host submits rounds of iterations and checks their status.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "graph/control_flow/control_flow_program.h"
#include "graph/control_flow/routine_value.h"

namespace pumice {

// A loop on the device. Rounds run in order; rounds after the end of the loop have no effect. Not thread-safe.
class DeviceLoop {
 public:
  virtual ~DeviceLoop() = default;

  virtual std::string_view kind() const = 0;  // name of the kind, for reports
  // Returns the memory that the initial values are copied to before begin(). A value used in place has no such memory.
  virtual std::vector<BufferRange> entry() const = 0;
  virtual CommandList& begin() = 0;
  virtual CommandList& round(size_t iterations) = 0;
  virtual size_t min_iterations() const = 0;  // shortest round; rounds double up to max_iterations()
  virtual size_t max_iterations() const = 0;
  virtual BufferRange result(size_t i, uint64_t trips) const = 0;
  // Runs bodies without conditions, instead of begin() and rounds, if the number of iterations is known. Loops without repeats lose no time
  // if a round is too long.
  virtual bool has_counted_rounds() const { return false; }
  virtual CommandList& counted_round(size_t iterations) { return round(iterations); }
  // Status of a round, numbered from begin(); overwritten two rounds later. Trips are counted from begin(), modulo 2^32.
  bool goes_on(uint64_t round) const { return status(round)[0] != 0; }
  uint32_t trips(uint64_t round) const { return status(round)[1]; }
  // Per inner loop: how often it was entered and how often its body ran. A loop that is recorded twice has two entries.
  struct Inner {
    const RoutineStep* step;
    uint32_t entries, trips;
  };
  virtual std::vector<Inner> inner(uint64_t /*round*/) const { return {}; }

  // Measurements that the next execution uses to size its rounds.
  double iteration_seconds = 0;  // minimum so far; 0: not measured
  uint64_t last_trips = 0;

 protected:
  // Allocates host-visible memory for the status of two rounds: two words and `counters` more each.
  void make_status(const std::shared_ptr<Context>& context, size_t counters);
  const uint32_t* status(uint64_t round) const { return status_ + round % 2 * stride_; }

  std::shared_ptr<Buffer> status_buffer_;

 private:
  const uint32_t* status_ = nullptr;
  size_t stride_ = 0;
};

}  // namespace pumice
