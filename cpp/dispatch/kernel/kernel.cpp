#include "dispatch/kernel/kernel.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "core/error.h"
#include "core/interrupts.h"
#include "core/log.h"
#include "dispatch/kernel/debug_messages.h"
#include "dispatch/kernel/driver_bug_test.h"
#include "dispatch/kernel/kernel_limits.h"
#include "dispatch/kernel/loop_watchdog.h"
#include "shader/debug/invocation_guard.h"
#include "shader/int64/int64_emulation.h"
#include "shader/source/compiler_diagnostics.h"
#include "shader/source/embedded_shaders.h"
#include "shader/source/glslang_loader.h"
#include "shader/spirv/int64_comparisons.h"
#include "shader/spirv/loop_limit.h"
#include "shader/spirv/robustness.h"
#include "shader/spirv/spirv.h"

namespace pumice {
namespace {

constexpr uint64_t kMinRingBytes = 256;

uint64_t encode_spec_value(const std::string& name, ScalarType scalar, bool is_bool, const Number& value) {
  const auto bits = encode_number(scalar, value);
  if (!bits || (is_bool && *bits > 1))
    throw BindingError("K2", "specialization constant", name,
                       is_bool ? "a bool, or 0 or 1" : "a number that " + std::string(pumice::name(scalar)) + " can hold",
                       to_string(value));
  return *bits;
}

SpecializationConstant make_specialization(const SpecConstant& constant, const Number& value) {
  if (constant.scalar == ScalarType::other)
    throw UnsupportedError("specialization constant '" + constant.name + "' has a type that cannot be specialised");
  return {constant.id, bytes(constant.scalar), encode_spec_value(constant.name, constant.scalar, constant.is_bool, value)};
}

std::optional<size_t> parse_local_size_axis(std::string_view name) {
  if (name.size() != 12 || !name.starts_with("local_size_") || name[11] < 'x' || name[11] > 'z') return {};
  return static_cast<size_t>(name[11] - 'x');
}

// Returns the local size given by the constants, if any; axes that are not named are 1.
std::optional<LocalSize> find_local_size(const SpecValues& spec) {
  std::optional<LocalSize> size;
  for (const auto& [name, value] : spec)
    if (const auto axis = parse_local_size_axis(name)) {
      if (!size) size = LocalSize{1, 1, 1};
      (*size)[*axis] = static_cast<uint32_t>(encode_spec_value(name, ScalarType::uint32, false, value));
    }
  return size;
}

// Returns the name of the specialization constant that enables grid folding.
std::string get_folding_constant_name(uint32_t axes) {
  return "GRID_FOLDED_" + std::to_string(axes);
}

std::string list_constants(const ShaderInterface& interface) {
  std::string names;
  for (const auto& constant : interface.spec_constants)
    if (constant.name != kFoldedGrid) names += (names.empty() ? "" : ", ") + constant.name;
  return names.empty() ? "no specialization constants" : "one of " + names;
}

uint32_t get_vulkan_minor_version(const DeviceInfo& info) {
  return info.api_version >> 12 & 0x3ff;
}

// Returns the newest SPIR-V version that the device's Vulkan version supports, as encoded in a module header.
uint32_t get_max_spirv_version(const DeviceInfo& info) {
  constexpr std::array<uint32_t, 4> kNewest{0x00010000, 0x00010300, 0x00010500, 0x00010600};
  return kNewest[std::min<size_t>(get_vulkan_minor_version(info), kNewest.size() - 1)];
}

std::string format_spirv_version(uint32_t version) {
  return std::to_string(version >> 16 & 0xff) + "." + std::to_string(version >> 8 & 0xff);
}

// A broadcast from a non-constant invocation needs a newer SPIR-V version and this feature.
bool uses_dynamic_broadcast(const Context& context, const SourceSet& sources) {
  return context.feature("subgroupBroadcastDynamicId") && std::ranges::any_of(sources.files(), [](const SourceFile& file) {
           return std::ranges::find(file.scan->identifiers, "subgroupBroadcast") != file.scan->identifiers.end();
         });
}

std::string make_variant_key(StorageType storage, const Macros& macros, const SpecValues& spec) {
  std::string key(name(storage));
  for (const auto& [macro, text] : macros) key += '\n' + macro + '\t' + text;
  for (const auto& [constant, value] : spec) key.append("\r").append(constant).append("=").append(to_string(value));
  return key;
}

void add_quirk_macros(const std::shared_ptr<Context>& context, Macros& macros) {
  const QuirkSet quirks = get_driver_quirks(context);
  for (size_t i = 0; i < list_quirk_kinds().size(); ++i)
    if (const QuirkKind& kind = list_quirk_kinds()[i]; kind.is_fatal && quirks.has(static_cast<Quirk>(i)))
      throw UnsupportedError("driver '" + context->info().driver + "', " + std::string(kind.name) + ": " + std::string(kind.summary));
  constexpr std::pair<Quirk, const char*> kMacros[] = {
      {Quirk::inexact_division, "PM_CORRECT_DIVISION"}, {Quirk::inexact_square_root, "PM_CORRECT_ROOT"},
      {Quirk::inexact_rounding, "PM_OWN_ROUNDING"},     {Quirk::inexact_unsigned, "PM_UNSIGNED_BY_HALVES"},
      {Quirk::unfused_multiply_add, "PM_UNFUSED"},      {Quirk::flushed_denormals, "PM_FLUSHES"},
      {Quirk::number_for_nan, "PM_CHECKS_NAN"}};
  const bool corrects = quirks.has(Quirk::inexact_division) || quirks.has(Quirk::inexact_square_root);
  for (const auto& [quirk, macro] : kMacros)
    if (quirks.has(quirk) && (quirk != Quirk::unfused_multiply_add || corrects)) macros.emplace_back(macro, "1");
}

ShaderCompileError append_messages(const ShaderCompileError& error, std::vector<std::string> sentences) {
  if (sentences.empty()) return error;
  auto messages = error.messages;
  messages.insert(messages.end(), sentences.begin(), sentences.end());
  return make_compile_error(std::move(messages));
}

// "TILE_M=4 TILE_N=2", with the constants' bits as unsigned integers.
std::string describe_constants(const ShaderInterface& interface, const std::vector<SpecializationConstant>& constants) {
  std::string text;
  for (const SpecializationConstant& constant : constants)
    for (const SpecConstant& declared : interface.spec_constants)
      if (declared.id == constant.id) text += (text.empty() ? "" : " ") + declared.name + "=" + std::to_string(constant.bits);
  return text;
}

std::shared_ptr<Context> lock_context(const std::weak_ptr<Context>& context) {
  auto locked = context.lock();
  if (!locked) throw StateError("the Context of this kernel is gone", "L1");
  return locked;
}

}  // namespace

KernelVariant::KernelVariant(const std::shared_ptr<Context>& context, std::shared_ptr<const Shader> shader, const SpecValues& spec,
                             KernelOrigin origin)
    : context_(context), shader_(std::move(shader)), local_size_(interface().local_size), origin_(origin) {
  for (const auto& [name, value] : spec) {
    const auto axis = parse_local_size_axis(name);
    if (axis && interface().has_requested_local_size) continue;
    if (axis && interface().local_size_id[*axis]) {
      local_size_[*axis] = static_cast<uint32_t>(encode_spec_value(name, ScalarType::uint32, false, value));
      specialization_.push_back({*interface().local_size_id[*axis], 4, local_size_[*axis]});
      continue;
    }
    const auto* constant = interface().find_spec_constant(name);
    if (!constant) throw BindingError("K1", "specialization constant", name, list_constants(interface()), name);
    specialization_.push_back(make_specialization(*constant, value));
    for (size_t i = 0; i < 3; ++i)
      if (interface().local_size_id[i] == constant->id) local_size_[i] = static_cast<uint32_t>(specialization_.back().bits);
  }
  const std::set<std::string> unsupported_int64 = emulate_int64(*context);
  if (origin == KernelOrigin::user && get_driver_quirks(context).has(Quirk::loop_limit) &&
      may_exceed_iterations(this->spirv(), kMaxUnmonitoredIterations))
    watchdog_id_ = static_cast<uint32_t>(std::stoul(shader_->key.substr(0, 8), nullptr, 16)) | 1;
  check_device_requirements(*context, *shader_, specialization_, local_size_, unsupported_int64);
  for (size_t axis = 0; axis < 3; ++axis) max_groups_[axis] = context->limit("maxComputeWorkGroupCount_" + std::to_string(axis));
  for (const uint32_t axes : {1u, 3u})
    if (interface().find_spec_constant(get_folding_constant_name(axes))) foldable_grid_axes_ = axes;
}

KernelVariant::KernelVariant(const KernelVariant& base, FoldedTag)
    : context_(base.context_),
      shader_(base.shader_),
      emulated_spirv_(base.emulated_spirv_),
      specialization_(base.specialization_),
      local_size_(base.local_size_),
      max_groups_(base.max_groups_),
      is_folded_(true),
      origin_(base.origin_),
      watchdog_id_(base.watchdog_id_) {
  const SpecConstant* constant = interface().find_spec_constant(get_folding_constant_name(base.foldable_grid_axes_));
  if (!constant) throw Error("kernel '" + name() + "' has no form for folded grids");
  specialization_.push_back(make_specialization(*constant, uint64_t{1}));
}

std::shared_ptr<const KernelVariant> KernelVariant::get_folded_variant() const {
  std::call_once(folded_once_, [&] { folded_ = std::make_shared<const KernelVariant>(*this, FoldedTag{}); });
  return folded_;
}

std::shared_ptr<Context> KernelVariant::context() const {
  return lock_context(context_);
}

std::set<std::string> KernelVariant::emulate_int64(const Context& context) {
  if (context.feature(kInt64Feature) ||
      std::ranges::find(interface().features, kInt64Feature, &RequiredFeature::feature) == interface().features.end())
    return {};
  std::map<uint32_t, uint64_t> constants;
  for (const auto& constant : specialization_) constants[constant.id] = constant.bits;
  Int64Emulation emulation = pumice::emulate_int64(shader_->spirv, constants);
  emulated_spirv_ = std::make_shared<const std::vector<uint32_t>>(std::move(emulation.spirv));
  return std::move(emulation.unsupported);
}

std::vector<uint32_t> KernelVariant::make_sandboxed_spirv() const {
  std::vector<std::string> dropped;
  std::vector<uint32_t> spirv = limit_unrolling(this->spirv(), dropped);
  for (const auto& sentence : dropped) log(LogLevel::info, "kernel '" + name() + "': " + sentence);
  return context()->info().kind == DeviceKind::software ? clamp_local_indices(spirv) : spirv;
}

uint32_t KernelVariant::find_loop_watchdog_binding() const {
  uint32_t next = 0;
  for (const auto& binding : interface().bindings) next = std::max(next, binding.binding + 1);
  for (const auto& image : interface().images) next = std::max(next, image.binding + 1);
  return next;
}

std::vector<uint32_t> KernelVariant::make_driver_spirv() const {
  std::vector<uint32_t> module = origin_ == KernelOrigin::user ? make_sandboxed_spirv() : spirv();
  if (has_loop_watchdog()) module = add_loop_watchdog(module, find_loop_watchdog_binding(), watchdog_id_);
  const QuirkSet quirks = get_driver_quirks(context());
  if (quirks.has(Quirk::int64_comparison)) module = spirv::complement_int64_comparisons(module);
  return quirks.has(Quirk::unrolled_contraction) ? spirv::remove_unroll_hints(module) : module;
}

PipelineDesc KernelVariant::make_pipeline_desc(const std::vector<uint32_t>& module) const {
  PipelineDesc desc;
  desc.name = name();
  const auto owner = context();
  desc.spirv = module;
  desc.is_robust = origin_ == KernelOrigin::user;
  for (const auto& binding : interface().bindings)
    desc.bindings.push_back({binding.binding, get_descriptor_kind(binding), binding.element});
  if (has_loop_watchdog()) desc.bindings.push_back({find_loop_watchdog_binding(), DescriptorKind::storage_buffer});
  for (const auto& image : interface().images) desc.bindings.push_back({image.binding, get_descriptor_kind(image)});
  desc.push_bytes = interface().push_bytes;
  desc.specialization = specialization_;
  if (owner->compile_only()) {
    desc.storage = pumice::name(shader_->options.storage);
    desc.local_size = local_size_;
    desc.constants = describe_constants(interface(), specialization_);
  }
  const auto& needed = interface().capabilities;
  // Kernels that exchange values within a subgroup require full subgroups of the reported size.
  const bool exchanges = std::any_of(needed.begin(), needed.end(), [](const std::string& capability) {
    return capability == "CooperativeMatrixKHR" || capability == "GroupNonUniformShuffle";
  });
  const bool has_matrices = std::ranges::find(needed, "CooperativeMatrixKHR") != needed.end();
  const uint64_t size = has_matrices ? owner->info().matrix_subgroup_size() : owner->limit("subgroupSize");
  const uint64_t invocations = uint64_t{local_size_[0]} * local_size_[1] * local_size_[2];
  const bool can_be_full = owner->feature("subgroupSizeControl") && owner->feature("computeFullSubgroups") && local_size_[0] % size == 0;
  if (exchanges && can_be_full && invocations <= size * owner->limit("maxComputeWorkgroupSubgroups"))
    desc.subgroup_size = static_cast<uint32_t>(size);
  return desc;
}

const Pipeline& KernelVariant::pipeline() const {
  std::call_once(once_, [&] {
    const std::vector<uint32_t> module = make_driver_spirv();
    pipeline_ = Pipeline::create(*context(), make_pipeline_desc(module));
    has_pipeline_ = true;
    if (queries_spills_) (void)query_spills();
  });
  return *pipeline_;
}

size_t KernelVariant::spirv_bytes() const {
  return make_driver_spirv().size() * sizeof(uint32_t);
}

std::vector<PipelineExecutable> KernelVariant::query_executables(CaptureMode capture) const {
  const auto owner = context();
  check_executables_supported(*owner);
  if (capture == CaptureMode::statistics && has_pipeline_ && pipeline_->record()) return pipeline_->record()->executables;
  const std::vector<uint32_t> module = make_driver_spirv();
  PipelineDesc desc = make_pipeline_desc(module);
  desc.counted = false;
  desc.capture = capture;
  const auto pipeline = Pipeline::create(*owner, desc);
  return pumice::query_executables(*owner, pipeline->handle(), pipeline->capture());
}

Kernel::Kernel(const std::shared_ptr<Context>& context, KernelSource source, OptionsCallback options, const DebugOptions& debug,
               KernelOrigin origin)
    : context_(context),
      source_(std::move(source.source)),
      name_(std::move(source.name)),
      path_(std::move(source.path)),
      includes_(std::move(source.includes)),
      options_(std::move(options)),
      local_size_(source.local_size),
      check_bounds_(debug.check_bounds),
      origin_(origin),
      spirv_(std::move(source.spirv)) {
  includes_.on_disk = !path_.empty();
  includes_.files = std::make_shared<FileCache>();
  limits_ = {context->limit("minStorageBufferOffsetAlignment"), context->limit("maxStorageBufferRange"), {}};
  for (size_t axis = 0; axis < 3; ++axis) limits_.groups[axis] = context->limit("maxComputeWorkGroupCount_" + std::to_string(axis));
  const uint64_t max_ring_bytes = limits_.largest;
  if (debug.ring_bytes % 4 != 0 || debug.ring_bytes < kMinRingBytes || debug.ring_bytes > max_ring_bytes)
    throw BindingError("K12", "message_bytes", name_,
                       "a multiple of 4 bytes, from " + std::to_string(kMinRingBytes) + " to " + std::to_string(max_ring_bytes),
                       std::to_string(debug.ring_bytes));
  debug_ = std::make_shared<const DebugMessageSink>(DebugMessageSink{std::make_shared<MessageLog>(name_), debug.ring_bytes});
}

std::shared_ptr<const Shader> Kernel::compile_shader(const ShaderOptions& options, const Macros& macros, const SpecValues& spec) const {
  const std::string& name = path_.empty() ? name_ : path_;
  if (!spirv_.empty()) {
    const DeviceInfo& info = lock_context(context_)->info();
    if (spirv_.size() > 1 && spirv_[1] > get_max_spirv_version(info))
      throw UnsupportedError("kernel '" + name_ + "' is a module of SPIR-V " + format_spirv_version(spirv_[1]) + "; '" + info.name +
                             "' supports up to " + format_spirv_version(get_max_spirv_version(info)));
    return shader_from_spirv(spirv_, name, options);
  }
  if (local_size_) check_local_size(*lock_context(context_), name_, *local_size_);
  auto shader = compile(source_, name, options, macros, includes_, local_size_);
  if (shader->missing_local_size_error.empty()) return shader;
  const auto size = find_local_size(spec);
  if (!size) throw ShaderCompileError(shader->missing_local_size_error);
  check_local_size(*lock_context(context_), name_, *size);
  return compile(source_, name, options, macros, includes_, size);
}

std::shared_ptr<const KernelVariant> Kernel::get_variant(StorageType storage, const Macros& macros, const SpecValues& spec) {
  const std::string key = make_variant_key(storage, macros, spec);
  {
    const std::lock_guard guard(mutex_);
    if (const auto entry = variants_.find(key); entry != variants_.end()) return entry->second;
  }
  check_interrupts();  // a large model compiles hundreds of shaders, so allow Ctrl-C
  const auto context = lock_context(context_);
  ShaderOptions options = make_device_options(*context, storage);
  if (origin_ == KernelOrigin::user && uses_dynamic_broadcast(*context, SourceSet(path_.empty() ? name_ : path_, source_, includes_)))
    options.vulkan_minor = static_cast<int>(std::min<uint32_t>(get_vulkan_minor_version(context->info()), 2));
  if (options_) options = options_(options);
  options.debug = options.debug || check_bounds_;
  options.all_extensions = origin_ == KernelOrigin::engine;
  options.guard_declared = options.guard && origin_ == KernelOrigin::user;
  options.clamps_texels = options.image_storage && get_driver_quirks(context).has(Quirk::texel_overflow);
  options.keeps_signed_zero = origin_ == KernelOrigin::engine && context->feature("shaderSignedZeroInfNanPreserveFloat32");
  std::shared_ptr<const Shader> shader;
  try {
    shader = compile_shader(options, macros, spec);
  } catch (const ShaderCompileError& error) {
    auto sentences = describe_undeclared_types(context->info(), source_);
    const auto compiles_as_2024 = [&] {
      if (options.generation == GlslExtensionVersion::year_2024 || origin_ == KernelOrigin::engine) return false;
      ShaderOptions older = options;
      older.generation = GlslExtensionVersion::year_2024;
      try {
        compile_shader(older, macros, spec);
      } catch (const Error&) {
        return false;
      }
      return true;
    };
    if (compiles_as_2024())
      sentences.push_back("'" + name_ +
                          "' compiles with the extension as of 2024: use ShaderOptions(generation=\"2024\") for such sources");
    throw append_messages(error, std::move(sentences));
  }
  if (origin_ == KernelOrigin::user) check_argument_names(shader->interface);
  auto new_variant = std::make_shared<const KernelVariant>(context, std::move(shader), spec, origin_);
  if (new_variant->emulates_int64() && origin_ == KernelOrigin::user) log_int64_emulation();
  if (new_variant->has_loop_watchdog()) register_with_loop_watchdog(*context, *new_variant, macros);
  const std::lock_guard guard(mutex_);
  return variants_.emplace(key, std::move(new_variant)).first->second;  // if another thread compiled it first, its variant is kept
}

// Recompiles the source to locate its loops only if an error message needs the locations.
void Kernel::register_with_loop_watchdog(Context& context, const KernelVariant& variant, const Macros& macros) const {
  const Shader& shader = *variant.shader();
  std::optional<LocalSize> local_size = local_size_;
  if (shader.interface.has_requested_local_size) local_size = variant.local_size();
  LoopWatchdog::get_for_context(context)->add_kernel(
      variant.watchdog_id(), name_,
      [source = source_, name = path_.empty() ? name_ : path_, options = shader.options, macros, includes = includes_, local_size] {
        return source.empty() ? std::string() : find_loop_locations(source, name, options, macros, includes, local_size);
      });
}

void Kernel::log_int64_emulation() {
  if (!logged_emulation_.exchange(true))
    log(LogLevel::info, "kernel '" + name_ + "': 64-bit integers are computed as pairs of words because the device lacks " + kInt64Feature);
}

void Kernel::log_packed_storage(const DeviceInfo& device, DType dtype) {
  const StorageType storage = get_storage_type(device, dtype);
  if ((storage != StorageType::fp16_packed && storage != StorageType::bf16_packed) || logged_packed_.exchange(true)) return;
  std::string why;
  const auto add = [&](const std::string& reason) { why += (why.empty() ? ": " : ", ") + reason; };
  for (const auto feature : {k16bitStorage, kBfloat16})
    if (!device.feature(feature) && (dtype == DType::bfloat16 || feature == k16bitStorage)) add("the device lacks " + std::string(feature));
  if (dtype == DType::bfloat16)
    for (const auto& extension : find_missing_extensions(StorageType::bf16))
      add("glslang " + std::string(get_glslang_version()) + " lacks " + extension);
  log(LogLevel::info,
      "kernel '" + name_ + "': " + std::string(pumice::name(dtype)) + " arrays are stored as " + std::string(pumice::name(storage)) + why);
}

std::vector<std::shared_ptr<const KernelVariant>> Kernel::list_variants() {
  const std::lock_guard guard(mutex_);
  std::vector<std::shared_ptr<const KernelVariant>> result;
  for (const auto& [key, variant] : variants_) result.push_back(variant);
  return result;
}

namespace {

// Returns the debug options of library kernels, which do not use printf: a message ring no larger than the device can bind.
DebugOptions make_library_debug_options(const Context& context) {
  DebugOptions debug;
  debug.ring_bytes = std::min(debug.ring_bytes, context.limit("maxStorageBufferRange") / 4 * 4);
  return debug;
}

// GPUs use large workgroups: on an H200, launching 65,536 empty workgroups takes 41 us.
Macros make_workgroup_size_macros(const Context& context) {
  constexpr uint64_t kLarge = 256, kOfSoftware = 64;
  const uint64_t max_invocations = std::min(context.limit("maxComputeWorkGroupInvocations"), context.limit("maxComputeWorkGroupSize_0"));
  const uint64_t large = std::bit_floor(std::min(kLarge, max_invocations));
  const uint64_t local = context.info().kind == DeviceKind::software ? std::min(kOfSoftware, large) : large;
  return {{"LOCAL_SIZE", std::to_string(local)}, {"WORKGROUP", std::to_string(large)}};
}

}  // namespace

std::shared_ptr<const KernelVariant> KernelLibrary::get_variant(const std::shared_ptr<Context>& context, std::string_view shader,
                                                                StorageType storage, const Macros& macros, const SpecValues& spec) {
  std::shared_ptr<Kernel> kernel;
  Macros all = macros;
  {
    const std::lock_guard guard(mutex_);
    auto entry = kernels_.find(shader);
    if (entry == kernels_.end()) {
      KernelSource source{std::string(get_embedded_shader(shader)), std::string(shader)};
      auto new_kernel = std::make_shared<Kernel>(context, std::move(source), OptionsCallback{}, make_library_debug_options(*context),
                                                 KernelOrigin::engine);
      entry = kernels_.emplace(std::string(shader), std::move(new_kernel)).first;
    }
    kernel = entry->second;
    if (sizes_.empty()) sizes_ = make_workgroup_size_macros(*context);
    for (const auto& size : sizes_)
      if (std::ranges::none_of(macros, [&](const auto& macro) { return macro.first == size.first; })) all.push_back(size);
  }
  add_quirk_macros(context, all);
  return kernel->get_variant(storage, all, spec);
}

std::shared_ptr<Kernel> KernelLibrary::get_user_kernel(const std::shared_ptr<Context>& context, const KernelSource& source) {
  std::string key;
  const auto add = [&](const std::string& field) { key.append(std::to_string(field.size())).append(":").append(field); };
  for (const std::string* field : {&source.source, &source.name, &source.path}) add(*field);
  for (const auto& [name, included] : source.includes.sources_by_path) add(name), add(included);
  for (const std::string& folder : source.includes.folders) add(folder);
  for (const uint32_t size : source.local_size.value_or(LocalSize{0, 0, 0})) add(std::to_string(size));
  const std::lock_guard guard(mutex_);
  auto& kernel = user_kernels_[key];
  if (!kernel) kernel = std::make_shared<Kernel>(context, source, OptionsCallback{}, make_library_debug_options(*context));
  return kernel;
}

}  // namespace pumice
