// The path to a nested graph in a model, for error messages.
#pragma once

#include <string>
#include <string_view>

#include "core/error.h"

namespace pumice {

// Returns the path element of a graph: "If 'choice', then 'double'".
inline std::string path_part(std::string_view op, const std::string& node, std::string_view role, const std::string& graph) {
  return std::string(op) + " '" + node + "', " + std::string(role) + (graph.empty() ? "" : " '" + graph + "'");
}

// Returns the start of a path, with the name of the outermost graph.
inline std::string path_begin(const std::string& outermost) {
  return outermost.empty() ? "in " : "in '" + outermost + "' / ";
}

// Rethrows the current exception `error` with the path `place` added; rethrows it unchanged if the path is empty.
template <typename PlacedError>
[[noreturn]] void throw_placed(const std::string& place, const PlacedError& error) {
  if (!place.empty()) throw PlacedError(place, error);
  throw;
}

// Runs `work` for a nested graph and adds its path to errors; `path()` is empty for the outermost graph.
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
