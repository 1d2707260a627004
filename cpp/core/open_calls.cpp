#include "core/open_calls.h"

#include <atomic>

namespace pumice {
namespace {

std::atomic<int> open_calls{0};

}  // namespace

OpenCall::OpenCall() {
  ++open_calls;
}

OpenCall::~OpenCall() {
  --open_calls;
}

bool has_open_calls() {
  return open_calls > 0;
}

}  // namespace pumice
