#include "core/thread_pool.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "core/signal_blocker.h"

namespace pumice {

ThreadPool::ThreadPool(size_t max_threads) {
  const size_t count = std::min<size_t>(max_threads, std::max(1u, std::thread::hardware_concurrency()));
  threads_.reserve(count);
  try {
    const SignalBlocker blocked;
    while (threads_.size() < count)
      threads_.emplace_back([this] {
        set_thread_name("pumice pool");
        run_worker();
      });
  } catch (const std::system_error&) {  // run with fewer threads
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    tasks_.clear();
  }
  changed_.notify_all();
  threads_.clear();
}

std::future<void> ThreadPool::add(std::function<void()> task) {
  std::packaged_task<void()> added(std::move(task));
  auto done = added.get_future();
  if (threads_.empty()) {
    added();
    return done;
  }
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(added));
  }
  changed_.notify_one();
  return done;
}

void ThreadPool::run_worker() {
  for (;;) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
    if (stopping_) return;
    auto task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
  }
}

}  // namespace pumice
