// A file that logs the creation of pipelines, for a process that watches this one: a driver's compiler may crash or never return.
#pragma once

#include <mutex>
#include <set>
#include <string>

namespace pumice {

class Context;
struct PipelineRecord;

// From now on, pipelines of compile-only contexts are created one at a time, and lines of tab-separated fields are appended to this file:
// "begin", key, name, storage, local size, constants, before the driver compiles a pipeline; "end" or "fail", key, reason, after it. A
// pipeline that fails, or whose key is in `skipped_keys`, is left out of recordings instead of throwing. Throws Error if the file cannot be
// opened.
void open_pipeline_log(const std::string& path, std::set<std::string> skipped_keys);

// The log entry of one pipeline. Holds the log's lock while it exists; does nothing without a log.
class PipelineLogEntry {
 public:
  explicit PipelineLogEntry(const PipelineRecord& record);
  bool is_logged() const { return lock_.owns_lock(); }
  bool is_skipped() const { return is_skipped_; }
  void finish(const std::string& failure);

 private:
  std::unique_lock<std::mutex> lock_;
  std::string key_;
  bool is_skipped_ = false;
};

// Compile-only contexts: whether a recording dispatches the pipeline. Others are variants that were compiled and then rejected.
void mark_pipeline_used(Context& context, const PipelineRecord& record);
bool is_pipeline_used(Context& context, const PipelineRecord& record);

}  // namespace pumice
