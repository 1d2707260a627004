// A WHILE that runs on the device: the host submits rounds of iterations and checks the status of each.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "graph/control_flow/control_flow_program.h"
#include "graph/control_flow/routine_value.h"

namespace pumice {

// Rounds run in order; rounds after the end of the loop have no effect. Not thread-safe.
class DeviceLoop {
 public:
  virtual ~DeviceLoop() = default;

  virtual std::string_view kind() const = 0;  // kind of loop, for reports
  // Returns the buffers to which the initial values are copied before the loop begins. Values that are used in place have no buffer.
  virtual std::vector<BufferRange> input_ranges() const = 0;
  virtual CommandList& get_begin_command_list() = 0;
  virtual CommandList& get_round_command_list(size_t iterations) = 0;
  virtual size_t min_iterations() const = 0;  // iterations of the shortest round; the length of rounds doubles up to max_iterations()
  virtual size_t max_iterations() const = 0;
  virtual BufferRange result(size_t i, uint64_t trips) const = 0;
  // Rounds without conditions, used instead of get_begin_command_list() and get_round_command_list() if the number of iterations is known.
  virtual bool has_counted_rounds() const { return false; }
  virtual CommandList& get_counted_round_command_list(size_t iterations) { return get_round_command_list(iterations); }
  // Status of a round; rounds are numbered from 0, and a status is overwritten two rounds later. Trips are counted modulo 2^32.
  bool continues_after(uint64_t round) const { return status(round)[0] != 0; }
  uint32_t get_trip_count(uint64_t round) const { return status(round)[1]; }
  // How often an inner loop was entered and how often its body ran. A loop that is recorded twice has two entries.
  struct InnerLoopStatus {
    const RoutineStep* step;
    uint32_t entries, trips;
  };
  virtual std::vector<InnerLoopStatus> get_inner_loop_status(uint64_t /*round*/) const { return {}; }

  // Measurements for choosing the round lengths of the next execution.
  double iteration_seconds = 0;  // fastest iteration so far; 0: not measured
  uint64_t last_trips = 0;

 protected:
  // Allocates host-visible memory for the status of two rounds: two words and `counters` counters each.
  void allocate_status(const std::shared_ptr<Context>& context, size_t counters);
  const uint32_t* status(uint64_t round) const { return status_ + round % 2 * stride_; }

  std::shared_ptr<Buffer> status_buffer_;

 private:
  const uint32_t* status_ = nullptr;
  size_t stride_ = 0;
};

}  // namespace pumice
