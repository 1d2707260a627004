// Python operators on Tensors, with NumPy semantics.
#include <utility>

#include "bindings.h"
#include "core/error.h"
#include "operators/compiled/convert_tensor.h"
#include "operators/compiled/ufunc.h"

namespace pumice {

// The result of a Python operator: a Tensor, or NotImplemented, after which Python tries the other operand.
class TensorOrNotImplemented : public py::object {
 public:
  using py::object::object;
  TensorOrNotImplemented(py::object converted) : py::object(std::move(converted)) {}
};

namespace {

using TensorClass = py::class_<Tensor, std::shared_ptr<Tensor>>;

constexpr double kArrayPriority = 1000;  // above an array's 0: NumPy defers `array + tensor` to the tensor

py::module_ import_numpy() {
  return py::module_::import("numpy");
}

py::object get_not_implemented() {
  return py::reinterpret_borrow<py::object>(Py_NotImplemented);
}

// The other operand: a tensor of the same context, or a weakly typed Python number.
struct Operand {
  std::optional<Tensor> tensor;
  py::object number;
};

bool is_array_like(const py::handle& value) {
  return py::isinstance<py::array>(value) || py::isinstance(value, import_numpy().attr("generic")) || py::isinstance<py::bool_>(value) ||
         py::isinstance<py::list>(value) || py::isinstance<py::tuple>(value) || py::hasattr(value, "__array__");
}

// Converts an operand; nullopt if its type is not supported.
std::optional<Operand> convert_operand(const py::object& value, const std::shared_ptr<Context>& context) {
  if (py::isinstance<Tensor>(value)) return Operand{value.cast<const Tensor&>(), {}};
  if (is_array_like(value))
    return Operand{upload_tensor(make_host_tensor(import_numpy().attr("asarray")(value).cast<py::array>(), "operand"), context), {}};
  if (PyLong_Check(value.ptr()) || PyFloat_Check(value.ptr())) return Operand{{}, value};
  return {};
}

// Returns the dtype of a Python number combined with a tensor. An int adopts the tensor's dtype, except int64 for bool tensors and float64
// for division of integers. A float adopts the tensor's dtype if that is a float, else float64.
DType choose_weak_dtype(std::string_view ufunc, const py::object& number, DType tensor_dtype) {
  const bool is_integer_number = PyLong_Check(number.ptr()) != 0 && (ufunc != "divide" || is_float(tensor_dtype));
  if (is_integer_number) return tensor_dtype == DType::bool_ ? DType::int64 : tensor_dtype;
  return is_float(tensor_dtype) || contains(kLowBitFloats, tensor_dtype) ? tensor_dtype : DType::float64;
}

// Whether a number fits into an integer dtype. `below`: the number is less than the minimum.
struct RangeCheck {
  bool fits = true, below = false;
};

RangeCheck check_range(const py::object& number, DType dtype) {
  if (!is_integer(dtype) || !PyLong_Check(number.ptr())) return {};
  const py::object limits = py::module_::import("numpy").attr("iinfo")(get_numpy_dtype(dtype));
  const bool below = number<limits.attr("min"), above = number> limits.attr("max");
  return {!below && !above, below};
}

Tensor make_number_tensor(const py::object& number, DType dtype, const std::shared_ptr<Context>& context) {
  if (!check_range(number, dtype).fits) {
    const std::string text = "Python integer " + py::str(number).cast<std::string>() + " out of bounds for " + std::string(name(dtype));
    PyErr_SetString(PyExc_OverflowError, text.c_str());
    throw py::error_already_set();
  }
  return upload_tensor(make_host_tensor(import_numpy().attr("asarray")(number, get_numpy_dtype(dtype)).cast<py::array>(), "operand"),
                       context);
}

// A NumPy ufunc loop: operand dtypes and result dtype.
struct UfuncLoop {
  const char* ufunc;
  std::vector<DType> types;
  DType result;
};

UfuncLoop resolve_ufunc_loop(const char* ufunc, const std::vector<Tensor>& operands) {
  py::tuple dtypes(operands.size() + 1);
  for (size_t i = 0; i < operands.size(); ++i) dtypes[i] = get_numpy_dtype(operands[i].desc().dtype);
  dtypes[operands.size()] = py::none();
  const py::tuple resolved = import_numpy().attr(ufunc).attr("resolve_dtypes")(dtypes);
  UfuncLoop ufunc_loop{ufunc, {}, get_engine_dtype(resolved[operands.size()].cast<py::dtype>(), "result")};
  for (size_t i = 0; i < operands.size(); ++i) ufunc_loop.types.push_back(get_engine_dtype(resolved[i].cast<py::dtype>(), "operand"));
  return ufunc_loop;
}

Tensor run_ufunc_loop(const UfuncLoop& ufunc_loop, const std::vector<Tensor>& operands) {
  const GilRelease release;
  return run_ufunc(ufunc_loop.ufunc, operands, ufunc_loop.types, ufunc_loop.result, check_signals);
}

// Returns both operands in order; nullopt if `other` is not supported.
std::optional<std::vector<Tensor>> convert_operands(const char* ufunc, const Tensor& self, const py::object& other, bool is_reflected) {
  const auto& context = self.buffer()->context();
  const auto operand = convert_operand(other, context);
  if (!operand) return {};
  const Tensor other_tensor =
      operand->tensor ? *operand->tensor
                      : make_number_tensor(operand->number, choose_weak_dtype(ufunc, operand->number, self.desc().dtype), context);
  return is_reflected ? std::vector{other_tensor, self} : std::vector{self, other_tensor};
}

void reject_negative_exponents(const UfuncLoop& ufunc_loop, const Tensor& exponents) {
  if (!is_signed_integer(ufunc_loop.types[1]) || !is_signed_integer(exponents.desc().dtype)) return;
  const DType dtype = exponents.desc().dtype;
  const Tensor zero = make_number_tensor(py::int_(0), dtype, exponents.buffer()->context());
  const GilRelease release;
  const Tensor negative = run_ufunc("less", {exponents, zero}, {dtype, dtype}, DType::bool_, check_signals);
  if (any_nonzero(negative, check_signals)) throw py::value_error("Integers to negative integer powers are not allowed.");
}

// NumPy replaces some scalar powers with sqrt or reciprocal, which differ at zeros and infinities.
const char* find_power_replacement(const py::object& exponent, const UfuncLoop& ufunc_loop) {
  if (!is_float(ufunc_loop.result) || !(PyFloat_Check(exponent.ptr()) || PyLong_Check(exponent.ptr()))) return nullptr;
  if (exponent.equal(py::float_(0.5))) return "sqrt";
  return exponent.equal(py::int_(-1)) ? "reciprocal" : nullptr;
}

Tensor compute_ufunc(UfuncLoop ufunc_loop, std::vector<Tensor> operands, const py::object& other, bool is_reflected) {
  if (std::string_view(ufunc_loop.ufunc) == "power") {
    if (operands[0].desc().elements() > 0)
      reject_negative_exponents(ufunc_loop, operands[1]);  // NumPy only checks exponents if the loop runs
    if (const char* replacement = is_reflected ? nullptr : find_power_replacement(other, ufunc_loop)) {
      ufunc_loop.ufunc = replacement;
      ufunc_loop.types.pop_back();
      operands.pop_back();
    }
  }
  return run_ufunc_loop(ufunc_loop, operands);
}

TensorOrNotImplemented apply_binary(const char* ufunc, const Tensor& self, const py::object& other, bool is_reflected) {
  auto operands = convert_operands(ufunc, self, other, is_reflected);
  if (!operands) return get_not_implemented();
  UfuncLoop ufunc_loop = resolve_ufunc_loop(ufunc, *operands);
  return py::cast(compute_ufunc(std::move(ufunc_loop), std::move(*operands), other, is_reflected));
}

// Runs an in-place operator: writes the result to the tensor's memory, visible to all views.
py::object apply_in_place(const char* ufunc, const py::object& self, const py::object& other) {
  const auto& target = self.cast<const Tensor&>();
  auto operands = convert_operands(ufunc, target, other, false);
  if (!operands) return get_not_implemented();
  UfuncLoop ufunc_loop = resolve_ufunc_loop(ufunc, *operands);
  const auto from = get_numpy_dtype(ufunc_loop.result), to = get_numpy_dtype(target.desc().dtype);
  if (!import_numpy().attr("can_cast")(from, to, "same_kind").cast<bool>())
    throw py::type_error("Cannot cast '" + std::string(ufunc) + "' output from " + std::string(name(ufunc_loop.result)) + " to " +
                         std::string(name(target.desc().dtype)) + ", the dtype of the tensor that it is written to");
  if (const Shape shape = broadcast_shape(target.desc().shape, (*operands)[1].desc().shape); shape != target.desc().shape)
    throw py::value_error("a tensor of shape " + to_string(target.desc().shape) + " cannot hold a result of shape " + to_string(shape));
  const Tensor result = compute_ufunc(std::move(ufunc_loop), std::move(*operands), other, false);
  {
    const GilRelease release;
    target.copy_from(result.desc().dtype == target.desc().dtype ? result : convert_dtype(result, target.desc().dtype, check_signals),
                     check_signals);
  }
  return self;
}

// Returns a bool tensor with the shape of `like`, filled with `value`.
Tensor make_filled_bool(const Tensor& like, bool value) {
  const Tensor filled = Tensor::empty(like.buffer()->context(), DType::bool_, like.desc().shape);
  const std::byte element{value};
  const GilRelease release;
  filled.fill({&element, 1}, check_signals);
  return filled;
}

// Compares a tensor with an integer outside the range of its dtype: the result is the same for all elements. Returns nullopt if in range.
std::optional<bool> decide_out_of_range_comparison(const std::string& ufunc, const RangeCheck& fit) {
  if (fit.fits) return {};
  if (ufunc == "equal" || ufunc == "not_equal") return ufunc == "not_equal";
  return (ufunc == "greater" || ufunc == "greater_equal") == fit.below;
}

py::object compare(const char* ufunc, const Tensor& self, const py::object& other) {
  const bool is_number = PyLong_Check(other.ptr()) && !py::isinstance<py::bool_>(other);
  if (const auto all = is_number ? decide_out_of_range_comparison(ufunc, check_range(other, self.desc().dtype)) : std::nullopt)
    return py::cast(make_filled_bool(self, *all));
  return apply_binary(ufunc, self, other, false);
}

Tensor apply_unary(const char* ufunc, const Tensor& self) {
  return run_ufunc_loop(resolve_ufunc_loop(ufunc, {self}), {self});
}

py::object get_scalar_item(const Tensor& self) {
  if (self.desc().rank() > 0)
    throw py::type_error("only tensors of rank 0 convert to Python numbers; given " + to_string(self.desc()) +
                         ": use .item() for a tensor of one element");
  return py::cast(self).attr("item")();
}

bool convert_to_bool(const Tensor& self) {
  const int64_t elements = self.desc().elements();
  if (elements == 1) return py::cast<bool>(py::bool_(py::cast(self).attr("item")()));
  throw py::value_error(elements == 0
                            ? "the truth value of an empty tensor is ambiguous: use tensor.size > 0 to check whether it has elements"
                            : "the truth value of a tensor with more than one element is ambiguous: use any() or all()");
}

bool contains_value(const Tensor& self, const py::object& searched) {
  const py::object equal = compare("equal", self, searched);
  if (equal.is(get_not_implemented())) return false;
  const auto& tensor = equal.cast<const Tensor&>();
  const GilRelease release;
  return any_nonzero(tensor, check_signals);
}

void bind_binary_operators(TensorClass& tensor) {
  constexpr std::pair<const char*, const char*> names[] = {{"add", "add"},         {"sub", "subtract"},          {"mul", "multiply"},
                                                           {"truediv", "divide"},  {"floordiv", "floor_divide"}, {"mod", "remainder"},
                                                           {"pow", "power"},       {"and", "bitwise_and"},       {"or", "bitwise_or"},
                                                           {"xor", "bitwise_xor"}, {"lshift", "left_shift"},     {"rshift", "right_shift"}};
  for (const auto& [name, ufunc] : names) {
    const auto method = [&](const char* prefix) { return "__" + (prefix + std::string(name)) + "__"; };
    tensor.def(method("").c_str(),
               [ufunc](const Tensor& self, const py::object& other) { return apply_binary(ufunc, self, other, false); });
    tensor.def(method("r").c_str(),
               [ufunc](const Tensor& self, const py::object& other) { return apply_binary(ufunc, self, other, true); });
    tensor.def(method("i").c_str(), [ufunc](const py::object& self, const py::object& other) {
      return TensorOrNotImplemented(apply_in_place(ufunc, self, other));
    });
  }
  const auto divmod = [](const Tensor& self, const py::object& other, bool is_reflected) -> py::object {
    const TensorOrNotImplemented quotient = apply_binary("floor_divide", self, other, is_reflected);
    if (quotient.is(get_not_implemented())) return get_not_implemented();
    return py::make_tuple(quotient, apply_binary("remainder", self, other, is_reflected));
  };
  tensor.def("__divmod__", [divmod](const Tensor& self, const py::object& other) { return divmod(self, other, false); });
  tensor.def("__rdivmod__", [divmod](const Tensor& self, const py::object& other) { return divmod(self, other, true); });
}

void bind_comparisons(TensorClass& tensor) {
  constexpr std::pair<const char*, const char*> names[] = {{"__eq__", "equal"},      {"__ne__", "not_equal"}, {"__lt__", "less"},
                                                           {"__le__", "less_equal"}, {"__gt__", "greater"},   {"__ge__", "greater_equal"}};
  for (const auto& [name, ufunc] : names)
    tensor.def(name, [ufunc](const Tensor& self, const py::object& other) { return compare(ufunc, self, other); });
  tensor.attr("__hash__") = py::none();  // == compares elementwise, so tensors are unhashable like arrays
}

void bind_unary_operators(TensorClass& tensor) {
  constexpr std::pair<const char*, const char*> names[] = {
      {"__neg__", "negative"}, {"__pos__", "positive"}, {"__abs__", "absolute"}, {"__invert__", "invert"}};
  for (const auto& [name, ufunc] : names) tensor.def(name, [ufunc](const Tensor& self) { return apply_unary(ufunc, self); });
}

}  // namespace

void bind_arithmetic(TensorClass& tensor) {
  bind_binary_operators(tensor);
  bind_comparisons(tensor);
  bind_unary_operators(tensor);
  tensor.attr("__array_priority__") = kArrayPriority;
  tensor.def("__bool__", &convert_to_bool)
      .def("__float__", [](const Tensor& self) { return py::float_(get_scalar_item(self)); })
      .def("__int__", [](const Tensor& self) { return py::int_(get_scalar_item(self)); })
      .def("__iter__",
           [](const py::object& self) {
             if (self.cast<const Tensor&>().desc().rank() == 0) throw py::type_error("iteration over a tensor of rank 0");
             return py::reinterpret_steal<py::typing::Iterator<Tensor>>(PySeqIter_New(self.ptr()));
           })
      .def("__contains__", &contains_value, py::arg("value"))
      .def(
          "any",
          [](const Tensor& self) {
            const GilRelease release;
            return any_nonzero(self, check_signals);
          },
          "Return whether any element is nonzero; False if there are no elements.")
      .def(
          "all",
          [](const Tensor& self) {
            const GilRelease release;
            return all_nonzero(self, check_signals);
          },
          "Return whether all elements are nonzero; True if there are no elements.");
}

}  // namespace pumice

namespace pybind11::detail {

template <>
struct handle_type_name<pumice::TensorOrNotImplemented> {
  static constexpr auto name = const_name("pumice._pumice.Tensor");
};

}  // namespace pybind11::detail
