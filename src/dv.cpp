#include <cstddef>
#include <cstring>

#include "bindings.h"
#include "core/error.h"
#include "dv/command_list.h"
#include "dv/commands/parse_command.h"

namespace pumice {
namespace {

// A reference from Python to an engine object. close() drops it; other references may remain.
template <typename T>
struct ClosableReference {
  std::shared_ptr<T> object;
  const char* name;

  const std::shared_ptr<T>& get() const {
    if (!object) throw StateError(std::string("this ") + name + " is closed");
    return object;
  }
};
using DvContextHandle = ClosableReference<dv::Context>;
using DvMemoryHandle = ClosableReference<dv::Memory>;
using DvListHandle = ClosableReference<dv::CommandList>;

// Runs `call` without the GIL and stores its error message in the context.
template <typename Call>
auto call_without_gil(const std::shared_ptr<dv::Context>& context, const Call& call) {
  const GilRelease release;
  try {
    return call();
  } catch (const Error& error) {
    context->set_last_error(error.what());
    throw;
  }
}

template <typename T, typename Class>
void bind_lifetime(Class& class_binding) {
  class_binding
      .def(
          "close",
          [](ClosableReference<T>& self) {
            auto object = std::move(self.object);
            const GilRelease release;  // may wait for work in flight
            object.reset();
          },
          "Release the object. Objects created from it keep it alive. Idempotent.")
      .def_property_readonly("closed", [](const ClosableReference<T>& self) { return !self.object; })
      .def("__enter__", [](const py::object& self) { return self; })
      .def("__exit__", [](const py::object& self, const py::args&) { self.attr("close")(); });
}

// Returns a NumPy view of the mapped bytes that keeps the memory alive.
py::array_t<uint8_t> map_memory(const DvMemoryHandle& self) {
  const auto memory = self.get();
  auto* const bytes = reinterpret_cast<uint8_t*>(call_without_gil(memory->context(), [&] { return memory->map(); }));
  const py::capsule owner(new std::shared_ptr<dv::Memory>(memory),
                          [](void* pointer) { delete static_cast<std::shared_ptr<dv::Memory>*>(pointer); });
  return {{static_cast<py::ssize_t>(memory->bytes())}, {py::ssize_t{1}}, bytes, owner};
}

std::span<const std::byte> get_raw_bytes(const py::bytes& raw) {
  const std::string_view view = raw;
  return {reinterpret_cast<const std::byte*>(view.data()), view.size()};
}

// A field of a raw struct: byte offset, struct.pack() format of one element, and number of elements.
struct StructField {
  const char* name;
  size_t offset;
  const char* format;
  size_t count;
};

template <typename T>
constexpr const char* get_struct_format() {
  if constexpr (std::is_same_v<T, dmp_dv_buf>)
    return "QQ";
  else if constexpr (std::is_same_v<T, dmp_dv_cmdraw>)
    return "IBB2x";
  else if constexpr (std::is_same_v<T, uint8_t>)
    return "B";
  else if constexpr (std::is_same_v<T, int8_t>)
    return "b";
  else if constexpr (std::is_same_v<T, uint16_t>)
    return "H";
  else if constexpr (std::is_same_v<T, int32_t>)
    return "i";
  else if constexpr (std::is_same_v<T, uint32_t>)
    return "I";
  else
    return "";  // a nested struct
}

template <typename T>
StructField make_field(const char* name, size_t offset) {
  using Element = std::remove_extent_t<T>;
  return {name, offset, get_struct_format<Element>(), std::is_array_v<T> ? sizeof(T) / sizeof(Element) : 1};
}

#define PUMICE_FIELD(structure, member) make_field<decltype(structure::member)>(#member, offsetof(structure, member))

struct StructDescription {
  const char* name;
  size_t size;
  std::vector<StructField> fields;
};

std::vector<StructDescription> list_structures() {
  using Run = dmp_dv_cmdraw_conv_v0_run;
  using Conv = dmp_dv_cmdraw_conv_v0;
  using ConvV1 = dmp_dv_cmdraw_conv_v1;
  using Fc = dmp_dv_cmdraw_fc_v0;
  using Ipu = dmp_dv_cmdraw_ipu_v0;
  using Maximizer = dmp_dv_cmdraw_maximizer_v0;
  return {
      {"run",
       sizeof(Run),
       {PUMICE_FIELD(Run, weight_buf), PUMICE_FIELD(Run, conv_pad), PUMICE_FIELD(Run, pool_pad), PUMICE_FIELD(Run, m),
        PUMICE_FIELD(Run, conv_enable), PUMICE_FIELD(Run, p), PUMICE_FIELD(Run, pz), PUMICE_FIELD(Run, conv_stride),
        PUMICE_FIELD(Run, conv_dilation), PUMICE_FIELD(Run, weight_fmt), PUMICE_FIELD(Run, pool_enable), PUMICE_FIELD(Run, pool_avg_param),
        PUMICE_FIELD(Run, pool_size), PUMICE_FIELD(Run, pool_stride), PUMICE_FIELD(Run, actfunc), PUMICE_FIELD(Run, actfunc_param),
        PUMICE_FIELD(Run, rectifi_en), PUMICE_FIELD(Run, lrn)}},
      {"conv",
       sizeof(Conv),
       {PUMICE_FIELD(Conv, header), PUMICE_FIELD(Conv, input_buf), PUMICE_FIELD(Conv, output_buf), PUMICE_FIELD(Conv, eltwise_buf),
        PUMICE_FIELD(Conv, topo), PUMICE_FIELD(Conv, w), PUMICE_FIELD(Conv, h), PUMICE_FIELD(Conv, z), PUMICE_FIELD(Conv, c),
        PUMICE_FIELD(Conv, input_circular_offset), PUMICE_FIELD(Conv, output_mode), PUMICE_FIELD(Conv, run)}},
      {"conv_v1",
       sizeof(ConvV1),
       {PUMICE_FIELD(ConvV1, header), PUMICE_FIELD(ConvV1, u8tofp16_table), PUMICE_FIELD(ConvV1, to_bgr), PUMICE_FIELD(ConvV1, conv_cmd)}},
      {"fc",
       sizeof(Fc),
       {PUMICE_FIELD(Fc, header), PUMICE_FIELD(Fc, weight_buf), PUMICE_FIELD(Fc, input_buf), PUMICE_FIELD(Fc, output_buf),
        PUMICE_FIELD(Fc, input_size), PUMICE_FIELD(Fc, output_size), PUMICE_FIELD(Fc, weight_fmt), PUMICE_FIELD(Fc, actfunc),
        PUMICE_FIELD(Fc, actfunc_param)}},
      {"ipu", sizeof(Ipu), {PUMICE_FIELD(Ipu, header),     PUMICE_FIELD(Ipu, tex),         PUMICE_FIELD(Ipu, rd),
                            PUMICE_FIELD(Ipu, wr),         PUMICE_FIELD(Ipu, fmt_tex),     PUMICE_FIELD(Ipu, fmt_rd),
                            PUMICE_FIELD(Ipu, fmt_wr),     PUMICE_FIELD(Ipu, tex_width),   PUMICE_FIELD(Ipu, tex_height),
                            PUMICE_FIELD(Ipu, rect_width), PUMICE_FIELD(Ipu, rect_height), PUMICE_FIELD(Ipu, stride_rd),
                            PUMICE_FIELD(Ipu, stride_wr),  PUMICE_FIELD(Ipu, lut),         PUMICE_FIELD(Ipu, ncolor_lut),
                            PUMICE_FIELD(Ipu, alpha),      PUMICE_FIELD(Ipu, transpose),   PUMICE_FIELD(Ipu, use_const_alpha),
                            PUMICE_FIELD(Ipu, use_tex),    PUMICE_FIELD(Ipu, use_rd),      PUMICE_FIELD(Ipu, blf),
                            PUMICE_FIELD(Ipu, ridx),       PUMICE_FIELD(Ipu, gidx),        PUMICE_FIELD(Ipu, bidx),
                            PUMICE_FIELD(Ipu, aidx),       PUMICE_FIELD(Ipu, cnv_type),    PUMICE_FIELD(Ipu, cnv_param)}},
      {"maximizer",
       sizeof(Maximizer),
       {PUMICE_FIELD(Maximizer, header), PUMICE_FIELD(Maximizer, input_buf), PUMICE_FIELD(Maximizer, output_buf),
        PUMICE_FIELD(Maximizer, width), PUMICE_FIELD(Maximizer, height), PUMICE_FIELD(Maximizer, nclass)}}};
}

#undef PUMICE_FIELD

using FieldTuple = py::typing::Tuple<size_t, py::str, size_t>;
using StructureTuple = py::typing::Tuple<size_t, py::typing::Dict<py::str, FieldTuple>>;

py::typing::Dict<py::str, StructureTuple> make_structure_table() {
  py::dict table;
  for (const StructDescription& structure : list_structures()) {
    py::dict fields;
    for (const StructField& item : structure.fields) fields[item.name] = py::make_tuple(item.offset, item.format, item.count);
    table[structure.name] = py::make_tuple(structure.size, fields);
  }
  return table;
}

// Returns the values of enumeration fields by name.
py::typing::Dict<py::str, int> make_constant_table() {
  using dv::Activation;
  using dv::ConvKind;
  using dv::PoolKind;
  const auto code = [](auto value) { return static_cast<int>(value); };
  const std::pair<const char*, int> all[] = {{"DEV_CONV", DMP_DV_DEV_CONV},
                                             {"DEV_FC", DMP_DV_DEV_FC},
                                             {"DEV_IPU", DMP_DV_DEV_IPU},
                                             {"DEV_MAXIMIZER", DMP_DV_DEV_MAXIMIZER},
                                             {"RGBA8888", DMP_DV_RGBA8888},
                                             {"RGB888", DMP_DV_RGB888},
                                             {"RGBFP16", DMP_DV_RGBFP16},
                                             {"LUT", DMP_DV_LUT},
                                             {"CNV_FP16_SUB", DMP_DV_CNV_FP16_SUB},
                                             {"CNV_FP16_DIV_255", DMP_DV_CNV_FP16_DIV_255},
                                             {"WEIGHTS_TRANSPOSED", dv::kWeightsTransposed},
                                             {"CONVOLUTION", code(ConvKind::convolution)},
                                             {"DEPTHWISE", code(ConvKind::depthwise)},
                                             {"DECONVOLUTION", code(ConvKind::deconvolution)},
                                             {"DEPTHWISE_DECONVOLUTION", code(ConvKind::depthwise_deconvolution)},
                                             {"POOL_MAX", code(PoolKind::maximum)},
                                             {"POOL_AVERAGE", code(PoolKind::average)},
                                             {"UPSAMPLE", code(PoolKind::upsample)},
                                             {"ACT_TANH", code(Activation::tanh)},
                                             {"ACT_LEAKY_RELU", code(Activation::leaky_relu)},
                                             {"ACT_SIGMOID", code(Activation::sigmoid)},
                                             {"ACT_PRELU", code(Activation::prelu)},
                                             {"ACT_ELU", code(Activation::elu)},
                                             {"ACT_RELU6", code(Activation::relu6)}};
  py::dict constants_by_name;
  for (const auto& [name, value] : all) constants_by_name[name] = value;
  return constants_by_name;
}

py::typing::Dict<py::str, int> make_device_info_dict(const DvContextHandle& self) {
  const dmp_dv_info_v0& info = self.get()->info();
  py::dict result;
  result["ub_size"] = info.ub_size;
  result["max_kernel_size"] = info.max_kernel_size;
  result["conv_freq"] = info.conv_freq;
  result["fc_freq"] = info.fc_freq;
  result["max_fc_vector_size"] = info.max_fc_vector_size;
  return result;
}

void bind_dv_context(py::module_& module) {
  py::class_<DvContextHandle> class_binding(module, "DvContext", "A device for dv commands.");
  class_binding
      .def(py::init([](const std::shared_ptr<Context>& device, bool strict, bool separate) {
             return DvContextHandle{std::make_shared<dv::Context>(device, strict, separate), "Context"};
           }),
           py::arg("device").none(false), py::arg("strict") = false, py::arg("separate") = false)
      .def_property_readonly(
          "device", [](const DvContextHandle& self) { return self.get()->device(); }, "The underlying Context.")
      .def_property_readonly(
          "strict", [](const DvContextHandle& self) { return self.get()->strict(); },
          "Whether lists reject commands that the vendor's hardware does not support.")
      .def_property_readonly("info", &make_device_info_dict, "Properties of the device by name.")
      .def_property_readonly(
          "last_error", [](const DvContextHandle& self) { return self.get()->last_error(); },
          "Text of the last error in its memories and lists; initially empty.")
      .def_property_readonly("info_string", [](const DvContextHandle& self) { return self.get()->info_string(); })
      .def(
          "device_exists", [](const DvContextHandle& self, int type) { return self.get()->has_device(type); }, py::arg("dev_type_id"),
          "Return whether a device of this kind exists. Raise BindingError for an unknown kind.");
  bind_lifetime<dv::Context>(class_binding);
}

// Binds creation and mapping of memory.
void bind_memory_mapping(py::class_<DvMemoryHandle>& class_binding) {
  class_binding
      .def(py::init([](const DvContextHandle& context, uint64_t size) {
             const auto owner = context.get();
             return DvMemoryHandle{call_without_gil(owner, [&] { return dv::Memory::create(owner, size); }), "Memory"};
           }),
           py::arg("context"), py::arg("size"),
           "Allocate memory with undefined content.\n"
           "size: in bytes.\n"
           "Raise BindingError if it is 0, OutOfMemoryError.")
      .def_property_readonly(
          "size", [](const DvMemoryHandle& self) { return self.get()->bytes(); }, "Size in bytes, a multiple of 4096.")
      .def_property_readonly(
          "handle", [](const DvMemoryHandle& self) { return self.get()->handle(); }, "Handle of the memory in raw commands.")
      .def_property_readonly("mapped", [](const DvMemoryHandle& self) { return self.get()->mapped(); })
      .def("map", &map_memory,
           "Map the memory and return all of it as a uint8 NumPy array. Repeated calls return the same memory until unmap().")
      .def(
          "unmap",
          [](const DvMemoryHandle& self) {
            const auto memory = self.get();
            call_without_gil(memory->context(), [&] { memory->unmap(); });
          },
          "End any sync and unmap the memory. Idempotent.");
}

// Binds synchronisation between host and device.
void bind_memory_syncs(py::class_<DvMemoryHandle>& class_binding) {
  class_binding
      .def(
          "sync_start",
          [](const DvMemoryHandle& self, bool read, bool write) {
            const auto memory = self.get();
            call_without_gil(memory->context(), [&] { memory->sync_start(read, write); });
          },
          py::arg("read") = true, py::arg("write") = true,
          "Begin host access and make device writes visible to the host. Raise BindingError if the memory is not mapped, or if neither "
          "read nor write is requested.")
      .def(
          "sync_end",
          [](const DvMemoryHandle& self) {
            const auto memory = self.get();
            call_without_gil(memory->context(), [&] { memory->sync_end(); });
          },
          "End host access and make host writes visible to the device.")
      .def(
          "to_device",
          [](const DvMemoryHandle& self, uint64_t offset, uint64_t size) {
            const auto memory = self.get();
            call_without_gil(memory->context(), [&] { memory->to_device(offset, size); });
          },
          py::arg("offset"), py::arg("size"),
          "Make a byte range written by the host visible to the device immediately. Raise BindingError if it is out of range or the memory "
          "is not mapped.")
      .def(
          "to_cpu",
          [](const DvMemoryHandle& self, uint64_t offset, uint64_t size) {
            const auto memory = self.get();
            call_without_gil(memory->context(), [&] { memory->to_cpu(offset, size); });
          },
          py::arg("offset"), py::arg("size"),
          "Make a byte range written by the device visible to the host immediately. Raise BindingError if it is out of range or the memory "
          "is not mapped.");
}

void bind_dv_memory(py::module_& module) {
  py::class_<DvMemoryHandle> class_binding(module, "DvMemory", "Page-granular memory that commands refer to and the host can map.");
  bind_memory_mapping(class_binding);
  bind_memory_syncs(class_binding);
  bind_lifetime<dv::Memory>(class_binding);
  module.def("dv_total_size", &dv::Memory::total_bytes, "Return the total bytes of all dv memories in this process.");
}

// Binds commands and execution of lists.
void bind_list_commands(py::class_<DvListHandle>& class_binding) {
  class_binding
      .def(py::init([](const DvContextHandle& context) {
             return DvListHandle{std::make_shared<dv::CommandList>(context.get()), "CommandList"};
           }),
           py::arg("context"))
      .def(
          "add_raw",
          [](const DvListHandle& self, const py::bytes& raw) {
            const auto list = self.get();
            const auto bytes = get_raw_bytes(raw);
            call_without_gil(list->context(), [&] {
              list->add(bytes, [&](uint64_t handle) { return dv::Memory::find(*list->context()->device(), handle); });
            });
          },
          py::arg("raw"), "Check and add a raw command, and keep its memories alive. Raise BindingError naming the run and the field.")
      .def(
          "commit",
          [](const DvListHandle& self) {
            const auto list = self.get();
            call_without_gil(list->context(), [&] { list->commit(check_signals); });
          },
          "Prepare the list for execution and unpack weights. Executions unpack them again if the host has published their memory since "
          "(sync_end, to_device, unmap). Weights written by device commands, in this list or another, are unpacked on the device at every "
          "execution.\n"
          "Raise StateError if called twice, BindingError if the list is empty.")
      .def_property_readonly("committed", [](const DvListHandle& self) { return self.get()->committed(); })
      .def(
          "exec",
          [](const DvListHandle& self) {
            const auto list = self.get();
            return call_without_gil(list->context(), [&] { return list->exec(check_signals); });
          },
          "Enqueue one execution and return its id. Raise StateError before commit().")
      .def(
          "wait",
          [](const DvListHandle& self, int64_t id, std::optional<double> timeout) {
            const auto list = self.get();
            call_without_gil(list->context(), [&] { list->wait(id, timeout, check_signals); });
          },
          py::arg("exec_id"), py::arg("timeout") = py::none(),
          "Wait for an execution.\n"
          "timeout: in seconds.\n"
          "Raise TimeoutError, DeviceLostError, BindingError for an unknown id.");
}

// Binds execution times of lists.
void bind_list_times(py::class_<DvListHandle>& class_binding) {
  class_binding
      .def_property_readonly(
          "last_exec_seconds",
          [](const DvListHandle& self) {
            const auto list = self.get();
            return call_without_gil(list->context(), [&] { return list->last_exec_seconds(); });
          },
          "Device time in seconds of the execution waited for last; initially 0.")
      .def_property_readonly(
          "last_exec_time",
          [](const DvListHandle& self) {
            const auto list = self.get();
            return call_without_gil(list->context(), [&] { return list->last_exec_time(); });
          },
          "last_exec_seconds in whole microseconds, like the vendor's function of this name.")
      .def_property_readonly(
          "dispatch_count",
          [](const DvListHandle& self) {
            const auto list = self.get();
            return call_without_gil(list->context(), [&] { return list->dispatch_count(); });
          },
          "Number of kernels in an execution.")
      .def("__len__", [](const DvListHandle& self) { return self.get()->size(); });
}

void bind_dv_list(py::module_& module) {
  py::class_<DvListHandle> class_binding(module, "DvCommandList",
                                         "A list of commands: checked when added, committed once, executed many times.");
  bind_list_commands(class_binding);
  bind_list_times(class_binding);
  bind_lifetime<dv::CommandList>(class_binding);
}

}  // namespace

void bind_dv(py::module_& module) {
  bind_dv_context(module);
  bind_dv_memory(module);
  bind_dv_list(module);
  module.def("dv_version_string", &dv::get_version_string);
  module.def("dv_constants", &make_constant_table, "Return the constants used in command fields, by name.");
  module.def("dv_structures", &make_structure_table,
             "Return the size and fields of each raw structure by name; each field has an offset, format and count.");
  module.def(
      "dv_required_bytes", [](const py::bytes& raw, bool strict) { return dv::compute_required_bytes(get_raw_bytes(raw), strict); },
      py::arg("raw"), py::arg("strict") = false);
  module.def(
      "dv_run_outputs",
      [](const py::bytes& raw, bool strict) {
        std::vector<std::tuple<uint32_t, uint32_t, uint32_t>> outputs;
        for (const dv::Extent& item : dv::compute_run_outputs(get_raw_bytes(raw), strict))
          outputs.emplace_back(item.width, item.height, item.channels);
        return outputs;
      },
      py::arg("raw"), py::arg("strict") = false);
}

}  // namespace pumice
