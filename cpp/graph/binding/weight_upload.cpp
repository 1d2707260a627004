#include "graph/binding/weight_upload.h"

#include <algorithm>
#include <deque>
#include <future>
#include <optional>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/thread_pool.h"
#include "dispatch/command_list.h"
#include "graph/binding/arena.h"

namespace pumice {
namespace {

constexpr uint64_t kMaxStagingBytes = uint64_t{48} << 20;  // maximum staging buffer size, unless a single weight is larger
// Batches in the staging buffer: one is read from the file, one waits, one is copied by the device.
constexpr size_t kStagingBatches = 3;
constexpr uint64_t kReadChunkBytes = uint64_t{1} << 20;  // bytes per file read
constexpr size_t kMaxReaderThreads = 8;
constexpr uint64_t kMinBackgroundBytes = kStagingChunkBytes * kStagingBatches;  // minimum size for an allocation on a background thread

// Weights that are staged and uploaded together.
struct UploadBatch {
  size_t first = 0, end = 0;      // sources [first, end)
  std::vector<uint64_t> offsets;  // byte offset of each source in the batch
  uint64_t bytes = 0;
  uint64_t begin = 0;                      // byte offset of the batch in the staging buffer
  std::vector<std::future<void>> reading;  // pending file reads
};

uint64_t get_staging_bytes(const WeightSource& source) {
  return round_up(source.bytes(), kArenaAlignment);
}

// Splits the sources into batches of at most kStagingChunkBytes bytes; a larger source gets its own batch. Returns at least one batch.
std::vector<UploadBatch> split_into_batches(const std::vector<WeightSource>& sources) {
  std::vector<UploadBatch> batches(1);
  for (size_t i = 0; i < sources.size(); ++i) {
    const uint64_t bytes = get_staging_bytes(sources[i]);
    if (i > 0 && batches.back().bytes + bytes > kStagingChunkBytes) batches.push_back({.first = i});
    UploadBatch& batch = batches.back();
    batch.offsets.push_back(batch.bytes);
    batch.bytes += bytes;
    batch.end = i + 1;
  }
  return batches;
}

// The staging buffer is a ring buffer: threads read the next batches from files while the device copies one.
class WeightUploader {
 public:
  WeightUploader(UploadMemory& memory, const std::string& name, size_t inputs, Weights& weights,
                 const std::shared_ptr<InitializationState>& state)
      : memory_(memory),
        context_(memory.context()),
        name_(name),
        inputs_(inputs),
        weights_(weights),
        persistent_(memory.allocate_persistent(weights.initialization->persistent_bytes)),
        state_(state),
        steps_(weights.sources.size()),
        batches_(split_into_batches(weights.sources)) {
    size_t source = 0;
    for (const PlannedStep& step : weights.initialization->steps) {
      for (const PlannedOperand& operand : step.operands)
        if (operand.memory == MemoryKind::input) source = operand.index - inputs_;
      steps_[source].push_back(&step);  // a step without a source reads the previous step's output
    }
  }

  BufferRange run(const CompileProgress& progress) {
    uint64_t largest = 0;
    progress_ = &progress;
    for (const UploadBatch& batch : batches_) total_ += batch.bytes, largest = std::max(largest, batch.bytes);
    staging_ = memory_.get_staging(std::min(total_, 2 * largest),
                                   std::max(largest, std::min({total_, largest * kStagingBatches, kMaxStagingBytes})));
    readers_.emplace(std::min<size_t>(kMaxReaderThreads, total_ / kStagingChunkBytes));
    for (UploadBatch& batch : batches_) {
      if (progress) progress("weights", done_, total_);
      wait_for_space(batch);
      start_reading(batch);
      // Submit the previous batch only now, so that threads read this batch while the host waits for the previous one.
      if (unsubmitted_ > 1) submit_next_batch();
      done_ += batch.bytes;
    }
    while (unsubmitted_ > 0) submit_next_batch();
    while (!running_.empty()) wait_for_oldest_submission();
    return persistent_.get();
  }

 private:
  // Waits until the batch fits in the staging buffer. Batches are placed in order and wrap around at the end.
  void wait_for_space(UploadBatch& batch) {
    while (!try_place_batch(batch)) {
      if (running_.empty()) submit_next_batch();
      wait_for_oldest_submission();
    }
  }

  bool try_place_batch(UploadBatch& batch) const {
    const size_t staged = running_.size() + unsubmitted_, next = static_cast<size_t>(&batch - batches_.data());
    if (staged == 0) return true;  // an empty staging buffer fits any batch
    const uint64_t tail = batches_[next - staged].begin, head = batches_[next - 1].begin + batches_[next - 1].bytes;
    const bool wraps = head <= tail;
    if (head + batch.bytes <= (wraps ? tail : staging_->bytes()))
      batch.begin = head;
    else if (!wraps && batch.bytes <= tail)
      batch.begin = 0;
    else
      return false;
    return true;
  }

  void start_reading(UploadBatch& batch) {
    for (size_t i = batch.first; i < batch.end; ++i) {
      const WeightSource& source = weights_.sources[i];
      std::byte* const target = staging_->map() + batch.begin + batch.offsets[i - batch.first];
      const uint64_t bytes = source.slot.desc->element_bytes();
      for (uint64_t done = 0; done < bytes; done += kReadChunkBytes)
        batch.reading.push_back(readers_->add(
            [&source, target, done, count = std::min(kReadChunkBytes, bytes - done)] { source.write_to(target, done, count); }));
    }
    ++unsubmitted_;
  }

  void submit_next_batch() {
    UploadBatch& batch = batches_[submitted_];
    for (auto& pending_read : batch.reading) pending_read.get();
    batch.reading.clear();
    for (size_t i = batch.first; i < batch.end; ++i) weights_.sources[i].constant = HostTensor{weights_.sources[i].constant.desc};
    ++submitted_, --unsubmitted_;
    submit_batch(batch, submitted_ == batches_.size() ? state_ : std::make_shared<InitializationState>());
  }

  void wait_for_oldest_submission() {
    context_->wait(running_.front().id(), {}, [this] {
      if (progress_ && *progress_) (*progress_)("weights", done_, total_);  // may throw
    });
    running_.pop_front();
  }

  void submit_batch(const UploadBatch& batch, const std::shared_ptr<InitializationState>& state) {
    ExecutionPlan plan;
    plan.name = name_;
    plan.inputs.push_back({"weights", TensorDesc(DType::uint8, {static_cast<int64_t>(batch.bytes)}, {}, true)});
    plan.initialization = make_initialization_plan(batch);
    const auto target = std::make_shared<CompiledOperator>(context_, std::move(plan), state);
    const auto initializer = std::make_shared<Initializer>(context_, std::vector<std::shared_ptr<const CompiledOperator>>{target});
    BindingTable table(initializer);
    table.bind_inputs({BufferArray{BufferRange{staging_, batch.begin, batch.bytes}}});
    if (const BufferRange& persistent = persistent_.get(); persistent.buffer) table.bind_outputs({persistent});
    CommandList list(context_);
    list.dispatch(initializer, table);
    list.commit();
    running_.push_back(list.exec());
  }

  // Returns the initialisation steps of one batch, with operands relative to the single input buffer of the batch.
  std::shared_ptr<const InitializationPlan> make_initialization_plan(const UploadBatch& batch) const {
    auto plan = std::make_shared<InitializationPlan>();
    plan->persistent_bytes = weights_.initialization->persistent_bytes;
    for (size_t i = batch.first; i < batch.end; ++i)
      for (const PlannedStep* step : steps_[i])
        for (PlannedOperand& operand : plan->steps.emplace_back(*step).operands)
          if (operand.memory == MemoryKind::input) operand.index = 0, operand.byte_offset += batch.offsets[i - batch.first];
    return plan;
  }

  UploadMemory& memory_;
  std::shared_ptr<Context> context_;
  const std::string& name_;
  size_t inputs_;
  Weights& weights_;
  std::shared_future<BufferRange> persistent_;
  std::shared_ptr<InitializationState> state_;          // marked as initialised by the last batch
  std::vector<std::vector<const PlannedStep*>> steps_;  // initialisation steps, by the source they read
  std::vector<UploadBatch> batches_;
  const CompileProgress* progress_ = nullptr;  // called during run()
  uint64_t done_ = 0, total_ = 0;              // uploaded and total bytes
  std::shared_ptr<Buffer> staging_;
  size_t submitted_ = 0, unsubmitted_ = 0;  // counts of batches that were submitted, and that are being read
  std::deque<Submission> running_;
  std::optional<ThreadPool> readers_;  // last member, because its threads must end before the other members are destroyed
};

}  // namespace

UploadMemory::UploadMemory(std::shared_ptr<Context> context, uint64_t bytes) : context_(std::move(context)) {
  begin_staging(bytes);
}

void UploadMemory::begin_staging(uint64_t bytes) {
  if (bytes >= kMinBackgroundBytes && !pending_staging_.valid() && !staging_)
    pending_staging_ =
        run_in_background([owner = context_] { return Buffer::create(owner, kStagingChunkBytes * kStagingBatches, Heap::upload); });
}

void UploadMemory::preallocate(uint64_t device_bytes) {
  begin_staging(device_bytes);
  if (device_bytes < kMinBackgroundBytes || pending_persistent_.valid()) return;
  // The exact size is known only when weights are placed, so a margin is added to the estimate.
  device_bytes_ = device_bytes + device_bytes / 64 + kMinBackgroundBytes / 128;
  pending_persistent_ = run_in_background([owner = context_, bytes = device_bytes_, previous = pending_staging_] {
    if (previous.valid()) previous.wait();
    return Buffer::create(owner, bytes);
  });
}

std::shared_ptr<Buffer> UploadMemory::get_staging(uint64_t min_bytes, uint64_t new_bytes) {
  if (pending_staging_.valid()) staging_ = std::exchange(pending_staging_, {}).get();
  if (!staging_ || staging_->bytes() < min_bytes) staging_ = Buffer::create(context_, new_bytes, Heap::upload);
  return staging_;
}

std::shared_future<BufferRange> UploadMemory::allocate_persistent(uint64_t bytes) {
  const auto make = [owner = context_, bytes] { return bytes > 0 ? BufferRange{Buffer::create(owner, bytes), 0, bytes} : BufferRange{}; };
  if (const auto pending = std::exchange(pending_persistent_, {}); pending.valid()) {
    if (bytes <= device_bytes_ && device_bytes_ - bytes <= bytes / 20)
      return std::async(std::launch::deferred, [pending, make, bytes] {
        try {
          return BufferRange{pending.get(), 0, bytes};
        } catch (const OutOfMemoryError&) {  // a smaller allocation may fit
          return make();
        }
      });
    pending.wait();  // frees the buffer before the next allocation
  }
  return bytes >= kMinBackgroundBytes ? run_in_background(make) : std::async(std::launch::deferred, make);
}

BufferRange upload_weights(UploadMemory& memory, const std::string& name, size_t inputs, Weights& weights,
                           const std::shared_ptr<InitializationState>& state, const CompileProgress& progress) {
  return WeightUploader(memory, name, inputs, weights, state).run(progress);
}

}  // namespace pumice
