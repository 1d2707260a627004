#include "graph/weight_upload.h"

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "dispatch/command_list.h"
#include "graph/arena.h"

namespace pumice {
namespace {

constexpr uint64_t kStagingBytes = uint64_t{64} << 20;

// Sources that are staged together, and the steps that read them there.
struct Batch {
  size_t first = 0, end = 0;  // sources
  std::vector<uint64_t> offsets;
  uint64_t bytes = 0;
};

uint64_t staged_bytes(const WeightSource& source) {
  return round_up(source.bytes(), kArenaAlignment);
}

// Each at most half of the staging buffer, so that one is filled while the device reads the other; or a single source.
std::vector<Batch> batches_of(const std::vector<WeightSource>& sources) {
  std::vector<Batch> batches;
  for (size_t i = 0; i < sources.size(); ++i) {
    const uint64_t bytes = staged_bytes(sources[i]);
    if (batches.empty() || batches.back().bytes + bytes > kStagingBytes / 2) batches.push_back({i, i, {}, 0});
    Batch& batch = batches.back();
    batch.offsets.push_back(batch.bytes);
    batch.bytes += bytes;
    batch.end = i + 1;
  }
  return batches;
}

class Uploader {
 public:
  Uploader(std::shared_ptr<Context> context, const std::string& name, size_t inputs, Weights& weights, const BufferRange& persistent)
      : context_(std::move(context)),
        name_(name),
        inputs_(inputs),
        weights_(weights),
        persistent_(persistent),
        steps_(weights.sources.size()) {
    size_t source = 0;
    for (const PlannedStep& step : weights.initialization->steps) {
      for (const PlannedOperand& operand : step.operands)
        if (operand.place == Place::input) source = operand.index - inputs_;
      steps_[source].push_back(&step);  // one without a source reads what the step before it has made
    }
  }

  void run(const std::shared_ptr<InitializationState>& state, const CompileProgress& progress) {
    auto batches = batches_of(weights_.sources);
    if (batches.empty()) batches.emplace_back();
    uint64_t bytes = batches.size() > 1 ? kStagingBytes : 0;
    for (const Batch& batch : batches) bytes = std::max(bytes, batch.bytes);
    staging_ = Buffer::create(context_, bytes, Heap::upload);
    uint64_t done = 0, total = 0;
    for (const Batch& batch : batches) total += batch.bytes;
    for (const Batch& batch : batches) {
      if (progress) progress("weights", done, total);
      run(batch, &batch == &batches.back() ? state : std::make_shared<InitializationState>());
      done += batch.bytes;
    }
    finish(0);
  }

 private:
  // The two halves of the staging buffer take turns; a batch that is larger than a half takes all of it.
  void run(const Batch& batch, const std::shared_ptr<InitializationState>& state) {
    const bool halved = batch.bytes <= kStagingBytes / 2 && !took_all_;
    finish(halved ? 1 : 0);
    took_all_ = batch.bytes > kStagingBytes / 2;
    begin_ = halved && begin_ == 0 && !running_.empty() ? kStagingBytes / 2 : 0;
    for (size_t i = batch.first; i < batch.end; ++i) {
      WeightSource& source = weights_.sources[i];
      source.write_to(staging_->map() + begin_ + batch.offsets[i - batch.first]);
      source.constant = HostTensor{source.constant.desc};
    }
    submit(batch, state);
  }

  // Until at most so many batches are on their way.
  void finish(size_t most) {
    for (; running_.size() > most; running_.pop_front()) context_->wait(running_.front().id());
  }

  void submit(const Batch& batch, const std::shared_ptr<InitializationState>& state) {
    Plan plan;
    plan.name = name_;
    plan.inputs.push_back({"weights", TensorDesc(DType::uint8, {static_cast<int64_t>(batch.bytes)}, {}, true)});
    plan.initialization = initialization_of(batch);
    const auto target = std::make_shared<CompiledOperator>(context_, std::move(plan), state);
    const auto initializer = std::make_shared<Initializer>(context_, std::vector<std::shared_ptr<const CompiledOperator>>{target});
    BindingTable table(initializer);
    table.bind_inputs({BufferArray{BufferRange{staging_, begin_, batch.bytes}}});
    if (persistent_.buffer) table.bind_outputs({persistent_});
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
  const BufferRange& persistent_;
  std::vector<std::vector<const PlannedStep*>> steps_;  // by the source that they read
  std::shared_ptr<Buffer> staging_;
  uint64_t begin_ = 0;  // of the last batch, in the staging buffer
  bool took_all_ = false;
  std::deque<Submission> running_;
};

}  // namespace

void upload_weights(const std::shared_ptr<Context>& context, const std::string& name, size_t inputs, Weights& weights,
                    const BufferRange& persistent, const std::shared_ptr<InitializationState>& state, const CompileProgress& progress) {
  Uploader(context, name, inputs, weights, persistent).run(state, progress);
}

}  // namespace pumice
