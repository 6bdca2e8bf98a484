#include "os/janitor.h"

#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

namespace softhca::os {
namespace {

/// Bytes unmapped at a time: while it unmaps, the kernel blocks all other mappings of the process.
constexpr std::size_t kPiece = std::size_t{2} << 20;
/// Unmapping up to this size takes no longer than handing it over.
constexpr std::size_t kSmall = std::size_t{128} << 10;
constexpr auto kPatienceAtTheEnd = std::chrono::seconds(1);

struct Job {
  std::vector<UniqueFd> fds;
  Janitor::Maps maps;
  std::shared_ptr<MemoryOwner> owner;  ///< of the maps; outlives their guard
};

void unmap_in_pieces(Janitor::Map map) {
  const auto file = MemoryGuard::instance().remove(map.data());
  if (!file) return;  // not guarded
  const auto piece = std::max(kPiece, file->page);
  for (std::size_t done = 0; done < file->size; done += piece) {
    ::munmap(file->start + done, std::min(piece, file->size - done));
  }
}

void do_all(Job& job) {
  Janitor::unmap_now(job.maps);
  for (auto& fd : job.fds) fd.reset();
}

std::size_t count_open(const std::vector<UniqueFd>& fds) {
  return static_cast<std::size_t>(
      std::ranges::count_if(fds, [](const UniqueFd& fd) { return static_cast<bool>(fd); }));
}

}  // namespace

/// A queue of jobs and its thread. Shared by the thread and the janitor, which may be destroyed
/// first.
struct Janitor::Queue {
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::deque<Job> jobs;
  EventLoop::Notice* gone = nullptr;  ///< null after the janitor is destroyed
  bool asked = false;                 ///< notify_when_gone() is pending
  bool busy = false;                  ///< a job is under way
  bool has_thread = false;
  bool ended = false;
  // Totals of all jobs, including the current one.
  std::atomic<std::size_t> maps = 0;
  std::atomic<std::size_t> descriptors = 0;

  bool idle() const { return jobs.empty() && !busy; }

  void run() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return ended || !jobs.empty(); });
      if (jobs.empty()) return;
      auto job = std::move(jobs.front());
      jobs.pop_front();
      busy = true;
      lock.unlock();
      for (const auto& map : job.maps) {
        unmap_in_pieces(map);
        --maps;
      }
      for (auto& fd : job.fds) {
        if (!fd) continue;
        fd.reset();
        --descriptors;
      }
      job = Job{};
      lock.lock();
      busy = false;
      if (std::exchange(asked, false) && gone != nullptr) gone->raise();
      changed.notify_all();
    }
  }

  /// The first job starts the thread, with all signals blocked: the loop handles them.
  void start(const std::shared_ptr<Queue>& self) {
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      std::thread([self] { self->run(); }).detach();
      has_thread = true;
    } catch (const std::exception&) {
      // No thread or no memory is available.
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  void add(const std::shared_ptr<Queue>& self, Job& job) noexcept {
    const auto more_maps = job.maps.size();
    const auto more_descriptors = count_open(job.fds);
    {
      const std::lock_guard lock(mutex);
      if (!has_thread) start(self);
      bool handed_over = false;
      try {
        if (has_thread) {
          jobs.emplace_back();
          handed_over = true;
        }
      } catch (const std::bad_alloc&) {
      }
      if (handed_over) {
        jobs.back() = std::move(job);
        maps += more_maps;
        descriptors += more_descriptors;
        changed.notify_all();
        return;
      }
    }
    do_all(job);
  }

  /// False if there is no job.
  bool notify_when_done() {
    const std::lock_guard lock(mutex);
    asked = !idle();
    return asked;
  }

  bool wait(util::Time until) {
    std::unique_lock lock(mutex);
    const auto left = std::max(util::Duration::zero(), until - util::monotonic_now());
    return changed.wait_for(lock, left, [this] { return idle(); });
  }

  /// The janitor is gone. The thread ends after its last job.
  void end() {
    const std::lock_guard lock(mutex);
    gone = nullptr;
    ended = true;
    changed.notify_all();
  }
};

Janitor::Janitor(EventLoop::Notice* gone)
    : known_(std::make_shared<Queue>()), foreign_(std::make_shared<Queue>()) {
  known_->gone = foreign_->gone = gone;
}

Janitor::~Janitor() {
  wait(util::monotonic_now() + kPatienceAtTheEnd);
  known_->end();
  foreign_->end();
}

void Janitor::close(UniqueFd fd) noexcept {
  if (!fd) return;
  Job job;
  try {
    job.fds.emplace_back();
  } catch (const std::bad_alloc&) {
    return fd.reset();
  }
  job.fds.back() = std::move(fd);
  foreign_->add(foreign_, job);
}

void Janitor::close_eventfds(std::vector<UniqueFd> fds) noexcept {
  if (fds.empty()) return;
  Job job{.fds = std::move(fds), .maps = {}, .owner = nullptr};
  known_->add(known_, job);
}

void Janitor::unmap(Maps maps, std::shared_ptr<MemoryOwner> owner) noexcept {
  if (maps.empty()) return;
  Job job{.fds = {}, .maps = std::move(maps), .owner = std::move(owner)};
  if (job.maps.size() == 1 && job.maps[0].size() <= kSmall) return do_all(job);
  known_->add(known_, job);
}

void Janitor::unmap_now(std::span<const Map> maps) {
  for (const auto& map : maps) unmap_in_pieces(map);
}

void Janitor::notify_when_gone() {
  const bool known_will = known_->notify_when_done();
  const bool foreign_will = foreign_->notify_when_done();
  if (!known_will && !foreign_will && known_->gone != nullptr) known_->gone->raise();
}

std::size_t Janitor::pending_maps() const { return known_->maps; }

std::size_t Janitor::pending_descriptors() const {
  return known_->descriptors + foreign_->descriptors;
}

bool Janitor::wait(util::Time until) { return known_->wait(until) && foreign_->wait(until); }

}  // namespace softhca::os
