// The process-wide last error message.
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <new>

#include "dv/c/c_api_handles.h"

namespace pumice::dv {
namespace {

constexpr size_t kMessageBytes = 256;

struct LastErrorMessage {
  std::mutex mutex;  // guards writers only: a concurrent reader may see a mix of two messages
  char text[kMessageBytes] = "";
};

LastErrorMessage& get_last_error() {
  static LastErrorMessage* const instance = new LastErrorMessage;  // never freed, because programs may call at exit
  return *instance;
}

bool is_verbose() {
  static const bool verbose = [] {
    const char* const value = std::getenv("VERBOSITY");
    return value && std::atoi(value) >= 1;
  }();
  return verbose;
}

}  // namespace

void set_error(const std::string& text) {
  LastErrorMessage& last = get_last_error();
  const std::lock_guard lock(last.mutex);
  std::snprintf(last.text, sizeof last.text, "%s", text.c_str());
}

int handle_exception() {
  try {
    throw;
  } catch (const DvError& error) {
    set_error(error.what());
    return error.code;
  } catch (const OutOfMemoryError& error) {
    set_error(error.what());
    return ENOMEM;
  } catch (const std::bad_alloc&) {
    set_error("out of host memory");
    return ENOMEM;
  } catch (const std::exception& error) {
    set_error(error.what());
  }
  return kRejected;
}

}  // namespace pumice::dv

const char* dmp_dv_get_last_error_message(void) {
  return pumice::dv::get_last_error().text;
}

void dmp_dv_set_last_error_message(const char* format, ...) {
  auto& last = pumice::dv::get_last_error();
  const std::lock_guard lock(last.mutex);
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(last.text, sizeof last.text, format, arguments);
  va_end(arguments);
  if (pumice::dv::is_verbose()) std::fprintf(stderr, "%s\n", last.text);
}
