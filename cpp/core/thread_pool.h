// A thread pool, and tasks that run on threads of their own.
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

// Starts tasks in FIFO order. Thread-safe.
class ThreadPool {
 public:
  // Creates at most `max_threads` threads, and no more than there are processors. If no thread can be created, add() runs the task itself.
  explicit ThreadPool(size_t max_threads);
  ~ThreadPool();  // waits for running tasks and drops queued ones
  ThreadPool(const ThreadPool&) = delete;

  size_t size() const { return threads_.size(); }
  std::future<void> add(std::function<void()> task);  // get() rethrows the task's exception

 private:
  void run_worker();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::packaged_task<void()>> tasks_;
  bool stopping_ = false;
  std::vector<std::jthread> threads_;
};

// Runs a task on its own thread. If no thread can be created, the task runs when its result is requested.
template <class Task>
auto run_in_background(Task task) -> std::future<decltype(task())> {
  try {
    return std::async(std::launch::async, task);
  } catch (const std::system_error&) {
    return std::async(std::launch::deferred, task);
  }
}

}  // namespace pumice
