// Several command lists in flight, waited for by threads: each pools an image of its own and squashes the result.
//
//   c++ -std=c++17 pipeline.cpp $(pkg-config --cflags --libs dmpdv) -pthread -o pipeline
#include <dmp_dv.h>
#include <dmp_dv_cmdraw_v1.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

namespace {

constexpr int kSide = 16, kChannels = 8, kLists = 4, kRounds = 8;
constexpr size_t kInput = kSide * kSide * kChannels, kOutput = kInput / 4;
constexpr uint16_t kOne = 0x3c00, kTwo = 0x4000;  // float16

template <auto release>
struct Release {
  template <typename T>
  void operator()(T* handle) const {
    release(handle);
  }
};
template <typename Handle, auto release>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Release<release>>;
using Context = Owned<dmp_dv_context, dmp_dv_context_release>;
using Memory = Owned<dmp_dv_mem, dmp_dv_mem_release>;
using List = Owned<dmp_dv_cmdlist, dmp_dv_cmdlist_release>;

void check(bool holds, const char* call) {
  if (!holds) throw std::runtime_error(std::string(call) + ": " + dmp_dv_get_last_error_message());
}

struct Job {
  Memory memory;
  List list;
};

// The largest of 2x2 pixels, no larger than 6.
Job make_job(const Context& context, int number) {
  Job job{Memory(dmp_dv_mem_alloc(context.get(), (kInput + kOutput) * sizeof(uint16_t))), List(dmp_dv_cmdlist_create(context.get()))};
  check(job.memory && job.list, "create");
  auto* values = reinterpret_cast<uint16_t*>(dmp_dv_mem_map(job.memory.get()));
  check(values && dmp_dv_mem_sync_start(job.memory.get(), 0, 1) == 0, "map");
  for (size_t i = 0; i < kInput; ++i) values[i] = number % 2 == 0 ? kOne : kTwo;
  check(dmp_dv_mem_sync_end(job.memory.get()) == 0, "sync_end");

  dmp_dv_cmdraw_conv_v1 command{};
  command.header.size = sizeof command;
  command.header.device_type = DMP_DV_DEV_CONV;
  command.header.version = 1;
  dmp_dv_cmdraw_conv_v0& conv = command.conv_cmd;
  conv.header.size = sizeof conv;
  conv.input_buf.mem = conv.output_buf.mem = job.memory.get();
  conv.output_buf.offs = kInput * sizeof(uint16_t);
  conv.topo = 1;
  conv.w = conv.h = kSide;
  conv.z = 1;
  conv.c = kChannels;
  conv.run[0].m = kChannels;
  conv.run[0].pool_enable = 1;
  conv.run[0].pool_size = conv.run[0].pool_stride = 0x0202;
  conv.run[0].actfunc = 6;
  check(dmp_dv_cmdlist_add_raw(job.list.get(), &command.header) == 0, "add_raw");
  check(dmp_dv_cmdlist_commit(job.list.get()) == 0, "commit");
  return job;
}

int run() {
  const Context context(dmp_dv_context_create());
  check(context != nullptr, "context_create");
  std::vector<Job> jobs;
  for (int i = 0; i < kLists; ++i) jobs.push_back(make_job(context, i));

  std::vector<std::thread> threads;
  std::vector<int> failures(kLists);
  for (int i = 0; i < kLists; ++i)
    threads.emplace_back([&, i] {
      std::vector<int64_t> ids;
      for (int round = 0; round < kRounds; ++round) ids.push_back(dmp_dv_cmdlist_exec(jobs[i].list.get()));
      for (const int64_t id : ids) failures[i] += id < 1 || dmp_dv_cmdlist_wait(jobs[i].list.get(), id) != 0;
    });
  for (auto& thread : threads) thread.join();

  int wrong = 0;
  for (int i = 0; i < kLists; ++i) {
    wrong += failures[i];
    check(dmp_dv_mem_sync_start(jobs[i].memory.get(), 1, 0) == 0, "sync_start");
    const auto* values = reinterpret_cast<const uint16_t*>(dmp_dv_mem_map(jobs[i].memory.get()));
    for (size_t k = 0; k < kOutput; ++k) wrong += values[kInput + k] != (i % 2 == 0 ? kOne : kTwo);
  }
  std::printf("%d lists, %d executions each: %d wrong\n", kLists, kRounds, wrong);
  return wrong != 0;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
