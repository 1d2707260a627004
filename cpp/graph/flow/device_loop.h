// A WHILE that the device runs by itself: the host submits rounds of iterations and looks at what they leave behind.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "graph/flow/flow_program.h"
#include "graph/flow/flow_values.h"

namespace pumice {

// A loop on the device. Rounds run one after the other; a round changes nothing once the loop is over. Not thread-safe.
class DeviceLoop {
 public:
  virtual ~DeviceLoop() = default;

  virtual std::string_view kind() const = 0;  // for reports
  // The memory to which the values that the loop is entered with are copied before begin(). Values that stay where they are have none.
  virtual std::vector<BufferRange> entry() const = 0;
  virtual CommandList& begin() = 0;
  virtual CommandList& round(size_t iterations) = 0;
  virtual size_t least_iterations() const = 0;  // the shortest round; rounds double up to most_iterations()
  virtual size_t most_iterations() const = 0;
  virtual BufferRange result(size_t i, uint64_t trips) const = 0;
  // Runs bodies without conditions, in place of begin() and rounds, where the number of iterations is known. Where a loop has no such list,
  // a round that is too long wastes nothing.
  virtual bool has_repeats() const { return false; }
  virtual CommandList& repeats(size_t iterations) { return round(iterations); }
  // The state that a round, counted from begin() on, left behind; two rounds later it is overwritten. Trips are counted from begin() on,
  // modulo 2 to the 32.
  bool goes_on(uint64_t round) const { return status(round)[0] != 0; }
  uint32_t trips(uint64_t round) const { return status(round)[1]; }
  // Per inner loop: how often it was entered and how often its body ran. A loop that was recorded twice has two entries.
  struct Inner {
    const RoutineStep* step;
    uint32_t entries, trips;
  };
  virtual std::vector<Inner> inner(uint64_t /*round*/) const { return {}; }

  // Facts that an execution learns for the rounds of the next one.
  double iteration_seconds = 0;  // least seen; 0: none
  uint64_t last_trips = 0;

 protected:
  // Makes memory that the host sees for the states of two rounds: a pair of words and `counters` more each.
  void make_status(const std::shared_ptr<Context>& context, size_t counters);
  const uint32_t* status(uint64_t round) const { return status_ + round % 2 * stride_; }

  std::shared_ptr<Buffer> status_buffer_;

 private:
  const uint32_t* status_ = nullptr;
  size_t stride_ = 0;
};

}  // namespace pumice
