// Where in a model a graph is that a node runs: errors in it say so.
#pragma once

#include <string>
#include <string_view>

#include "core/error.h"

namespace pumice {

// The part of a path that leads into a graph: "If 'choice', then 'double'".
inline std::string path_part(std::string_view op, const std::string& node, std::string_view role, const std::string& graph) {
  return std::string(op) + " '" + node + "', " + std::string(role) + (graph.empty() ? "" : " '" + graph + "'");
}

// Runs what belongs to a graph inside of others, so that its errors name the way to it; `path()` is empty for the outermost graph.
template <typename Path, typename Work>
decltype(auto) told_of_path(Path&& path, Work&& work) {
  try {
    return work();
  } catch (const GraphError& error) {
    if (const std::string place = path(); !place.empty()) throw GraphError(place, error);
    throw;
  } catch (const BindingError& error) {
    if (const std::string place = path(); !place.empty()) throw BindingError(place, error);
    throw;
  } catch (const UnsupportedError& error) {
    if (const std::string place = path(); !place.empty()) throw UnsupportedError(place, error);
    throw;
  } catch (const IndexRangeError& error) {
    if (const std::string place = path(); !place.empty()) throw IndexRangeError(place, error);
    throw;
  }
}

}  // namespace pumice
