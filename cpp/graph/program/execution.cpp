#include "graph/program/execution.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "core/number_format.h"
#include "core/signal_blocker.h"

namespace pumice {
namespace {

constexpr auto kSignalPeriod = std::chrono::milliseconds(50);

double seconds_between(std::chrono::steady_clock::time_point begin, std::chrono::steady_clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

size_t find_value_index(const std::vector<ProgramValue>& values, const std::string& name, const char* kind, const std::string& program) {
  const auto found = std::ranges::find(values, name, &ProgramValue::name);
  if (found == values.end())
    throw BindingError("K4", std::string(kind) + " '" + name + "'", name, std::string("an ") + kind + " of program '" + program + "'",
                       "'" + name + "'");
  return static_cast<size_t>(found - values.begin());
}

void check_dtype(const ProgramValue& value, DType actual, const char* kind) {
  if (value.dtype != actual)
    throw BindingError("K5", std::string(kind) + " '" + value.name + "'", value.name, "an array of " + std::string(name(value.dtype)),
                       "one of " + std::string(name(actual)));
}

bool is_static_shape(const std::optional<Shape>& shape) {
  return shape && std::ranges::find(*shape, kUnknownSize) == shape->end();
}

// Returns the smaller of two optional times; nullopt if neither is set.
std::optional<double> min_timeout(std::optional<double> a, std::optional<double> b) {
  return a && b ? std::min(*a, *b) : a ? a : b;
}

}  // namespace

bool Event::done() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

std::exception_ptr Event::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

void Event::wait(std::optional<double> timeout_seconds, const std::function<void()>& interrupted) const {
  const auto begin = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  while (!done_) {
    const double left = timeout_seconds ? *timeout_seconds - seconds_between(begin, std::chrono::steady_clock::now()) : 1e9;
    if (left <= 0)
      throw TimeoutError("an execution has not finished after " + format_general(*timeout_seconds) + " s; it is still running", true);
    ended_.wait_for(lock, std::min<std::chrono::duration<double>>(kSignalPeriod, std::chrono::duration<double>(left)));
    if (done_ || !interrupted) continue;
    lock.unlock();
    interrupted();
    lock.lock();
  }
  if (error_) std::rethrow_exception(error_);
}

void Event::finish(std::exception_ptr error) {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
    error_ = std::move(error);
  }
  ended_.notify_all();
}

Execution::Execution(std::shared_ptr<Program> program, bool measure, bool fill_memory_first)
    : program_(std::move(program)),
      measure_(measure),
      fill_memory_first_(fill_memory_first),
      inputs_(program_->inputs().size()),
      buffers_(program_->outputs().size()) {}

Execution::~Execution() {
  stop();
}

void Execution::stop() {
  stopping_ = true;
  if (thread_.joinable()) thread_.join();
  stopping_ = false;
}

Execution::State Execution::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

void Execution::check_idle(const char* caller) const {
  if (state_ == State::computation)
    throw StateError(std::string(caller) + " while this execution of '" + program_->name() + "' is running");
}

void Execution::set_input(const std::string& name, HostTensor value) {
  const size_t i = find_value_index(program_->inputs(), name, "input", program_->name());
  check_dtype(program_->inputs()[i], value.desc.dtype, "input");
  const std::lock_guard lock(mutex_);
  check_idle("set()");
  inputs_[i] = std::move(value);
  state_ = State::preparation;
}

void Execution::set_output(const std::string& name, std::optional<OutputBuffer> buffer) {
  const size_t j = find_value_index(program_->outputs(), name, "output", program_->name());
  if (buffer) check_dtype(program_->outputs()[j], buffer->dtype, "output");
  const std::lock_guard lock(mutex_);
  check_idle("set_output()");
  buffers_[j] = std::move(buffer);
  state_ = State::preparation;
}

void Execution::begin_computation() {
  const std::lock_guard lock(mutex_);
  check_idle("compute() or start()");
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (const std::string& name = program_->inputs()[i].name; !inputs_[i])
      throw BindingError("K3", "input '" + name + "'", name, "an array", "nothing");
  state_ = State::computation;
  succeeded_ = has_shapes_ = false;
}

void Execution::end_computation(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  state_ = State::completed;
  succeeded_ = !error;
}

void Execution::compute(const ExecutionSettings& settings, const std::function<void()>& interrupted) {
  const auto call_time = Clock::now();
  begin_computation();
  try {
    run({}, settings, call_time, interrupted);
  } catch (...) {
    end_computation(std::current_exception());
    throw;
  }
  end_computation({});
}

// Throws BindingError if an output has an unknown size and no buffer. The event of start() signals that results are ready, so their sizes
// must be known before.
void Execution::check_static_outputs() const {
  for (size_t j = 0; j < buffers_.size(); ++j) {
    const ProgramValue& output = program_->outputs()[j];
    if (buffers_[j] || is_static_shape(output.shape)) continue;
    GraphValue value;
    value.dtype = output.dtype, value.shape = output.shape;
    throw BindingError("K10", "output '" + output.name + "'", output.name, "a known shape or an array to write to, for start()",
                       to_string(value));
  }
}

std::shared_ptr<const Event> Execution::start(std::vector<std::shared_ptr<const Event>> wait_for, const ExecutionSettings& settings) {
  const auto call_time = Clock::now();
  for (const auto& event : wait_for)
    if (const auto error = event->error()) std::rethrow_exception(error);
  check_static_outputs();
  begin_computation();
  if (thread_.joinable()) thread_.join();  // joins at once, because the thread has already finished its work
  auto event = std::make_shared<Event>();
  const auto work = [this, event, waited = std::move(wait_for), settings, call_time] {
    std::exception_ptr error;
    try {
      run(waited, settings, call_time, [this] {
        if (stopping_) throw StateError("execution of '" + program_->name() + "' was stopped");
      });
    } catch (...) {
      error = std::current_exception();
    }
    end_computation(error);
    event->finish(error);
  };
  try {
    const SignalBlocker blocked;
    thread_ = std::thread([work] {
      set_thread_name("pumice run");
      work();
    });
  } catch (const std::system_error& error) {
    end_computation(std::current_exception());
    throw StateError(std::string("cannot start a thread for an execution: ") + error.what());
  }
  return event;
}

void Execution::run(const std::vector<std::shared_ptr<const Event>>& wait_for, const ExecutionSettings& settings,
                    Clock::time_point call_time, const std::function<void()>& interrupted) {
  const auto remaining = [](std::optional<double> seconds, Clock::time_point from) -> std::optional<double> {
    if (!seconds) return {};
    return std::max(0.0, *seconds - seconds_between(from, Clock::now()));
  };
  for (const auto& event : wait_for) event->wait(remaining(settings.timeout_seconds, call_time), interrupted);
  const auto fence = Clock::now();
  const auto left = [&] {
    return min_timeout(remaining(settings.timeout_seconds, call_time), remaining(settings.duration_seconds, fence));
  };
  if (left() == 0.0) throw TimeoutError("execution of '" + program_->name() + "': the time limit passed before it began", false);
  std::vector<ShapeView> shapes;
  std::vector<const std::byte*> values;
  for (const auto& input : inputs_) shapes.emplace_back(input->desc.shape), values.push_back(input->data);
  const auto lease =
      measure_ ? program_->make_lease_with_timestamps(shapes, values) : program_->acquire_lease(shapes, values, true, left(), interrupted);
  if (fill_memory_first_) lease->fill_memory(kFillPattern, interrupted);
  for (size_t i = 0; i < values.size(); ++i) lease->write_input(i, values[i]);
  const Submission submission = lease->start({left(), settings.loop_seconds, interrupted});
  submission.wait(left(), interrupted);
  const auto ended = Clock::now();
  read_results(*lease, [&] {
    if (interrupted) interrupted();
    if (left() == 0.0)
      throw TimeoutError("execution of '" + program_->name() + "': the results did not arrive within the time limit", true);
  });
  const double device = lease->device_seconds().value_or(0);
  const std::lock_guard lock(mutex_);
  report_ = lease->report();
  times_ = {device, seconds_between(call_time, ended), device, seconds_between(fence, ended)};
}

void Execution::read_results(const ExecutionLease& lease, const std::function<void()>& interrupted) {
  std::vector<Shape> shapes;
  std::vector<HostTensor> outputs;
  for (size_t j = 0; j < buffers_.size(); ++j) shapes.push_back(lease.output_desc(j).shape);
  {
    const std::lock_guard lock(mutex_);
    shapes_ = shapes;
    has_shapes_ = true;
  }
  const auto bytes_of = [&](size_t j) { return lease.output_desc(j).element_bytes(); };
  for (size_t j = 0; j < buffers_.size(); ++j)
    if (buffers_[j] && buffers_[j]->bytes < bytes_of(j))
      throw OutputSizeError(program_->outputs()[j].name, shapes[j], bytes_of(j), buffers_[j]->bytes);
  for (size_t j = 0; j < buffers_.size(); ++j) {
    const TensorDesc packed(lease.output_desc(j).dtype, shapes[j]);
    if (!buffers_[j]) {
      const auto elements = std::make_shared<std::vector<std::byte>>(packed.bytes());
      lease.read_output(j, elements->data(), interrupted);
      outputs.push_back({packed, elements, elements->data()});
      continue;
    }
    lease.read_output(j, buffers_[j]->data, interrupted);
    outputs.push_back({packed, buffers_[j]->owner, buffers_[j]->data});
  }
  const std::lock_guard lock(mutex_);
  outputs_ = std::move(outputs);
}

const Shape& Execution::output_shape(size_t j) const {
  const std::lock_guard lock(mutex_);
  if (state_ != State::completed || !has_shapes_) throw StateError("the shapes of outputs are known once an execution has completed");
  return shapes_[j];
}

const HostTensor& Execution::output(size_t j) const {
  const std::lock_guard lock(mutex_);
  if (state_ != State::completed || !succeeded_) throw StateError("outputs are available once an execution has completed without an error");
  return outputs_[j];
}

bool Execution::has_buffer(size_t j) const {
  return buffers_[j].has_value();
}

RunReport Execution::report() const {
  const std::lock_guard lock(mutex_);
  if (state_ != State::completed || !succeeded_)
    throw StateError("the report is available once an execution has completed without an error");
  return report_;
}

ExecutionTimes Execution::times() const {
  const std::lock_guard lock(mutex_);
  if (!measure_) throw StateError("this execution does not measure its time: program.execution(measure=True)");
  if (state_ != State::completed || !succeeded_) throw StateError("times are known once an execution has completed without an error");
  return times_;
}

void Burst::compute(Execution& execution, const ExecutionSettings& settings, const std::function<void()>& interrupted) {
  if (execution.program() != program_)
    throw BindingError("C10", "execution", program_->name(), "an execution of the burst's program",
                       "one of '" + execution.program()->name() + "'");
  const std::unique_lock lock(busy_, std::try_to_lock);
  if (!lock.owns_lock()) throw StateError("another execution of this burst of '" + program_->name() + "' is under way");
  execution.compute(settings, interrupted);
}

}  // namespace pumice
