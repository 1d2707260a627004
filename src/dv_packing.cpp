#include "bindings.h"
#include "core/error.h"
#include "dv/weights/packing.h"
#include "dv/weights/quantizer.h"

namespace pumice {
namespace {

using OptionalArray = std::optional<py::array>;
using Dimensions = std::vector<py::ssize_t>;
using Packed = std::variant<py::bytes, py::array>;

// Arrays of an unpacked layer; the table is already applied to `weights`.
struct UnpackedLayer {
  py::array weights;
  OptionalArray indices, table;
  py::array bias;
  OptionalArray prelu;
};

std::string format_text(const py::handle& object) {
  return py::str(object).cast<std::string>();
}

std::string format_text(const Dimensions& sizes) {
  return format_text(py::tuple(py::cast(sizes)));
}

Dimensions get_dimensions(const py::array& array) {
  return {array.shape(), array.shape() + array.ndim()};
}

// Returns the array as contiguous, checking dtype and optionally shape. Throws BindingError (D3).
py::array check_weight_array(const py::array& array, const char* name, const char* dtype, const std::optional<Dimensions>& shape = {}) {
  reject_masked_array(array, name);
  py::array native = make_contiguous(array);
  if (!native.dtype().equal(py::dtype(dtype)) || (shape && get_dimensions(array) != *shape))
    throw BindingError("D3", name, "", std::string(dtype) + (shape ? " of shape " + format_text(*shape) : ""),
                       format_text(array.dtype()) + " of shape " + format_text(get_dimensions(array)));
  return native;
}

py::array make_zeros(py::ssize_t size) {
  py::array_t<uint16_t> result(size);
  std::fill_n(result.mutable_data(), size, uint16_t{0});
  return result;
}

py::array make_fp16_array(const Dimensions& shape) {
  return {py::dtype("float16"), shape};
}

uint16_t* get_fp16_data(py::array& array) {
  return static_cast<uint16_t*>(array.mutable_data());
}

// Validated arrays of a layer to pack.
struct PackingInputs {
  py::array weights, bias;
  OptionalArray table, prelu;

  PackingInputs(const py::array& values, const OptionalArray& biases, const OptionalArray& map, const OptionalArray& slopes,
                py::ssize_t outputs)
      : weights(check_weight_array(values, "weights", map ? "uint8" : "float16")),
        bias(biases ? check_weight_array(*biases, "bias", "float16", Dimensions{outputs}) : make_zeros(outputs)) {
    if (map) table = check_weight_array(*map, "table", "float16", Dimensions{dv::kTableEntries});
    if (slopes) prelu = check_weight_array(*slopes, "prelu", "float16", Dimensions{outputs});
  }
  dv::Weights get_weights_view() const {
    const auto data = [](const OptionalArray& array) { return array ? static_cast<const uint16_t*>(array->data()) : nullptr; };
    return {weights.data(), data(table), static_cast<const uint16_t*>(bias.data()), data(prelu)};
  }
};

int clamp_dimension(py::ssize_t size) {
  return static_cast<int>(std::min<py::ssize_t>(size, INT32_MAX));
}

dv::ConvDims make_conv_dims(const Dimensions& shape, bool quantized, bool prelu) {
  if (shape.size() != 4) throw BindingError("D3", "weights", "", "the shape (kernels, channels, ky, kx)", format_text(shape));
  return {clamp_dimension(shape[1]), clamp_dimension(shape[3]), clamp_dimension(shape[2]), clamp_dimension(shape[0]), quantized, prelu};
}

dv::FcDims make_fc_dims(const Dimensions& shape, bool quantized) {
  if (shape.size() != 2 && shape.size() != 4 && shape.size() != 6)
    throw BindingError("D3", "weights", "", "the shape (outputs, inputs), (outputs, c, h, w) or (c, h, w, c, h, w)", format_text(shape));
  const size_t outputs = shape.size() == 6 ? 3 : 1;
  const auto size = [&](size_t axis, size_t end) { return axis < end ? clamp_dimension(shape[axis]) : 1; };
  return {size(outputs, shape.size()),
          size(outputs + 1, shape.size()),
          size(outputs + 2, shape.size()),
          size(0, outputs),
          size(1, outputs),
          size(2, outputs),
          quantized};
}

template <typename Dims>
py::bytes pack_layer(const Dims& dims, const PackingInputs& inputs, size_t (*bytes)(const Dims&),
                     size_t (*pack_weights)(const Dims&, const dv::Weights&, std::span<std::byte>)) {
  const size_t size = bytes(dims);
  auto packed = py::reinterpret_steal<py::bytes>(PyBytes_FromStringAndSize(nullptr, static_cast<py::ssize_t>(size)));
  if (!packed) throw py::error_already_set();
  auto* target = reinterpret_cast<std::byte*>(PyBytes_AS_STRING(packed.ptr()));
  const dv::Weights weights_view = inputs.get_weights_view();
  const GilRelease release;
  pack_weights(dims, weights_view, {target, size});
  return packed;
}

template <size_t (*bytes)(const dv::ConvDims&), size_t (*pack_weights)(const dv::ConvDims&, const dv::Weights&, std::span<std::byte>)>
py::bytes pack_convolution(const py::array& weights, const OptionalArray& bias, const OptionalArray& table, const OptionalArray& prelu) {
  const dv::ConvDims dims = make_conv_dims(get_dimensions(weights), table.has_value(), prelu.has_value());
  return pack_layer(dims, PackingInputs(weights, bias, table, prelu, dims.kernels), bytes, pack_weights);
}

py::bytes pack_fully_connected(const py::array& weights, const OptionalArray& bias, const OptionalArray& table) {
  const dv::FcDims dims = make_fc_dims(get_dimensions(weights), table.has_value());
  return pack_layer(dims, PackingInputs(weights, bias, table, {}, static_cast<py::ssize_t>(dims.outputs())), dv::compute_packed_fc_bytes,
                    dv::pack_fc_weights);
}

std::span<const std::byte> get_packed_bytes(const Packed& packed) {
  if (const auto* array = std::get_if<py::array>(&packed)) return get_bytes(*array);
  const auto& bytes = std::get<py::bytes>(packed);
  return {reinterpret_cast<const std::byte*>(PyBytes_AS_STRING(bytes.ptr())), static_cast<size_t>(PyBytes_GET_SIZE(bytes.ptr()))};
}

// Functions that compute the packed size of a layer and unpack it.
template <typename Dims>
struct LayerUnpacker {
  size_t (*bytes)(const Dims&);
  void (*weights)(const Dims&, std::span<const std::byte>, const dv::UnpackedWeights&);
};

template <typename Dims>
UnpackedLayer unpack_layer(const Dims& dims, Packed packed, const Dimensions& shape, py::ssize_t outputs, bool prelu,
                           const LayerUnpacker<Dims>& functions) {
  if (auto* array = std::get_if<py::array>(&packed)) *array = check_weight_array(*array, "packed", "uint8");
  const auto source = get_packed_bytes(packed);
  dv::check_packed_size(functions.bytes(dims), source.size());
  UnpackedLayer result{make_fp16_array(shape), {}, {}, make_fp16_array({outputs}), {}};
  dv::UnpackedWeights target{.values = get_fp16_data(result.weights), .bias = get_fp16_data(result.bias)};
  if (dims.quantized) {
    result.indices = py::array(py::dtype("uint8"), shape), result.table = make_fp16_array({dv::kTableEntries});
    target.indices = static_cast<uint8_t*>(result.indices->mutable_data()), target.table = get_fp16_data(*result.table);
  }
  if (prelu) result.prelu = make_fp16_array({outputs}), target.prelu = get_fp16_data(*result.prelu);
  const GilRelease release;
  functions.weights(dims, source, target);
  return result;
}

template <size_t (*bytes)(const dv::ConvDims&),
          void (*unpack_weights)(const dv::ConvDims&, std::span<const std::byte>, const dv::UnpackedWeights&)>
UnpackedLayer unpack_convolution(const Packed& packed, const Dimensions& shape, bool quantized, bool prelu) {
  const dv::ConvDims dims = make_conv_dims(shape, quantized, prelu);
  return unpack_layer(dims, packed, shape, dims.kernels, prelu, LayerUnpacker<dv::ConvDims>{bytes, unpack_weights});
}

UnpackedLayer unpack_fully_connected(const Packed& packed, const Dimensions& shape, bool quantized) {
  const dv::FcDims dims = make_fc_dims(shape, quantized);
  return unpack_layer(dims, packed, shape, static_cast<py::ssize_t>(dims.outputs()), false,
                      LayerUnpacker<dv::FcDims>{dv::compute_packed_fc_bytes, dv::unpack_fc_weights});
}

py::typing::Tuple<py::array, py::array> quantize_weights(const py::array& weights) {
  reject_masked_array(weights, "weights");
  if (!weights.dtype().equal(py::dtype("float16")) && !weights.dtype().equal(py::dtype("float32")))
    throw BindingError("D3", "weights", "", "float16 or float32", format_text(weights.dtype()));
  const py::array values = make_contiguous(weights.attr("astype")("float32", py::arg("copy") = false).cast<py::array>());
  py::array indices(py::dtype("uint8"), get_dimensions(weights)), table = make_fp16_array({dv::kTableEntries});
  const std::span source(static_cast<const float*>(values.data()), static_cast<size_t>(values.size()));
  const std::span target(static_cast<uint8_t*>(indices.mutable_data()), source.size());
  const auto result = [&] {
    const GilRelease release;
    return dv::quantize_weights(source, target);
  }();
  std::copy(result.begin(), result.end(), get_fp16_data(table));
  return py::make_tuple(indices, table);
}

constexpr const char* kPackDoc =
    "weights: float16 [kernels, channels, ky, kx] with kernel sides of 1 to 7 and 1 channel if depthwise; with `table`, uint8 indices.\n"
    "table: float16 [256]. Entry 0 should be 0.0, since padding has index 0.\n"
    "bias, prelu: float16 [kernels]; bias=None means zeros.\n"
    "Raise BindingError (D1, D3).";

constexpr const char* kUnpackDoc =
    "packed: bytes, or a uint8 array; bytes after the packed weights are not read.\n"
    "shape: (kernels, channels, ky, kx).\n"
    "Raise BindingError (D1, D2, D3).";

void bind_unpacked_weights(py::module_& module) {
  py::class_<UnpackedLayer>(module, "UnpackedWeights", "The unpacked weights of a layer.")
      .def_property_readonly(
          "weights", [](const UnpackedLayer& self) { return self.weights; }, "float16 weights, with the table applied.")
      .def_property_readonly(
          "indices", [](const UnpackedLayer& self) { return self.indices; }, "uint8 indices into the table; None without a table.")
      .def_property_readonly(
          "table", [](const UnpackedLayer& self) { return self.table; }, "The table, float16 [256]; None if there is none.")
      .def_property_readonly(
          "bias", [](const UnpackedLayer& self) { return self.bias; }, "float16 biases, one per output.")
      .def_property_readonly(
          "prelu", [](const UnpackedLayer& self) { return self.prelu; }, "float16 PReLU slopes, one per kernel; None if there are none.");
}

}  // namespace

void bind_dv_packing(py::module_& module) {
  bind_unpacked_weights(module);
  const auto def_pack = [&](const char* name, const auto& pack, const std::string& text) {
    module.def(name, pack, py::arg("weights"), py::arg("bias") = py::none(), py::kw_only(), py::arg("table") = py::none(),
               py::arg("prelu") = py::none(), (text + "\n" + kPackDoc).c_str());
  };
  def_pack("pack_conv_weights", &pack_convolution<dv::compute_packed_conv_bytes, dv::pack_conv_weights>,
           "Pack the weights of a convolution or deconvolution.");
  def_pack("pack_dil_weights", &pack_convolution<dv::compute_packed_dil_bytes, dv::pack_dil_weights>,
           "Pack the weights of a dilated convolution.");
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
               (text + "\n" + kUnpackDoc).c_str());
  };
  def_unpack("unpack_conv_weights", &unpack_convolution<dv::compute_packed_conv_bytes, dv::unpack_conv_weights>,
             "Unpack the weights, biases and slopes packed by pack_conv_weights().");
  def_unpack("unpack_dil_weights", &unpack_convolution<dv::compute_packed_dil_bytes, dv::unpack_dil_weights>,
             "Unpack the weights, biases and slopes packed by pack_dil_weights().");
  module.def(
      "quantize_weights", &quantize_weights, py::arg("weights"),
      "Quantise weights to (indices, table) as the packers expect them: uint8 indices of the weights' shape and a float16 table [256].\n"
      "Entries 1 to 255 of the table are, in ascending order, the values that minimise the sum of squared errors (exact 1D k-means), "
      "rounded to float16; each weight maps to the nearest one. Entry 0 is 0.0, for weights of exactly 0. Up to 255 distinct float16 "
      "values are preserved.\n"
      "weights: float16, or float32, which is rounded.\n"
      "Raise BindingError (D3; D7 for NaN, infinity and values out of float16 range).");
  module.def("unpack_fc_weights", &unpack_fully_connected, py::arg("packed"), py::arg("shape"), py::kw_only(), py::arg("quantized") = false,
             "Unpack the weights and biases packed by pack_fc_weights().\n"
             "packed: as in unpack_conv_weights().\n"
             "shape: the shape of the weights, as in pack_fc_weights().\n"
             "Raise BindingError (D1, D2, D3).");
}

}  // namespace pumice
