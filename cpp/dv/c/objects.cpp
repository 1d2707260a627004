// Contexts, memory and command lists of the C interface.
#include <cstdlib>
#include <mutex>

#include "dv/c/handles.h"

using namespace pumice::dv;

namespace {

// All contexts of a process share one device, so that a list may name the memories of any.
std::shared_ptr<pumice::Context> shared_device() {
  static std::mutex mutex;
  static std::weak_ptr<pumice::Context> device;
  const std::lock_guard lock(mutex);
  auto found = device.lock();
  if (!found) device = found = pumice::Context::create();
  return found;
}

bool is_strict() {
  const char* const given = std::getenv("PUMICE_DV_STRICT");
  return given && std::string_view(given) == "1";
}

template <typename Handle>
int retained(Handle handle) {
  return handle ? ++handle->count : 0;
}

int release(dmp_dv_context context) {
  const int left = --context->count;
  if (left == 0) delete context;
  return left;
}

int release(dmp_dv_mem memory) {
  const int left = --memory->count;
  if (left > 0) return left;
  memory->memory->unmap();
  memory->memory.reset();
  release(memory->context);
  delete memory;
  return left;
}

int release(dmp_dv_cmdlist list) {
  const int left = --list->count;
  if (left > 0) return left;
  list->list.reset();  // waits for its executions
  for (const dmp_dv_mem memory : list->memories) release(memory);
  for (unsigned devices = list->devices; devices != 0; devices &= devices - 1) release(list->context);
  release(list->context);
  delete list;
  return left;
}

template <typename Handle>
int released(Handle handle) {
  return handle ? guarded([&] { return release(handle); }) : 0;
}

constexpr auto kNull = [](int) { return nullptr; };

// Runs `call` on a memory. `missing`: for NULL.
template <typename Call>
int with_memory(dmp_dv_mem memory, const Call& call) {
  if (!memory) return refuse(EINVAL, "mem: expected a memory; given NULL");
  return guarded([&] {
    call(*memory->memory);
    return 0;
  });
}

}  // namespace

const char* dmp_dv_get_version_string(void) {
  return version_string();
}

dmp_dv_context dmp_dv_context_create(void) {
  return guarded(
      []() -> dmp_dv_context {
        auto made = std::make_unique<dmp_dv_context_impl>();
        made->context = std::make_shared<Context>(shared_device(), is_strict());
        return made.release();
      },
      kNull);
}

const char* dmp_dv_context_get_info_string(dmp_dv_context ctx) {
  if (ctx) return ctx->context->info_string().c_str();
  set_error("ctx: expected a context; given NULL");
  return "";
}

int dmp_dv_context_get_info(dmp_dv_context ctx, struct dmp_dv_info* info) {
  if (!ctx) return refuse(EINVAL, "ctx: expected a context; given NULL");
  if (!info) return refuse(EINVAL, "info: expected a structure; given NULL");
  if (info->size < sizeof *info) return refuse(kRefused, "info->size: expected at least 8 bytes");
  info->version = 0;
  if (info->size < sizeof(dmp_dv_info_v0)) return 0;
  const dmp_dv_info header = *info;
  auto* const whole = reinterpret_cast<dmp_dv_info_v0*>(info);
  *whole = ctx->context->info();
  whole->header = header;
  return 0;
}

int dmp_dv_context_retain(dmp_dv_context ctx) {
  return retained(ctx);
}

int dmp_dv_context_release(dmp_dv_context ctx) {
  return released(ctx);
}

int dmp_dv_device_exists(dmp_dv_context ctx, int dev_type_id) {
  if (!ctx) return refuse(kRefused, "ctx: expected a context; given NULL");
  return guarded([&] { return ctx->context->has_device(dev_type_id) ? 1 : 0; });
}

int dmp_dv_fpga_device_exists(dmp_dv_context ctx, int dev_type_id) {
  return dmp_dv_device_exists(ctx, dev_type_id);
}

dmp_dv_mem dmp_dv_mem_alloc(dmp_dv_context ctx, size_t size) {
  if (!ctx) return set_error("ctx: expected a context; given NULL"), nullptr;
  return guarded(
      [&]() -> dmp_dv_mem {
        auto made = std::make_unique<dmp_dv_mem_impl>();
        made->memory = Memory::create(ctx->context, size);
        made->context = ctx;
        ++ctx->count;
        return made.release();
      },
      kNull);
}

int dmp_dv_mem_retain(dmp_dv_mem mem) {
  return retained(mem);
}

int dmp_dv_mem_release(dmp_dv_mem mem) {
  return released(mem);
}

uint8_t* dmp_dv_mem_map(dmp_dv_mem mem) {
  if (!mem) return set_error("mem: expected a memory; given NULL"), nullptr;
  return guarded([&] { return reinterpret_cast<uint8_t*>(mem->memory->map()); }, kNull);
}

void dmp_dv_mem_unmap(dmp_dv_mem mem) {
  with_memory(mem, [](Memory& memory) { memory.unmap(); });
}

int dmp_dv_mem_sync_start(dmp_dv_mem mem, int rd, int wr) {
  return with_memory(mem, [&](Memory& memory) { memory.sync_start(rd != 0, wr != 0); });
}

int dmp_dv_mem_sync_end(dmp_dv_mem mem) {
  return with_memory(mem, [](Memory& memory) { memory.sync_end(); });
}

size_t dmp_dv_mem_get_size(dmp_dv_mem mem) {
  if (mem) return mem->memory->bytes();
  set_error("mem: expected a memory; given NULL");
  return 0;
}

int64_t dmp_dv_mem_get_total_size(void) {
  return Memory::total_bytes();
}

int dmp_dv_mem_to_device(dmp_dv_mem mem, size_t offs, size_t size, int) {
  return with_memory(mem, [&](Memory& memory) { memory.to_device(offs, size); });
}

int dmp_dv_mem_to_cpu(dmp_dv_mem mem, size_t offs, size_t size, int flags) {
  if ((flags & DMP_DV_MEM_CPU_HADNT_READ) != 0) return 0;
  return with_memory(mem, [&](Memory& memory) { memory.to_cpu(offs, size); });
}

dmp_dv_cmdlist dmp_dv_cmdlist_create(dmp_dv_context ctx) {
  if (!ctx) return set_error("ctx: expected a context; given NULL"), nullptr;
  return guarded(
      [&]() -> dmp_dv_cmdlist {
        auto made = std::make_unique<dmp_dv_cmdlist_impl>();
        made->list = std::make_unique<CommandList>(ctx->context);
        made->context = ctx;
        ++ctx->count;
        return made.release();
      },
      kNull);
}

int dmp_dv_cmdlist_retain(dmp_dv_cmdlist cmdlist) {
  return retained(cmdlist);
}

int dmp_dv_cmdlist_release(dmp_dv_cmdlist cmdlist) {
  return released(cmdlist);
}

int dmp_dv_cmdlist_add_raw(dmp_dv_cmdlist cmdlist, struct dmp_dv_cmdraw* cmd) {
  if (!cmdlist) return refuse(EINVAL, "cmdlist: expected a command list; given NULL");
  if (!cmd) return refuse(kRefused, "cmd: expected a command; given NULL");
  return guarded([&] {
    std::vector<dmp_dv_mem> named;
    cmdlist->list->add({reinterpret_cast<const std::byte*>(cmd), cmd->size}, [&](uint64_t handle) {
      named.push_back(reinterpret_cast<dmp_dv_mem>(static_cast<uintptr_t>(handle)));
      return named.back()->memory;
    });
    for (const dmp_dv_mem memory : named) ++memory->count;
    cmdlist->memories.insert(cmdlist->memories.end(), named.begin(), named.end());
    const unsigned device = 1u << cmd->device_type;
    if ((cmdlist->devices & device) == 0) ++cmdlist->context->count;
    cmdlist->devices |= device;
    return 0;
  });
}

int dmp_dv_cmdlist_commit(dmp_dv_cmdlist cmdlist) {
  if (!cmdlist) return refuse(EINVAL, "cmdlist: expected a command list; given NULL");
  if (cmdlist->list->committed()) return refuse(EALREADY, "cmdlist: expected one that is not committed; given one that is");
  return guarded([&] {
    cmdlist->list->commit();
    return 0;
  });
}

int64_t dmp_dv_cmdlist_exec(dmp_dv_cmdlist cmdlist) {
  if (!cmdlist) return refuse(-EINVAL, "cmdlist: expected a command list; given NULL");
  if (!cmdlist->list->committed()) return refuse(-EINVAL, "cmdlist: expected a committed one");
  return guarded([&] { return cmdlist->list->exec(); }, [](int number) { return int64_t{number > 0 ? -number : number}; });
}

int dmp_dv_cmdlist_wait(dmp_dv_cmdlist cmdlist, int64_t exec_id) {
  if (!cmdlist) return refuse(EINVAL, "cmdlist: expected a command list; given NULL");
  if (exec_id < 0) return refuse(EINVAL, "exec_id: expected an id of dmp_dv_cmdlist_exec(); given a negative number");
  if (!cmdlist->list->committed()) return refuse(kRefused, "cmdlist: expected a committed one");
  return guarded(
      [&] {
        cmdlist->list->wait(exec_id);
        return 0;
      },
      [](int number) { return number > 0 ? -number : number; });
}

int64_t dmp_dv_cmdlist_get_last_exec_time(dmp_dv_cmdlist cmdlist) {
  if (cmdlist && cmdlist->list->committed()) return cmdlist->list->last_exec_time();
  return refuse(-1, "cmdlist: expected a committed command list");
}
