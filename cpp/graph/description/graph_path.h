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

// How a path begins that leads into graphs of the outermost one, of this name.
inline std::string path_begin(const std::string& outermost) {
  return outermost.empty() ? "in " : "in '" + outermost + "' / ";
}

// Throws the error at hand, which is `error`, as one of the graph that `place` leads to, or as it is where that is empty.
template <typename PlacedError>
[[noreturn]] void throw_placed(const std::string& place, const PlacedError& error) {
  if (!place.empty()) throw PlacedError(place, error);
  throw;
}

// Runs what belongs to a graph inside of others, so that its errors name the way to it; `path()` is empty for the outermost graph.
template <typename Path, typename Work>
decltype(auto) told_of_path(Path&& path, Work&& work) {
  try {
    return work();
  } catch (const GraphError& error) {
    throw_placed(path(), error);
  } catch (const BindingError& error) {
    throw_placed(path(), error);
  } catch (const UnsupportedError& error) {
    throw_placed(path(), error);
  } catch (const IndexRangeError& error) {
    throw_placed(path(), error);
  } catch (const TimeoutError& error) {
    throw_placed(path(), error);
  } catch (const StateError& error) {
    throw_placed(path(), error);
  } catch (const OutOfMemoryError& error) {
    throw_placed(path(), error);
  }
}

}  // namespace pumice
