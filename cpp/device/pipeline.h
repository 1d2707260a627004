// Compute pipelines and their layouts.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "device/context.h"
#include "device/pipeline_executables.h"

struct VkPipeline_T;
struct VkPipelineLayout_T;
struct VkDescriptorSetLayout_T;

namespace pumice {

struct PipelineRecord;

enum class DescriptorKind : uint8_t { storage_buffer, uniform_buffer, storage_image, sampled_image };  // the last kind includes a sampler
inline constexpr size_t kDescriptorKinds = 4;

struct DescriptorBinding {
  uint32_t number = 0;
  DescriptorKind kind = DescriptorKind::storage_buffer;
  uint32_t element = 0;  // array index; elements of an array are consecutive
};

struct SpecializationConstant {
  uint32_t id = 0;
  uint32_t bytes = 4;  // 4 or 8
  uint64_t bits = 0;
};

struct PipelineDesc {
  std::string name;
  std::span<const uint32_t> spirv;
  std::vector<DescriptorBinding> bindings;  // one per resource: first buffers, then images
  uint32_t push_bytes = 0;
  std::vector<SpecializationConstant> specialization;
  bool is_robust = false;                   // enables robust buffer access if supported (pipelineRobustness)
  uint32_t subgroup_size = 0;               // required size, with full subgroups; 0: chosen by the driver
  bool counted = true;                      // counts in pipelines_created() and list_distinct_pipelines()
  CaptureMode capture = CaptureMode::none;  // other values need pipelineExecutableInfo and bypass the pipeline cache
  // For PipelineRecord only.
  std::string storage;
  std::array<uint32_t, 3> local_size{1, 1, 1};
  std::string constants;
};

// Returns the keys (shader, constants, subgroup size) of the distinct pipelines that this process created, so that the driver compiled.
std::vector<std::string> list_distinct_pipelines();

// Owns the Vulkan objects; may outlive its context.
class Pipeline {
 public:
  static std::shared_ptr<const Pipeline> create(Context& context, const PipelineDesc& desc);
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  VkPipeline_T* handle() const { return pipeline_; }  // null if record()->failure says why
  VkPipelineLayout_T* layout() const { return layout_; }
  VkDescriptorSetLayout_T* set_layout() const { return set_layout_; }
  const std::vector<DescriptorBinding>& bindings() const { return bindings_; }
  CaptureMode capture() const { return capture_; }
  // Set in compile-only contexts, except for uncounted pipelines.
  const std::shared_ptr<const PipelineRecord>& record() const { return record_; }
  // Whether the pipeline was ever submitted. Some drivers compile at the first dispatch, which inflates its time.
  bool has_run() const { return has_run_; }
  bool mark_run() const { return !has_run_.exchange(true); }  // true on the first call only

 private:
  Pipeline() = default;
  void compile(Context& context, const PipelineDesc& desc);
  void compile_and_record(Context& context, const PipelineDesc& desc);  // in a compile-only context
  std::shared_ptr<DeviceTable> vk_;
  std::vector<DescriptorBinding> bindings_;
  uint32_t push_bytes_ = 0;
  CaptureMode capture_ = CaptureMode::none;
  VkDescriptorSetLayout_T* set_layout_ = nullptr;
  VkPipelineLayout_T* layout_ = nullptr;
  VkPipeline_T* pipeline_ = nullptr;
  std::shared_ptr<const PipelineRecord> record_;
  mutable std::atomic<bool> has_run_{false};
};

}  // namespace pumice
