#include "vfio_user/janitor.h"

#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>

namespace softhca::vfio_user {
namespace {

/// Unmapped at a time. The kernel keeps everybody else from mapping meanwhile.
constexpr std::size_t kPiece = std::size_t{2} << 20;
/// No longer than it takes to hand it over.
constexpr std::size_t kSmall = std::size_t{128} << 10;
constexpr auto kPatienceAtTheEnd = std::chrono::seconds(1);

struct Job {
  UniqueFd fd;
  std::byte* start = nullptr;
  std::size_t size = 0;
};

void unmap_in_pieces(std::byte* start, std::size_t size) {
  for (std::size_t done = 0; done < size; done += kPiece) {
    ::munmap(start + done, std::min(kPiece, size - done));
  }
}

}  // namespace

/// What the thread has in common with the janitor, which may go before it.
struct Janitor::Work {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Job> jobs;
  std::size_t pending = 0;  ///< jobs, and the one that is under way
  bool has_thread = false;
  bool ended = false;

  void run() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return ended || !jobs.empty(); });
      if (jobs.empty()) return;
      auto job = std::move(jobs.front());
      jobs.pop_front();
      lock.unlock();
      if (job.size != 0) unmap_in_pieces(job.start, job.size);
      job.fd.reset();
      lock.lock();
      --pending;
      changed.notify_all();
    }
  }

  /// The first job starts the thread, with all signals blocked: they are the loop's.
  void add(const std::shared_ptr<Work>& self, Job job) {
    const std::lock_guard lock(mutex);
    if (!has_thread) {
      sigset_t all, before;
      ::sigfillset(&all);
      ::pthread_sigmask(SIG_SETMASK, &all, &before);
      try {
        std::thread([self] { self->run(); }).detach();
        has_thread = true;
      } catch (const std::system_error&) {
        // The machine has no thread left for us; the job is done here, when `job` goes.
      }
      ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }
    if (!has_thread) {
      unmap_in_pieces(job.start, job.size);
      return;
    }
    jobs.push_back(std::move(job));
    ++pending;
    changed.notify_all();
  }
};

Janitor::Janitor() : work_(std::make_shared<Work>()) {}

Janitor::~Janitor() {
  wait(util::monotonic_now() + kPatienceAtTheEnd);
  const std::lock_guard lock(work_->mutex);
  work_->ended = true;
  work_->changed.notify_all();
}

void Janitor::close(UniqueFd fd) {
  if (fd) work_->add(work_, {.fd = std::move(fd)});
}

void Janitor::unmap(std::byte* start, std::size_t size) {
  if (size <= kSmall) {
    ::munmap(start, size);
  } else {
    work_->add(work_, {.fd = {}, .start = start, .size = size});
  }
}

std::size_t Janitor::pending() const {
  const std::lock_guard lock(work_->mutex);
  return work_->pending;
}

bool Janitor::wait(util::Time until) {
  std::unique_lock lock(work_->mutex);
  const auto left = std::max(util::Duration::zero(), until - util::monotonic_now());
  return work_->changed.wait_for(lock, left, [this] { return work_->pending == 0; });
}

}  // namespace softhca::vfio_user
