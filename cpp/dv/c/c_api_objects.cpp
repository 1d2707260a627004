// Contexts, memory and command lists of the C interface.
#include <cstdlib>
#include <mutex>

#include "dispatch/kernel/feature_trial.h"
#include "dv/c/c_api_handles.h"

using namespace pumice::dv;

namespace pumice::dv {

uintptr_t next_handle_number() {
  constexpr uintptr_t kFirst = 0x1000, kStep = 0x10;  // handles look like addresses and are never 0
  static std::atomic<uintptr_t> next{kFirst};
  return next.fetch_add(kStep);
}

HandleTable<dmp_dv_context, Context>& get_context_handles() {
  static auto* const all = new HandleTable<dmp_dv_context, Context>;
  return *all;
}

HandleTable<dmp_dv_mem, MemoryObject>& get_memory_handles() {
  static auto* const all = new HandleTable<dmp_dv_mem, MemoryObject>;
  return *all;
}

HandleTable<dmp_dv_cmdlist, CommandListObject>& get_command_list_handles() {
  static auto* const all = new HandleTable<dmp_dv_cmdlist, CommandListObject>;
  return *all;
}

MemoryObject::~MemoryObject() {
  memory->unmap();
  memory.reset();
  get_context_handles().release(context);
}

CommandListObject::~CommandListObject() {
  catch_errors([&] {
    list->finish();
    return 0;
  });
  list.reset();
  for (const dmp_dv_mem memory : memories) dv::get_memory_handles().release(memory);
  for (unsigned left = devices; left != 0; left &= left - 1) get_context_handles().release(context);
  get_context_handles().release(context);
}

}  // namespace pumice::dv

namespace {

// All contexts of a process share one device, so that a list may use memories of any context.
std::shared_ptr<pumice::Context> get_shared_device() {
  static std::mutex mutex;
  static std::weak_ptr<pumice::Context> device;
  const std::lock_guard lock(mutex);
  auto found = device.lock();
  if (!found) device = found = pumice::open_context();
  return found;
}

bool is_strict() {
  const char* const value = std::getenv("PUMICE_DV_STRICT");
  return value && std::string_view(value) == "1";
}

// Formats an error message such as "ctx: expected a context; given NULL".
template <typename Handle>
std::string format_invalid_handle(const char* name, const char* kind, Handle handle) {
  return std::string(name) + ": expected a " + kind + "; given " +
         (handle ? "an invalid handle: it was released, was never created, or is of another kind" : "NULL");
}

std::string format_invalid_handle(dmp_dv_context handle) {
  return format_invalid_handle("ctx", "context", handle);
}
std::string format_invalid_handle(dmp_dv_mem handle) {
  return format_invalid_handle("mem", "memory", handle);
}
std::string format_invalid_handle(dmp_dv_cmdlist handle) {
  return format_invalid_handle("cmdlist", "command list", handle);
}

// Returns the new reference count; 0 for NULL, -1 for an invalid handle.
template <typename Handle, typename Count>
int change_ref_count(Handle handle, const Count& count) {
  if (!handle) return 0;
  const int left = catch_errors([&] { return count(handle); });
  return left < 0 ? fail_with(left, format_invalid_handle(handle)) : left;
}

constexpr auto kReturnNull = [](int) { return nullptr; };

// Calls `call` with the memory of a handle. Returns 0 or an error code.
template <typename Call>
int call_with_memory(dmp_dv_mem handle, const Call& call) {
  const auto object = get_memory_handles().find(handle);
  if (!object) return fail_with(EINVAL, format_invalid_handle(handle));
  return catch_errors([&] {
    call(*object->memory);
    return 0;
  });
}

}  // namespace

const char* dmp_dv_get_version_string(void) {
  return get_version_string();
}

dmp_dv_context dmp_dv_context_create(void) {
  return catch_errors([] { return get_context_handles().insert(std::make_shared<Context>(get_shared_device(), is_strict())); },
                      kReturnNull);
}

const char* dmp_dv_context_get_info_string(dmp_dv_context ctx) {
  if (const auto context = get_context_handles().find(ctx)) return context->info_string().c_str();
  set_error(format_invalid_handle(ctx));
  return "";
}

int dmp_dv_context_get_info(dmp_dv_context ctx, struct dmp_dv_info* info) {
  const auto context = get_context_handles().find(ctx);
  if (!context) return fail_with(EINVAL, format_invalid_handle(ctx));
  if (!info) return fail_with(EINVAL, "info: expected a structure; given NULL");
  if (info->size < sizeof *info) return fail_with(kRejected, "info->size: expected at least 8 bytes");
  info->version = 0;
  if (info->size < sizeof(dmp_dv_info_v0)) return 0;
  const dmp_dv_info header = *info;
  auto* const whole = reinterpret_cast<dmp_dv_info_v0*>(info);
  *whole = context->info();
  whole->header = header;
  return 0;
}

int dmp_dv_context_retain(dmp_dv_context ctx) {
  return change_ref_count(ctx, [](dmp_dv_context handle) { return get_context_handles().retain(handle); });
}

int dmp_dv_context_release(dmp_dv_context ctx) {
  return change_ref_count(ctx, [](dmp_dv_context handle) { return get_context_handles().release(handle); });
}

int dmp_dv_device_exists(dmp_dv_context ctx, int dev_type_id) {
  const auto context = get_context_handles().find(ctx);
  if (!context) return fail_with(kRejected, format_invalid_handle(ctx));
  return catch_errors([&] { return context->has_device(dev_type_id) ? 1 : 0; });
}

int dmp_dv_fpga_device_exists(dmp_dv_context ctx, int dev_type_id) {
  return dmp_dv_device_exists(ctx, dev_type_id);
}

dmp_dv_mem dmp_dv_mem_alloc(dmp_dv_context ctx, size_t size) {
  const auto context = get_context_handles().find(ctx);
  if (!context) return set_error(format_invalid_handle(ctx)), nullptr;
  return catch_errors(
      [&]() -> dmp_dv_mem {
        auto memory = Memory::create(context, size);
        get_context_handles().retain(ctx);
        return get_memory_handles().insert(std::make_shared<MemoryObject>(ctx, std::move(memory)));
      },
      kReturnNull);
}

int dmp_dv_mem_retain(dmp_dv_mem mem) {
  return change_ref_count(mem, [](dmp_dv_mem handle) { return get_memory_handles().retain(handle); });
}

int dmp_dv_mem_release(dmp_dv_mem mem) {
  return change_ref_count(mem, [](dmp_dv_mem handle) { return get_memory_handles().release(handle); });
}

uint8_t* dmp_dv_mem_map(dmp_dv_mem mem) {
  const auto object = get_memory_handles().find(mem);
  if (!object) return set_error(format_invalid_handle(mem)), nullptr;
  return catch_errors([&] { return reinterpret_cast<uint8_t*>(object->memory->map()); }, kReturnNull);
}

void dmp_dv_mem_unmap(dmp_dv_mem mem) {
  call_with_memory(mem, [](Memory& memory) { memory.unmap(); });
}

int dmp_dv_mem_sync_start(dmp_dv_mem mem, int rd, int wr) {
  return call_with_memory(mem, [&](Memory& memory) { memory.sync_start(rd != 0, wr != 0); });
}

int dmp_dv_mem_sync_end(dmp_dv_mem mem) {
  return call_with_memory(mem, [](Memory& memory) { memory.sync_end(); });
}

size_t dmp_dv_mem_get_size(dmp_dv_mem mem) {
  if (const auto object = get_memory_handles().find(mem)) return object->memory->bytes();
  set_error(format_invalid_handle(mem));
  return 0;
}

int64_t dmp_dv_mem_get_total_size(void) {
  return Memory::total_bytes();
}

int dmp_dv_mem_to_device(dmp_dv_mem mem, size_t offs, size_t size, int) {
  return call_with_memory(mem, [&](Memory& memory) { memory.to_device(offs, size); });
}

int dmp_dv_mem_to_cpu(dmp_dv_mem mem, size_t offs, size_t size, int flags) {
  if ((flags & DMP_DV_MEM_CPU_HADNT_READ) != 0) return 0;
  return call_with_memory(mem, [&](Memory& memory) { memory.to_cpu(offs, size); });
}

dmp_dv_cmdlist dmp_dv_cmdlist_create(dmp_dv_context ctx) {
  const auto context = get_context_handles().find(ctx);
  if (!context) return set_error(format_invalid_handle(ctx)), nullptr;
  return catch_errors(
      [&]() -> dmp_dv_cmdlist {
        auto list = std::make_unique<CommandList>(context);
        get_context_handles().retain(ctx);
        return get_command_list_handles().insert(std::make_shared<CommandListObject>(ctx, std::move(list)));
      },
      kReturnNull);
}

int dmp_dv_cmdlist_retain(dmp_dv_cmdlist cmdlist) {
  return change_ref_count(cmdlist, [](dmp_dv_cmdlist handle) { return get_command_list_handles().retain(handle); });
}

int dmp_dv_cmdlist_release(dmp_dv_cmdlist cmdlist) {
  return change_ref_count(cmdlist, [](dmp_dv_cmdlist handle) { return get_command_list_handles().release(handle); });
}

int dmp_dv_cmdlist_add_raw(dmp_dv_cmdlist cmdlist, struct dmp_dv_cmdraw* cmd) {
  const auto object = get_command_list_handles().find(cmdlist);
  if (!object) return fail_with(EINVAL, format_invalid_handle(cmdlist));
  if (!cmd) return fail_with(kRejected, "cmd: expected a command; given NULL");
  return catch_errors([&] {
    std::vector<dmp_dv_mem> used_memories;
    object->list->add({reinterpret_cast<const std::byte*>(cmd), cmd->size}, [&](uint64_t handle) -> std::shared_ptr<Memory> {
      const auto memory = reinterpret_cast<dmp_dv_mem>(static_cast<uintptr_t>(handle));
      const auto found = get_memory_handles().find(memory);
      if (!found) return nullptr;
      used_memories.push_back(memory);
      return found->memory;
    });
    for (const dmp_dv_mem memory : used_memories) get_memory_handles().retain(memory);
    object->memories.insert(object->memories.end(), used_memories.begin(), used_memories.end());
    const unsigned device = 1u << cmd->device_type;
    if ((object->devices & device) == 0) get_context_handles().retain(object->context);
    object->devices |= device;
    return 0;
  });
}

int dmp_dv_cmdlist_commit(dmp_dv_cmdlist cmdlist) {
  const auto object = get_command_list_handles().find(cmdlist);
  if (!object) return fail_with(EINVAL, format_invalid_handle(cmdlist));
  if (object->list->committed()) return fail_with(EALREADY, "cmdlist: expected one that is not committed; given one that is");
  return catch_errors([&] {
    object->list->commit();
    return 0;
  });
}

int64_t dmp_dv_cmdlist_exec(dmp_dv_cmdlist cmdlist) {
  const auto object = get_command_list_handles().find(cmdlist);
  if (!object) return fail_with(-EINVAL, format_invalid_handle(cmdlist));
  if (!object->list->committed()) return fail_with(-EINVAL, "cmdlist: expected a committed one");
  return catch_errors([&] { return object->list->exec(); }, [](int number) { return int64_t{number > 0 ? -number : number}; });
}

int dmp_dv_cmdlist_wait(dmp_dv_cmdlist cmdlist, int64_t exec_id) {
  const auto object = get_command_list_handles().find(cmdlist);
  if (!object) return fail_with(EINVAL, format_invalid_handle(cmdlist));
  if (exec_id < 0) return fail_with(EINVAL, "exec_id: expected an id of dmp_dv_cmdlist_exec(); given a negative number");
  if (!object->list->committed()) return fail_with(kRejected, "cmdlist: expected a committed one");
  if (exec_id == 0) return 0;  // ids start at 1
  return catch_errors(
      [&] {
        object->list->wait(exec_id);
        return 0;
      },
      [](int number) { return number > 0 ? -number : number; });
}

int64_t dmp_dv_cmdlist_get_last_exec_time(dmp_dv_cmdlist cmdlist) {
  const auto object = get_command_list_handles().find(cmdlist);
  if (!object) return fail_with(-1, format_invalid_handle(cmdlist));
  if (object->list->committed()) return object->list->last_exec_time();
  return fail_with(-1, "cmdlist: expected a committed one");
}
