#include "bindings.h"

PYBIND11_MODULE(_pumice, module) {
  module.doc() = "The pumice engine: compute kernels and neural networks on any Vulkan device.";
  module.attr("__version__") = PUMICE_VERSION;
  pumice::bind_errors(module);
  pumice::bind_core(module);
  pumice::bind_context(module);
  pumice::bind_device_visibility(module);
  auto buffer = pumice::bind_buffer(module);
  pumice::bind_tensor(module);
  pumice::bind_memory_sharing(module, buffer);
  pumice::bind_image(module);
  pumice::bind_shader(module);
  pumice::bind_messages(module);
  pumice::bind_kernel(module);
  pumice::bind_dispatch(module);
  pumice::bind_profile(module);
  pumice::bind_operators(module);
  pumice::bind_graph(module);
  pumice::bind_nnapi(module);
  pumice::bind_dv(module);
  pumice::bind_dv_packing(module);
  pumice::bind_dv_layout(module);
}
