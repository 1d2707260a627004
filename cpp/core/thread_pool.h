// A few threads for work that is cut into tasks.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace pumice {

// Begins tasks in the order in which they were added. Thread-safe.
class ThreadPool {
 public:
  // Makes at most so many threads, and no more than there are processors. In a pool of none, add() does its task itself.
  explicit ThreadPool(size_t most);
  ~ThreadPool();  // waits for tasks that have begun; drops the others
  ThreadPool(const ThreadPool&) = delete;

  size_t size() const { return threads_.size(); }
  std::future<void> add(std::function<void()> task);  // get() throws what the task has thrown

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::packaged_task<void()>> tasks_;
  bool ends_ = false;
  std::vector<std::jthread> threads_;
};

// Begins a task on a thread of its own. Where the system grants no thread, the task is done when its result is asked for.
template <class Task>
auto in_background(Task task) -> std::future<decltype(task())> {
  try {
    return std::async(std::launch::async, task);
  } catch (const std::system_error&) {
    return std::async(std::launch::deferred, task);
  }
}

}  // namespace pumice
