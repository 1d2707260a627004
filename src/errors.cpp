#include <exception>

#include "bindings.h"
#include "core/error.h"
#include "core/escape_unprintable.h"

namespace pumice {
namespace {

// The module's exception classes. Created once and never destroyed.
struct ExceptionClasses {
  py::object error, device, device_lost, out_of_memory, shader_compile, binding, graph, unsupported, timeout, state, output_size,
      out_of_bounds, index_range;
};

ExceptionClasses& get_exception_classes() {
  static auto* all = new ExceptionClasses;
  return *all;
}

py::object make_exception_class(py::module_& module, const char* name, const char* doc, const py::tuple& bases) {
  const std::string qualified = "pumice._pumice." + std::string(name);
  auto new_class = py::reinterpret_steal<py::object>(PyErr_NewExceptionWithDoc(qualified.c_str(), doc, bases.ptr(), nullptr));
  if (!new_class) throw py::error_already_set();
  module.attr(name) = new_class;
  return new_class;
}

// Copy an error's fields to attributes of the Python exception.
void copy_fields(py::object&, const Error&) {}
void copy_fields(py::object& instance, const BindingError& error) {
  instance.attr("rule") = error.rule;
  instance.attr("slot") = error.slot;
  instance.attr("tensor") = error.tensor;
  instance.attr("expected") = error.expected;
  instance.attr("given") = error.given;
}
void copy_fields(py::object& instance, const GraphError& error) {
  instance.attr("node") = error.node;
  instance.attr("rule") = error.rule;
}
void copy_fields(py::object& instance, const UnsupportedError& error) {
  instance.attr("items") = error.items;
}
void copy_fields(py::object& instance, const TimeoutError& error) {
  instance.attr("transient") = error.transient;
}
void copy_fields(py::object& instance, const OutputSizeError& error) {
  instance.attr("output") = error.output;
  instance.attr("shape") = make_size_tuple(error.shape);
}
void copy_fields(py::object& instance, const OutOfBoundsError& error) {
  const auto& access = error.access;
  instance.attr("kernel") = access.kernel;
  instance.attr("file") = access.file;
  instance.attr("line") = access.line;
  instance.attr("buffer") = access.buffer;
  instance.attr("index") = access.index;
  instance.attr("size") = access.size;
  instance.attr("invocation") = py::make_tuple(access.invocation[0], access.invocation[1], access.invocation[2]);
  instance.attr("count") = access.count;
}
void copy_fields(py::object& instance, const IndexRangeError& error) {
  const auto& details = error.details;
  instance.attr("node") = details.node;
  instance.attr("value") = details.value;
  instance.attr("index") = details.index;
  instance.attr("element") = make_size_tuple(details.element);
  instance.attr("count") = details.count;
}
void copy_fields(py::object& instance, const ShaderCompileError& error) {
  instance.attr("messages") = error.messages;
}
void copy_fields(py::object& instance, const StateError& error) {
  instance.attr("rule") = error.rule;
}

// Escapes line breaks, which names in the text may contain. Errors that span several lines keep them.
std::string format_error(const Error& error) {
  return escape_unprintable(error.what());
}
std::string format_error(const UnsupportedError& error) {
  return escape_unprintable(error.what(), LineBreaks::keep);
}
std::string format_error(const ShaderCompileError& error) {
  return escape_unprintable(error.what(), LineBreaks::keep);
}

template <typename ThrownError>
void raise_python_error(const py::object& type, const ThrownError& error) {
  py::object instance = type(py::str(format_error(error)));
  copy_fields(instance, error);
  PyErr_SetObject(type.ptr(), instance.ptr());
}

void translate_exception(std::exception_ptr pointer) {
  const ExceptionClasses& all = get_exception_classes();
  try {
    if (pointer) std::rethrow_exception(pointer);
  } catch (const BindingError& error) {
    raise_python_error(all.binding, error);
  } catch (const GraphError& error) {
    raise_python_error(all.graph, error);
  } catch (const UnsupportedError& error) {
    raise_python_error(all.unsupported, error);
  } catch (const TimeoutError& error) {
    raise_python_error(all.timeout, error);
  } catch (const OutputSizeError& error) {
    raise_python_error(all.output_size, error);
  } catch (const OutOfBoundsError& error) {
    raise_python_error(all.out_of_bounds, error);
  } catch (const IndexRangeError& error) {
    raise_python_error(all.index_range, error);
  } catch (const ShaderCompileError& error) {
    raise_python_error(all.shader_compile, error);
  } catch (const StateError& error) {
    raise_python_error(all.state, error);
  } catch (const DeviceLostError& error) {
    raise_python_error(all.device_lost, error);
  } catch (const OutOfMemoryError& error) {
    raise_python_error(all.out_of_memory, error);
  } catch (const DeviceError& error) {
    raise_python_error(all.device, error);
  } catch (const Error& error) {
    raise_python_error(all.error, error);
  }
}

// Creates error classes with additional fields: sizes, positions and indices.
void make_location_error_classes(py::module_& module, ExceptionClasses& all) {
  const auto builtin = [](PyObject* type) { return py::reinterpret_borrow<py::object>(type); };
  all.output_size = make_exception_class(
      module, "OutputSizeError", "The array given for an output is too small. Attributes: output (its name) and shape (the actual one).",
      py::make_tuple(all.error, builtin(PyExc_ValueError)));
  all.out_of_bounds =
      make_exception_class(module, "OutOfBoundsError",
                           "A kernel with debug=True accessed a buffer out of bounds. Attributes of the first access: kernel, file, "
                           "line, buffer, index, size, invocation; count: number of accesses.",
                           py::make_tuple(all.error, builtin(PyExc_IndexError)));
  all.index_range = make_exception_class(
      module, "IndexRangeError",
      "An index was out of range in a program compiled with check_indices=True or in an NNAPI operation. Attributes of the "
      "first one: node, value (name of the indices), index, element; count: number of such indices.",
      py::make_tuple(all.error, builtin(PyExc_IndexError)));
}

// Sets default attributes, for errors raised by Python code.
void set_default_attributes(const ExceptionClasses& all) {
  all.output_size.attr("output") = "";
  all.output_size.attr("shape") = py::tuple();
  for (const char* attribute : {"node", "value"}) all.index_range.attr(attribute) = "";
  for (const char* attribute : {"index", "count"}) all.index_range.attr(attribute) = 0;
  all.index_range.attr("element") = py::tuple();
  for (const char* attribute : {"kernel", "file", "buffer"}) all.out_of_bounds.attr(attribute) = "";
  for (const char* attribute : {"line", "index", "size", "count"}) all.out_of_bounds.attr(attribute) = 0;
  all.out_of_bounds.attr("invocation") = py::make_tuple(0, 0, 0);
  for (const char* attribute : {"rule", "slot", "tensor", "expected", "given"}) all.binding.attr(attribute) = "";
  for (const char* attribute : {"node", "rule"}) all.graph.attr(attribute) = "";
  all.shader_compile.attr("messages") = py::tuple();
  all.state.attr("rule") = "";
  all.unsupported.attr("items") = py::tuple();
  all.timeout.attr("transient") = true;
}

}  // namespace

void bind_errors(py::module_& module) {
  ExceptionClasses& all = get_exception_classes();
  const auto builtin = [](PyObject* type) { return py::reinterpret_borrow<py::object>(type); };
  all.error = make_exception_class(module, "Error", "Base class of all pumice errors.", py::make_tuple(builtin(PyExc_Exception)));
  all.device = make_exception_class(module, "DeviceError", "A Vulkan call failed, or there is no loader, driver or matching device.",
                                    py::make_tuple(all.error));
  all.device_lost =
      make_exception_class(module, "DeviceLostError", "The device was lost. Create a new Context to continue.", py::make_tuple(all.device));
  all.out_of_memory = make_exception_class(
      module, "OutOfMemoryError", "Device memory ran out. The message gives the requested bytes, their purpose and the heap's budget.",
      py::make_tuple(all.device, builtin(PyExc_MemoryError)));
  all.shader_compile = make_exception_class(
      module, "ShaderCompileError", "The shader source does not compile. The message has the file, the line with a caret, and the error.",
      py::make_tuple(all.error, builtin(PyExc_ValueError)));
  all.binding =
      make_exception_class(module, "BindingError", "A binding or argument is invalid. Attributes: rule, slot, tensor, expected, given.",
                           py::make_tuple(all.error, builtin(PyExc_ValueError)));
  all.graph = make_exception_class(module, "GraphError", "A graph or a model file violates a rule. Attributes: node, rule.",
                                   py::make_tuple(all.error, builtin(PyExc_ValueError)));
  all.unsupported =
      make_exception_class(module, "UnsupportedError", "Something is not supported. Attribute: items, everything that is unsupported.",
                           py::make_tuple(all.error, builtin(PyExc_NotImplementedError)));
  all.timeout = make_exception_class(module, "TimeoutError",
                                     "A wait, loop or execution timed out. Attribute: transient, whether a retry may succeed.",
                                     py::make_tuple(all.error, builtin(PyExc_TimeoutError)));
  all.state = make_exception_class(
      module, "StateError", "A call in the wrong state, such as use after close or recording into a committed list. Attribute: rule.",
      py::make_tuple(all.error, builtin(PyExc_RuntimeError)));
  make_location_error_classes(module, all);
  set_default_attributes(all);
  py::register_exception_translator(&translate_exception);
}

}  // namespace pumice
