// The path to a nested graph in a model, for error messages.
#pragma once

#include <string>
#include <string_view>

#include "core/error.h"

namespace pumice {

// Returns the path element of a nested graph, e.g. "If 'choice', then 'double'".
inline std::string format_path_element(std::string_view op, const std::string& node, std::string_view role, const std::string& graph) {
  return std::string(op) + " '" + node + "', " + std::string(role) + (graph.empty() ? "" : " '" + graph + "'");
}

// Returns the start of a path, with the name of the outermost graph.
inline std::string format_path_start(const std::string& outermost) {
  return outermost.empty() ? "in " : "in '" + outermost + "' / ";
}

// Rethrows the current exception `error` with a path added, or unchanged if the path is empty.
template <typename ErrorWithPath>
[[noreturn]] void rethrow_with_path(const std::string& path_text, const ErrorWithPath& error) {
  if (!path_text.empty()) throw ErrorWithPath(path_text, error);
  throw;
}

// Runs `work` for a nested graph and adds the path of that graph to errors; `path()` is empty for the outermost graph.
template <typename Path, typename Work>
decltype(auto) with_error_path(Path&& path, Work&& work) {
  try {
    return work();
  } catch (const GraphError& error) {
    rethrow_with_path(path(), error);
  } catch (const BindingError& error) {
    rethrow_with_path(path(), error);
  } catch (const UnsupportedError& error) {
    rethrow_with_path(path(), error);
  } catch (const IndexRangeError& error) {
    rethrow_with_path(path(), error);
  } catch (const TimeoutError& error) {
    rethrow_with_path(path(), error);
  } catch (const StateError& error) {
    rethrow_with_path(path(), error);
  } catch (const OutOfMemoryError& error) {
    rethrow_with_path(path(), error);
  }
}

}  // namespace pumice
