#include "core/error.h"
#include "dv/lowering.h"
namespace pumice::dv {
void lower_ipu(Lowering&, const IpuCommand&) {
  throw UnsupportedError("ipu");
}
void lower_maximizer(Lowering&, const MaximizerCommand&) {
  throw UnsupportedError("maximizer");
}
}  // namespace pumice::dv
