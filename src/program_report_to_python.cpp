// Converts program reports and observed tensors to Python.
#include "bindings.h"
#include "core/strided_copy.h"
#include "graph/region/intermediate_tensor_capture.h"
#include "graph/region/plan_report.h"

namespace pumice {
namespace {

std::string_view get_memory_kind_name(MemoryKind kind) {
  constexpr std::string_view names[] = {"none", "input", "output", "temporary", "persistent", "host"};
  return names[static_cast<size_t>(kind)];
}

}  // namespace

Record make_step_record(const StepReport& step) {
  py::list operands;
  for (const auto& operand : step.operands) {
    py::dict operand_record;
    operand_record["name"] = operand.name, operand_record["value"] = operand.value,
    operand_record["place"] = get_memory_kind_name(operand.memory), operand_record["index"] = operand.index;
    operand_record["begin"] = operand.begin, operand_record["end"] = operand.end, operand_record["read"] = operand.read,
    operand_record["write"] = operand.write;
    operands.append(operand_record);
  }
  Record result;
  result["label"] = step.label, result["kernel"] = step.kernel, result["wave"] = step.wave, result["barrier"] = step.barrier,
  result["operands"] = operands, result["groups"] = step.groups, result["folded"] = step.folded, result["additions"] = step.additions;
  if (step.choice) {
    py::dict choice;
    choice["kind"] = step.choice->kind, choice["own"] = step.choice->default_variant, choice["taken"] = step.choice->selected;
    choice["refused"] = step.choice->rejected, choice["variants"] = step.choice->variants, choice["spills"] = step.choice->spills;
    result["choice"] = choice;
  }
  return result;
}

py::array copy_to_packed_array(const CapturedTensor& tensor) {
  const TensorDesc& desc = tensor.desc;
  if (bits(desc.dtype) < 8) return unpack_elements(desc.dtype, desc.shape, {tensor.bytes, desc.element_bytes()});
  py::array array = make_empty_array(desc.dtype, desc.shape);
  const size_t element_bytes = bits(desc.dtype) / 8;
  copy_strided(element_bytes, desc.shape, tensor.bytes, to_byte_strides(desc.strides, element_bytes),
               static_cast<std::byte*>(array.mutable_data()), to_byte_strides(packed_strides(desc.shape), element_bytes));
  return array;
}

py::typing::List<Record> make_tensor_records(const IntermediateTensorCapture& run) {
  py::typing::List<Record> tensors;
  for (const CapturedTensor& tensor : run.tensors()) {
    py::dict record;
    record["name"] = tensor.name, record["node"] = tensor.node, record["kernel"] = tensor.kernel, record["reads"] = tensor.reads;
    record["array"] = tensor.bytes ? py::object(copy_to_packed_array(tensor)) : py::none();
    record["bytes"] = tensor.desc.packed().bytes(), record["additions"] = tensor.additions;
    tensors.append(record);
  }
  return tensors;
}

}  // namespace pumice
