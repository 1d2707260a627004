#include "operators/convert.h"

#include <algorithm>
#include <list>
#include <mutex>
#include <utility>

#include "core/error.h"
#include "dispatch/command_list.h"
#include "operators/compiled_operator.h"
#include "operators/onnx_dtype.h"

namespace pumice {
namespace {

// What a context has converted lately. It holds no compiled operators, which would hold the context.
class ConversionCache {
 public:
  // The plan of the operator from `x` to `y`, compiled where it is not kept.
  std::shared_ptr<const Plan> find(const std::shared_ptr<Context>& context, std::string_view name, const Attributes& attributes,
                                   const TensorDesc& x, const TensorDesc& y) {
    std::string key(name);
    for (const TensorDesc* desc : {&x, &y})
      key += " " + std::string(pumice::name(desc->dtype)) + to_string(desc->shape) + to_string(desc->strides);
    if (auto kept = found(key)) return kept;
    auto plan = std::make_shared<const Plan>(Operator(name, {x}, {y}, attributes).compile(context)->plan());
    const std::lock_guard lock(mutex_);
    plans_.emplace_front(std::move(key), plan);
    if (plans_.size() > kMostPlans) plans_.pop_back();
    return plan;
  }

 private:
  static constexpr size_t kMostPlans = 64;

  std::shared_ptr<const Plan> found(const std::string& key) {
    const std::lock_guard lock(mutex_);
    const auto at = std::find_if(plans_.begin(), plans_.end(), [&](const auto& entry) { return entry.first == key; });
    if (at == plans_.end()) return {};
    plans_.splice(plans_.begin(), plans_, at);
    return at->second;
  }

  std::mutex mutex_;
  std::list<std::pair<std::string, std::shared_ptr<const Plan>>> plans_;  // the last used first
};

void run(std::string_view name, const Attributes& attributes, const Tensor& x, const Tensor& y, const Interrupted& interrupted) {
  const auto& context = x.buffer()->context();
  const auto plan = context->attachment<ConversionCache>()->find(context, name, attributes, x.desc(), y.desc());
  const auto compiled = std::make_shared<const CompiledOperator>(context, *plan);
  BoundRanges ranges;
  ranges.inputs = {x.range()};
  ranges.outputs = {y.range()};
  const uint64_t temporary = compiled->binding_properties().temporary_bytes;
  if (temporary > 0) ranges.temporary = {Buffer::create(context, temporary), 0, temporary};
  const auto recording = Recording::create(context, compiled->lower(ranges));
  recording->exec().wait({}, interrupted);
}

void copy_bytes(const BufferRange& source, const Tensor& target, const Interrupted& interrupted) {
  const BufferPiece whole{0, source.bytes};
  copy(source, target.buffer(), {&whole, 1}, interrupted);
}

// The same elements where an operator can read them.
Tensor aligned(const Tensor& source, const Interrupted& interrupted) {
  const TensorDesc& desc = source.desc();
  if (source.byte_offset() % desc.required_alignment() == 0) return source;
  const int64_t reached = reached_elements(desc.shape, desc.strides);
  const Tensor span = Tensor::empty(source.buffer()->context(), desc.dtype, {reached});
  copy_bytes({source.buffer(), source.byte_offset(), span.desc().element_bytes()}, span, interrupted);
  return {desc, span.buffer()};
}

// An integer dtype as wide: a copy changes no bit, whatever they mean.
DType bits_of(DType dtype) {
  switch (bits(dtype)) {
    case 64:
      return DType::int64;
    case 32:
      return DType::int32;
    case 16:
      return DType::uint16;
    default:
      return DType::uint8;
  }
}

int64_t onnx_number(DType dtype) {
  for (int64_t number = 1; number < 64; ++number)
    if (dtype_from_onnx(number) == dtype) return number;
  throw UnsupportedError("Cast to " + std::string(name(dtype)));
}

}  // namespace

Tensor packed_copy(const Tensor& source, const Interrupted& interrupted) {
  const TensorDesc& desc = source.desc();
  const Tensor target = Tensor::empty(source.buffer()->context(), desc.dtype, desc.shape);
  if (desc.elements() == 0) return target;
  if (bits(desc.dtype) < 8) {
    std::vector<std::byte> bytes(desc.element_bytes());
    source.download(bytes, interrupted);
    target.upload(bytes, interrupted);
  } else if (desc.is_packed()) {
    copy_bytes({source.buffer(), source.byte_offset(), desc.element_bytes()}, target, interrupted);
  } else {
    const DType word = bits_of(desc.dtype);
    run("Identity", {}, aligned(source, interrupted).reinterpret(word), target.reinterpret(word), interrupted);
  }
  return target;
}

Tensor converted(const Tensor& source, DType dtype, const Interrupted& interrupted) {
  if (dtype == source.desc().dtype) return packed_copy(source, interrupted);
  const Tensor target = Tensor::empty(source.buffer()->context(), dtype, source.desc().shape);
  Attributes attributes;
  attributes.set("to", onnx_number(dtype));
  if (source.desc().elements() == 0) {
    (void)Operator("Cast", {source.desc()}, {target.desc()}, attributes);  // refuses the dtypes that it refuses otherwise
    return target;
  }
  run("Cast", attributes, aligned(source, interrupted), target, interrupted);
  return target;
}

}  // namespace pumice
