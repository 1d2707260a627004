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

constexpr uint64_t kMaxStagingBytes = uint64_t{48} << 20;  // maximum size of the staging buffer, unless a single source is larger
// Batches in the staging buffer: one being read from the file, one waiting, one being copied by the device.
constexpr size_t kStagingBatches = 3;
constexpr uint64_t kReadChunkBytes = uint64_t{1} << 20;  // number of bytes that a thread reads at once
constexpr size_t kMaxReaderThreads = 8;
constexpr uint64_t kMinBackgroundBytes = kStagingChunkBytes * kStagingBatches;  // number of bytes that make a background thread worthwhile

// Sources that are staged together.
struct Batch {
  size_t first = 0, end = 0;      // range of sources
  std::vector<uint64_t> offsets;  // offset of each source, relative to the batch
  uint64_t bytes = 0;
  uint64_t begin = 0;                      // offset in the staging buffer
  std::vector<std::future<void>> reading;  // pending file reads
};

uint64_t staged_bytes(const WeightSource& source) {
  return round_up(source.bytes(), kArenaAlignment);
}

// Splits the sources into batches of at most kStagingChunkBytes bytes, or of a single larger source. Returns at least one batch.
std::vector<Batch> split_into_batches(const std::vector<WeightSource>& sources) {
  std::vector<Batch> batches(1);
  for (size_t i = 0; i < sources.size(); ++i) {
    const uint64_t bytes = staged_bytes(sources[i]);
    if (i > 0 && batches.back().bytes + bytes > kStagingChunkBytes) batches.push_back({.first = i});
    Batch& batch = batches.back();
    batch.offsets.push_back(batch.bytes);
    batch.bytes += bytes;
    batch.end = i + 1;
  }
  return batches;
}

// The staging buffer is a ring: while the device copies one batch, threads read the next ones from their files.
class Uploader {
 public:
  Uploader(UploadMemory& memory, const std::string& name, size_t inputs, Weights& weights,
           const std::shared_ptr<InitializationState>& state)
      : memory_(memory),
        context_(memory.context()),
        name_(name),
        inputs_(inputs),
        weights_(weights),
        persistent_(memory.persistent(weights.initialization->persistent_bytes)),
        state_(state),
        steps_(weights.sources.size()),
        batches_(split_into_batches(weights.sources)) {
    size_t source = 0;
    for (const PlannedStep& step : weights.initialization->steps) {
      for (const PlannedOperand& operand : step.operands)
        if (operand.place == MemoryKind::input) source = operand.index - inputs_;
      steps_[source].push_back(&step);  // a step without a source reads the previous step's output
    }
  }

  BufferRange run(const CompileProgress& progress) {
    uint64_t largest = 0;
    progress_ = &progress;
    for (const Batch& batch : batches_) total_ += batch.bytes, largest = std::max(largest, batch.bytes);
    staging_ =
        memory_.staging(std::min(total_, 2 * largest), std::max(largest, std::min({total_, largest * kStagingBatches, kMaxStagingBytes})));
    readers_.emplace(std::min<size_t>(kMaxReaderThreads, total_ / kStagingChunkBytes));
    for (Batch& batch : batches_) {
      if (progress) progress("weights", done_, total_);
      wait_for_space(batch);
      read(batch);
      // Submit the previous batch only now: while the host waits for its reads, threads already read this one.
      if (unsubmitted_ > 1) submit_next();
      done_ += batch.bytes;
    }
    while (unsubmitted_ > 0) submit_next();
    while (!running_.empty()) wait_for_first();
    return persistent_.get();
  }

 private:
  // Waits until the batch fits in the staging buffer. Batches are placed in order and wrap around at the end of the buffer.
  void wait_for_space(Batch& batch) {
    while (!try_place(batch)) {
      if (running_.empty()) submit_next();
      wait_for_first();
    }
  }

  bool try_place(Batch& batch) const {
    const size_t staged = running_.size() + unsubmitted_, next = static_cast<size_t>(&batch - batches_.data());
    if (staged == 0) return true;  // fits at the beginning
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

  void read(Batch& batch) {
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

  void submit_next() {
    Batch& batch = batches_[submitted_];
    for (auto& pending_read : batch.reading) pending_read.get();
    batch.reading.clear();
    for (size_t i = batch.first; i < batch.end; ++i) weights_.sources[i].constant = HostTensor{weights_.sources[i].constant.desc};
    ++submitted_, --unsubmitted_;
    submit(batch, submitted_ == batches_.size() ? state_ : std::make_shared<InitializationState>());
  }

  void wait_for_first() {
    context_->wait(running_.front().id(), {}, [this] {
      if (progress_ && *progress_) (*progress_)("weights", done_, total_);  // may throw
    });
    running_.pop_front();
  }

  void submit(const Batch& batch, const std::shared_ptr<InitializationState>& state) {
    Plan plan;
    plan.name = name_;
    plan.inputs.push_back({"weights", TensorDesc(DType::uint8, {static_cast<int64_t>(batch.bytes)}, {}, true)});
    plan.initialization = initialization_of(batch);
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

  // Returns the initialisation steps of a batch's sources, rebased to one input.
  std::shared_ptr<const InitializationPlan> initialization_of(const Batch& batch) const {
    auto plan = std::make_shared<InitializationPlan>();
    plan->persistent_bytes = weights_.initialization->persistent_bytes;
    for (size_t i = batch.first; i < batch.end; ++i)
      for (const PlannedStep* step : steps_[i])
        for (PlannedOperand& operand : plan->steps.emplace_back(*step).operands)
          if (operand.place == MemoryKind::input) operand.index = 0, operand.byte_offset += batch.offsets[i - batch.first];
    return plan;
  }

  UploadMemory& memory_;
  std::shared_ptr<Context> context_;
  const std::string& name_;
  size_t inputs_;
  Weights& weights_;
  std::shared_future<BufferRange> persistent_;
  std::shared_ptr<InitializationState> state_;          // state of the whole initialisation
  std::vector<std::vector<const PlannedStep*>> steps_;  // steps by the source that they read
  std::vector<Batch> batches_;
  const CompileProgress* progress_ = nullptr;  // called during run()
  uint64_t done_ = 0, total_ = 0;              // in bytes
  std::shared_ptr<Buffer> staging_;
  size_t submitted_ = 0, unsubmitted_ = 0;  // numbers of batches; the unsubmitted ones are being read
  std::deque<Submission> running_;
  std::optional<ThreadPool> readers_;  // last member: its threads must end before the members they use
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

void UploadMemory::expect(uint64_t device_bytes) {
  begin_staging(device_bytes);
  if (device_bytes < kMinBackgroundBytes || pending_persistent_.valid()) return;
  // The exact size is known later, when weights are placed; the margin over the estimate covers it.
  device_bytes_ = device_bytes + device_bytes / 64 + kMinBackgroundBytes / 128;
  pending_persistent_ = run_in_background([owner = context_, bytes = device_bytes_, previous = pending_staging_] {
    if (previous.valid()) previous.wait();
    return Buffer::create(owner, bytes);
  });
}

std::shared_ptr<Buffer> UploadMemory::staging(uint64_t min_bytes, uint64_t new_bytes) {
  if (pending_staging_.valid()) staging_ = std::exchange(pending_staging_, {}).get();
  if (!staging_ || staging_->bytes() < min_bytes) staging_ = Buffer::create(context_, new_bytes, Heap::upload);
  return staging_;
}

std::shared_future<BufferRange> UploadMemory::persistent(uint64_t bytes) {
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
    pending.wait();  // freed before another allocation
  }
  return bytes >= kMinBackgroundBytes ? run_in_background(make) : std::async(std::launch::deferred, make);
}

BufferRange upload_weights(UploadMemory& memory, const std::string& name, size_t inputs, Weights& weights,
                           const std::shared_ptr<InitializationState>& state, const CompileProgress& progress) {
  return Uploader(memory, name, inputs, weights, state).run(progress);
}

}  // namespace pumice
