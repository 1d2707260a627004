#include "bindings.h"
#include "core/error.h"
#include "dv/weights/packing.h"
#include "dv/weights/quantizer.h"

namespace pumice {
namespace {

using Values = std::optional<py::array>;
using Dimensions = std::vector<py::ssize_t>;
using Packed = std::variant<py::bytes, py::array>;

// Arrays of an unpacked layer; the table is already applied to `weights`.
struct Unpacked {
  py::array weights;
  Values indices, table;
  py::array bias;
  Values prelu;
};

std::string description_of(const py::handle& object) {
  return py::str(object).cast<std::string>();
}

std::string description_of(const Dimensions& sizes) {
  return description_of(py::tuple(py::cast(sizes)));
}

Dimensions sizes_of(const py::array& array) {
  return {array.shape(), array.shape() + array.ndim()};
}

// Returns the array as contiguous, checking dtype and optionally shape. Throws BindingError (D3).
py::array expected_array(const py::array& given, const char* name, const char* dtype, const std::optional<Dimensions>& shape = {}) {
  refuse_masked(given, name);
  py::array native = contiguous(given);
  if (!native.dtype().equal(py::dtype(dtype)) || (shape && sizes_of(given) != *shape))
    throw BindingError("D3", name, "", std::string(dtype) + (shape ? " of shape " + description_of(*shape) : ""),
                       description_of(given.dtype()) + " of shape " + description_of(sizes_of(given)));
  return native;
}

py::array zeros(py::ssize_t size) {
  py::array_t<uint16_t> made(size);
  std::fill_n(made.mutable_data(), size, uint16_t{0});
  return made;
}

py::array halves(const Dimensions& shape) {
  return {py::dtype("float16"), shape};
}

uint16_t* data_of(py::array& array) {
  return static_cast<uint16_t*>(array.mutable_data());
}

// Validated arrays to pack.
struct PackingInputs {
  py::array weights, bias;
  Values table, prelu;

  PackingInputs(const py::array& values, const Values& biases, const Values& map, const Values& slopes, py::ssize_t outputs)
      : weights(expected_array(values, "weights", map ? "uint8" : "float16")),
        bias(biases ? expected_array(*biases, "bias", "float16", Dimensions{outputs}) : zeros(outputs)) {
    if (map) table = expected_array(*map, "table", "float16", Dimensions{dv::kTableEntries});
    if (slopes) prelu = expected_array(*slopes, "prelu", "float16", Dimensions{outputs});
  }
  dv::Weights parts() const {
    const auto data = [](const Values& array) { return array ? static_cast<const uint16_t*>(array->data()) : nullptr; };
    return {weights.data(), data(table), static_cast<const uint16_t*>(bias.data()), data(prelu)};
  }
};

int dimension(py::ssize_t size) {
  return static_cast<int>(std::min<py::ssize_t>(size, INT32_MAX));
}

dv::ConvDims conv_dims(const Dimensions& shape, bool quantized, bool prelu) {
  if (shape.size() != 4) throw BindingError("D3", "weights", "", "the shape (kernels, channels, ky, kx)", description_of(shape));
  return {dimension(shape[1]), dimension(shape[3]), dimension(shape[2]), dimension(shape[0]), quantized, prelu};
}

dv::FcDims fc_dims(const Dimensions& shape, bool quantized) {
  if (shape.size() != 2 && shape.size() != 4 && shape.size() != 6)
    throw BindingError("D3", "weights", "", "the shape (outputs, inputs), (outputs, c, h, w) or (c, h, w, c, h, w)", description_of(shape));
  const size_t outputs = shape.size() == 6 ? 3 : 1;
  const auto size = [&](size_t axis, size_t end) { return axis < end ? dimension(shape[axis]) : 1; };
  return {size(outputs, shape.size()),
          size(outputs + 1, shape.size()),
          size(outputs + 2, shape.size()),
          size(0, outputs),
          size(1, outputs),
          size(2, outputs),
          quantized};
}

template <typename Dims>
py::bytes pack(const Dims& dims, const PackingInputs& given, size_t (*bytes)(const Dims&),
               size_t (*pack_weights)(const Dims&, const dv::Weights&, std::span<std::byte>)) {
  const size_t size = bytes(dims);
  auto packed = py::reinterpret_steal<py::bytes>(PyBytes_FromStringAndSize(nullptr, static_cast<py::ssize_t>(size)));
  if (!packed) throw py::error_already_set();
  auto* target = reinterpret_cast<std::byte*>(PyBytes_AS_STRING(packed.ptr()));
  const dv::Weights parts = given.parts();
  const ReleasedGil release;
  pack_weights(dims, parts, {target, size});
  return packed;
}

template <size_t (*bytes)(const dv::ConvDims&), size_t (*pack_weights)(const dv::ConvDims&, const dv::Weights&, std::span<std::byte>)>
py::bytes pack_convolution(const py::array& weights, const Values& bias, const Values& table, const Values& prelu) {
  const dv::ConvDims dims = conv_dims(sizes_of(weights), table.has_value(), prelu.has_value());
  return pack(dims, PackingInputs(weights, bias, table, prelu, dims.kernels), bytes, pack_weights);
}

py::bytes pack_fully_connected(const py::array& weights, const Values& bias, const Values& table) {
  const dv::FcDims dims = fc_dims(sizes_of(weights), table.has_value());
  return pack(dims, PackingInputs(weights, bias, table, {}, static_cast<py::ssize_t>(dims.outputs())), dv::packed_fc_bytes,
              dv::pack_fc_weights);
}

std::span<const std::byte> span_of(const Packed& packed) {
  if (const auto* array = std::get_if<py::array>(&packed)) return bytes_of(*array);
  const auto& bytes = std::get<py::bytes>(packed);
  return {reinterpret_cast<const std::byte*>(PyBytes_AS_STRING(bytes.ptr())), static_cast<size_t>(PyBytes_GET_SIZE(bytes.ptr()))};
}

// Unpacking functions for one kind of layer.
template <typename Dims>
struct Unpacking {
  size_t (*bytes)(const Dims&);
  void (*weights)(const Dims&, std::span<const std::byte>, const dv::UnpackedWeights&);
};

template <typename Dims>
Unpacked unpack(const Dims& dims, Packed packed, const Dimensions& shape, py::ssize_t outputs, bool prelu, const Unpacking<Dims>& how) {
  if (auto* array = std::get_if<py::array>(&packed)) *array = expected_array(*array, "packed", "uint8");
  const auto source = span_of(packed);
  dv::expect_packed(how.bytes(dims), source.size());
  Unpacked made{halves(shape), {}, {}, halves({outputs}), {}};
  dv::UnpackedWeights target{.values = data_of(made.weights), .bias = data_of(made.bias)};
  if (dims.quantized) {
    made.indices = py::array(py::dtype("uint8"), shape), made.table = halves({dv::kTableEntries});
    target.indices = static_cast<uint8_t*>(made.indices->mutable_data()), target.table = data_of(*made.table);
  }
  if (prelu) made.prelu = halves({outputs}), target.prelu = data_of(*made.prelu);
  const ReleasedGil release;
  how.weights(dims, source, target);
  return made;
}

template <size_t (*bytes)(const dv::ConvDims&),
          void (*unpack_weights)(const dv::ConvDims&, std::span<const std::byte>, const dv::UnpackedWeights&)>
Unpacked unpack_convolution(const Packed& packed, const Dimensions& shape, bool quantized, bool prelu) {
  const dv::ConvDims dims = conv_dims(shape, quantized, prelu);
  return unpack(dims, packed, shape, dims.kernels, prelu, Unpacking<dv::ConvDims>{bytes, unpack_weights});
}

Unpacked unpack_fully_connected(const Packed& packed, const Dimensions& shape, bool quantized) {
  const dv::FcDims dims = fc_dims(shape, quantized);
  return unpack(dims, packed, shape, static_cast<py::ssize_t>(dims.outputs()), false,
                Unpacking<dv::FcDims>{dv::packed_fc_bytes, dv::unpack_fc_weights});
}

py::typing::Tuple<py::array, py::array> quantize(const py::array& weights) {
  refuse_masked(weights, "weights");
  if (!weights.dtype().equal(py::dtype("float16")) && !weights.dtype().equal(py::dtype("float32")))
    throw BindingError("D3", "weights", "", "float16 or float32", description_of(weights.dtype()));
  const py::array values = contiguous(weights.attr("astype")("float32", py::arg("copy") = false).cast<py::array>());
  py::array indices(py::dtype("uint8"), sizes_of(weights)), table = halves({dv::kTableEntries});
  const std::span source(static_cast<const float*>(values.data()), static_cast<size_t>(values.size()));
  const std::span target(static_cast<uint8_t*>(indices.mutable_data()), source.size());
  const auto made = [&] {
    const ReleasedGil release;
    return dv::quantize_weights(source, target);
  }();
  std::copy(made.begin(), made.end(), data_of(table));
  return py::make_tuple(indices, table);
}

constexpr const char* kPackText =
    "weights: float16 [kernels, channels, ky, kx] with kernel sides of 1 to 7 and 1 channel if depthwise; with `table`, uint8 indices.\n"
    "table: float16 [256]. Entry 0 should be 0.0, since padding has index 0.\n"
    "bias, prelu: float16 [kernels]; bias=None means zeros.\n"
    "Raise BindingError (D1, D3).";

constexpr const char* kUnpackText =
    "packed: bytes, or a uint8 array; bytes after the packed weights are not read.\n"
    "shape: (kernels, channels, ky, kx).\n"
    "Raise BindingError (D1, D2, D3).";

void bind_unpacked_weights(py::module_& module) {
  py::class_<Unpacked>(module, "UnpackedWeights", "The unpacked weights of a layer.")
      .def_property_readonly(
          "weights", [](const Unpacked& self) { return self.weights; }, "float16 weights, with the table applied.")
      .def_property_readonly(
          "indices", [](const Unpacked& self) { return self.indices; }, "uint8 indices into the table; None without a table.")
      .def_property_readonly(
          "table", [](const Unpacked& self) { return self.table; }, "The table, float16 [256]; None if there is none.")
      .def_property_readonly(
          "bias", [](const Unpacked& self) { return self.bias; }, "float16 biases, one per output.")
      .def_property_readonly(
          "prelu", [](const Unpacked& self) { return self.prelu; }, "float16 PReLU slopes, one per kernel; None if there are none.");
}

}  // namespace

void bind_dv_packing(py::module_& module) {
  bind_unpacked_weights(module);
  const auto def_pack = [&](const char* name, const auto& pack, const std::string& text) {
    module.def(name, pack, py::arg("weights"), py::arg("bias") = py::none(), py::kw_only(), py::arg("table") = py::none(),
               py::arg("prelu") = py::none(), (text + "\n" + kPackText).c_str());
  };
  def_pack("pack_conv_weights", &pack_convolution<dv::packed_conv_bytes, dv::pack_conv_weights>,
           "Pack the weights of a convolution or deconvolution.");
  def_pack("pack_dil_weights", &pack_convolution<dv::packed_dil_bytes, dv::pack_dil_weights>, "Pack the weights of a dilated convolution.");
  module.def("pack_fc_weights", &pack_fully_connected, py::arg("weights"), py::arg("bias") = py::none(), py::kw_only(),
             py::arg("table") = py::none(),
             "Pack the weights of a fully connected layer.\n"
             "weights: float16, or uint8 indices if there is a table, [outputs, inputs], [outputs, c, h, w] or [c, h, w, c, h, w]; outputs "
             "and inputs are reordered to WHC8.\n"
             "table: float16 [256].\n"
             "bias: float16 [outputs], not reordered; None: zeros.\n"
             "Raise BindingError (D1, D3).");
  const auto def_unpack = [&](const char* name, const auto& unpack, const std::string& text) {
    module.def(name, unpack, py::arg("packed"), py::arg("shape"), py::kw_only(), py::arg("quantized") = false, py::arg("prelu") = false,
               (text + "\n" + kUnpackText).c_str());
  };
  def_unpack("unpack_conv_weights", &unpack_convolution<dv::packed_conv_bytes, dv::unpack_conv_weights>,
             "Unpack the weights, biases and slopes packed by pack_conv_weights().");
  def_unpack("unpack_dil_weights", &unpack_convolution<dv::packed_dil_bytes, dv::unpack_dil_weights>,
             "Unpack the weights, biases and slopes packed by pack_dil_weights().");
  module.def(
      "quantize_weights", &quantize, py::arg("weights"),
      "Quantise weights to (indices, table) as the packers expect them: uint8 indices of the weights' shape and a float16 table [256].\n"
      "Entries 1 to 255 of the table are, in ascending order, the values that minimise the sum of squared errors (exact 1D k-means), "
      "rounded to "
      "float16; each weight maps to the nearest one. Entry 0 is 0.0, for weights of exactly 0. Up to 255 distinct float16 values are "
      "preserved.\n"
      "weights: float16, or float32, which is rounded.\n"
      "Raise BindingError (D3; D7 for NaN, infinity and values out of float16 range).");
  module.def("unpack_fc_weights", &unpack_fully_connected, py::arg("packed"), py::arg("shape"), py::kw_only(), py::arg("quantized") = false,
             "Unpack the weights and biases packed by pack_fc_weights().\n"
             "packed: as in unpack_conv_weights().\n"
             "shape: the shape of the weights, as in pack_fc_weights().\n"
             "Raise BindingError (D1, D2, D3).");
}

}  // namespace pumice
