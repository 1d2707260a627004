#include "graph/weight_upload.h"

#include <algorithm>
#include <deque>
#include <future>
#include <optional>
#include <utility>
#include <vector>

#include "core/thread_pool.h"
#include "dispatch/command_list.h"
#include "graph/arena.h"

namespace pumice {
namespace {

constexpr uint64_t kMostStaged = uint64_t{48} << 20;  // bytes; more only where a single source has more
constexpr size_t kBatchesAtOnce = 4;                  // in the staging buffer: read from the file, waiting, read by the device
constexpr uint64_t kReadAtOnce = uint64_t{1} << 20;   // bytes, by one thread
constexpr size_t kMostThreads = 8;

// Sources that are staged together, and the steps that read them there.
struct Batch {
  size_t first = 0, end = 0;      // sources
  std::vector<uint64_t> offsets;  // of the sources, from the batch's own beginning
  uint64_t bytes = 0;
  uint64_t begin = 0;                      // in the staging buffer
  std::vector<std::future<void>> reading;  // of its parts
};

uint64_t staged_bytes(const WeightSource& source) {
  return round_up(source.bytes(), kArenaAlignment);
}

// Each of at most kStagedAtOnce, or a single source; at least one.
std::vector<Batch> batches_of(const std::vector<WeightSource>& sources) {
  std::vector<Batch> batches(1);
  for (size_t i = 0; i < sources.size(); ++i) {
    const uint64_t bytes = staged_bytes(sources[i]);
    if (i > 0 && batches.back().bytes + bytes > kStagedAtOnce) batches.push_back({.first = i});
    Batch& batch = batches.back();
    batch.offsets.push_back(batch.bytes);
    batch.bytes += bytes;
    batch.end = i + 1;
  }
  return batches;
}

// The staging buffer is a ring: while the device reads one batch, threads read the next ones from where the constants lie.
class Uploader {
 public:
  Uploader(std::shared_ptr<Context> context, const std::string& name, size_t inputs, Weights& weights, UploadStaging& staging,
           std::shared_future<BufferRange> persistent, const std::shared_ptr<InitializationState>& state)
      : context_(std::move(context)),
        name_(name),
        inputs_(inputs),
        weights_(weights),
        given_(staging),
        persistent_(std::move(persistent)),
        state_(state),
        steps_(weights.sources.size()),
        batches_(batches_of(weights.sources)) {
    size_t source = 0;
    for (const PlannedStep& step : weights.initialization->steps) {
      for (const PlannedOperand& operand : step.operands)
        if (operand.place == Place::input) source = operand.index - inputs_;
      steps_[source].push_back(&step);  // one without a source reads what the step before it has made
    }
  }

  void run(const CompileProgress& progress) {
    uint64_t done = 0, total = 0, largest = 0;
    for (const Batch& batch : batches_) total += batch.bytes, largest = std::max(largest, batch.bytes);
    staging_ = given_.take(std::min(total, 2 * largest), std::max(largest, std::min({total, largest * kBatchesAtOnce, kMostStaged})));
    readers_.emplace(std::min<size_t>(kMostThreads, total / kStagedAtOnce));
    for (Batch& batch : batches_) {
      if (progress) progress("weights", done, total);
      make_room(batch);
      read(batch);
      if (unsubmitted_ > 1) submit_next();
      done += batch.bytes;
    }
    while (unsubmitted_ > 0) submit_next();
    while (!running_.empty()) wait_for_first();
  }

 private:
  // Those that are in the staging buffer lie there in their order, one after the other and from its end to its beginning.
  void make_room(Batch& batch) {
    while (!place(batch)) {
      if (running_.empty()) submit_next();
      wait_for_first();
    }
  }

  bool place(Batch& batch) const {
    const size_t staged = running_.size() + unsubmitted_, next = static_cast<size_t>(&batch - batches_.data());
    if (staged == 0) return true;  // at the beginning
    const uint64_t tail = batches_[next - staged].begin, head = batches_[next - 1].begin + batches_[next - 1].bytes;
    const bool is_cut = head <= tail;
    if (head + batch.bytes <= (is_cut ? tail : staging_->bytes()))
      batch.begin = head;
    else if (!is_cut && batch.bytes <= tail)
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
      for (uint64_t done = 0; done < bytes; done += kReadAtOnce)
        batch.reading.push_back(
            readers_->add([&source, target, done, count = std::min(kReadAtOnce, bytes - done)] { source.write_to(target, done, count); }));
    }
    ++unsubmitted_;
  }

  void submit_next() {
    Batch& batch = batches_[submitted_];
    for (auto& part : batch.reading) part.get();
    batch.reading.clear();
    for (size_t i = batch.first; i < batch.end; ++i) weights_.sources[i].constant = HostTensor{weights_.sources[i].constant.desc};
    ++submitted_, --unsubmitted_;
    submit(batch, submitted_ == batches_.size() ? state_ : std::make_shared<InitializationState>());
  }

  void wait_for_first() {
    context_->wait(running_.front().id());
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

  // The steps of the batch's sources, which read them in one input.
  std::shared_ptr<const InitializationPlan> initialization_of(const Batch& batch) const {
    auto plan = std::make_shared<InitializationPlan>();
    plan->persistent_bytes = weights_.initialization->persistent_bytes;
    for (size_t i = batch.first; i < batch.end; ++i)
      for (const PlannedStep* step : steps_[i])
        for (PlannedOperand& operand : plan->steps.emplace_back(*step).operands)
          if (operand.place == Place::input) operand.index = 0, operand.byte_offset += batch.offsets[i - batch.first];
    return plan;
  }

  std::shared_ptr<Context> context_;
  const std::string& name_;
  size_t inputs_;
  Weights& weights_;
  UploadStaging& given_;
  std::shared_future<BufferRange> persistent_;
  std::shared_ptr<InitializationState> state_;          // of the whole
  std::vector<std::vector<const PlannedStep*>> steps_;  // by the source that they read
  std::vector<Batch> batches_;
  std::shared_ptr<Buffer> staging_;
  size_t submitted_ = 0, unsubmitted_ = 0;  // batches; the latter are being read
  std::deque<Submission> running_;
  std::optional<ThreadPool> readers_;  // the last: it ends before what its threads use
};

}  // namespace

UploadStaging::UploadStaging(std::shared_ptr<Context> context, uint64_t constant_bytes) : context_(std::move(context)) {
  constexpr uint64_t kBytes = kStagedAtOnce * kBatchesAtOnce;
  if (constant_bytes >= kBytes) making_ = in_background([this] { return Buffer::create(context_, kBytes, Heap::upload); });
}

std::shared_ptr<Buffer> UploadStaging::take(uint64_t least, uint64_t wanted) {
  if (making_.valid()) made_ = making_.get();
  if (!made_ || made_->bytes() < least) made_ = Buffer::create(context_, wanted, Heap::upload);
  return made_;
}

void upload_weights(const std::shared_ptr<Context>& context, const std::string& name, size_t inputs, Weights& weights,
                    UploadStaging& staging, std::shared_future<BufferRange> persistent, const std::shared_ptr<InitializationState>& state,
                    const CompileProgress& progress) {
  Uploader(context, name, inputs, weights, staging, std::move(persistent), state).run(progress);
}

}  // namespace pumice
