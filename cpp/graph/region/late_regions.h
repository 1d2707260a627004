// What a region is for each choice of shapes, where its nodes depend on them: by the ranks alone where these will do.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "graph/region/region.h"

namespace pumice {

// Thread-safe.
class LateRegions {
 public:
  // `graph`: as it was built, its inputs' elements that the host reads marked; it outlives this.
  LateRegions(std::shared_ptr<Context> context, const ProgramGraph& graph, const ProgramOptions& options, std::string prefix);

  // Compiles on first use; the least recently used is forgotten where there are too many. `values`: as of Region::bind(). Throws
  // GraphError, UnsupportedError.
  std::shared_ptr<Region> at(std::span<const ShapeView> shapes, std::span<const std::byte* const> values);
  std::optional<std::vector<ReportRow>> report() const;  // of the last used; none before the first
  void close();

 private:
  enum class Known : uint8_t { ranks, sizes, elements };  // by which an expansion is told

  struct Made {
    Known known;
    std::vector<Shape> shapes;
    std::vector<std::optional<HostTensor>> values;
    std::shared_ptr<Region> region;
  };

  bool matches(const Made& made, std::span<const ShapeView> shapes, std::span<const std::byte* const> values) const;
  std::shared_ptr<Region> make(Made& made) const;

  std::shared_ptr<Context> context_;
  const ProgramGraph& graph_;
  ProgramOptions options_;
  std::string prefix_;
  mutable std::recursive_mutex mutex_;  // as that of a Region
  std::list<Made> made_;                // the last used first
};

}  // namespace pumice
