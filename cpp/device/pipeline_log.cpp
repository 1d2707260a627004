#include "device/pipeline_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <initializer_list>
#include <utility>

#include "core/error.h"
#include "device/context.h"
#include "device/context_state.h"
#include "device/pipeline_executables.h"

namespace pumice {
namespace {

struct PipelineLog {
  std::mutex mutex;  // held while a pipeline is compiled, so that at most one entry is open
  std::atomic<int> file{-1};
  std::set<std::string> skipped_keys;
};

PipelineLog& get_pipeline_log() {
  static auto* const log = new PipelineLog;
  return *log;
}

// Appends a line. The file is opened with O_APPEND, and the line is written before the driver is called, so a crash does not lose it.
void append_line(std::initializer_list<std::string> fields) {
  std::string line;
  for (std::string field : fields) {
    std::ranges::replace_if(field, [](char c) { return c == '\t' || c == '\n' || c == '\r'; }, ' ');
    line += (line.empty() ? "" : "\t") + field;
  }
  line += '\n';
  if (write(get_pipeline_log().file, line.data(), line.size()) != static_cast<ssize_t>(line.size()))
    throw Error(std::string("the log of pipelines cannot be written: ") + std::strerror(errno));
}

}  // namespace

void open_pipeline_log(const std::string& path, std::set<std::string> skipped_keys) {
  PipelineLog& log = get_pipeline_log();
  const std::lock_guard lock(log.mutex);
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (file < 0) throw Error("the log of pipelines '" + path + "' cannot be opened: " + std::strerror(errno));
  if (const int previous = log.file.exchange(file); previous >= 0) close(previous);
  log.skipped_keys = std::move(skipped_keys);
}

PipelineLogEntry::PipelineLogEntry(const PipelineRecord& record) : key_(record.key) {
  PipelineLog& log = get_pipeline_log();
  if (log.file < 0) return;
  lock_ = std::unique_lock(log.mutex);
  is_skipped_ = log.skipped_keys.contains(key_);
  const auto& size = record.local_size;
  if (!is_skipped_)
    append_line({"begin", key_, record.name, record.storage,
                 std::to_string(size[0]) + "x" + std::to_string(size[1]) + "x" + std::to_string(size[2]), record.constants});
}

void PipelineLogEntry::finish(const std::string& failure) {
  if (is_logged() && !is_skipped_) append_line({failure.empty() ? "end" : "fail", key_, failure});
}

void mark_pipeline_used(Context& context, const PipelineRecord& record) {
  ContextState& state = context.state();
  const std::lock_guard lock(state.mutex);
  state.used_pipelines.insert(&record);
}

bool is_pipeline_used(Context& context, const PipelineRecord& record) {
  ContextState& state = context.state();
  const std::lock_guard lock(state.mutex);
  return state.used_pipelines.contains(&record);
}

}  // namespace pumice
