#include "door/engine/free_processors.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string>

#include "door/engine/cgroup_quota.h"
#include "os/kept_fd.h"

namespace softhca::door {
namespace {

using namespace std::chrono_literals;

/// The load changes often, the available processors rarely.
constexpr util::Duration kLookAgain = 500us;
/// Measuring takes at most 1/kParts of the time.
constexpr int kParts = 200;
/// Longest pause, however long a measurement took: the thread may have been off its processor.
constexpr util::Duration kLookAgainMax = 50ms;
constexpr util::Duration kCountAgain = 1s;

/// Takes the leading number off `text`.
std::optional<unsigned> take_number(std::string_view& text) {
  unsigned number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

unsigned count_processors() {
  cpu_set_t all;
  CPU_ZERO(&all);
  // It fails if the machine has more processors than the set can hold.
  if (::sched_getaffinity(0, sizeof all, &all) != 0) return CPU_SETSIZE;
  const auto count = static_cast<unsigned>(CPU_COUNT(&all));
  const auto self = read_small_file("/proc/self/cgroup");
  return std::min(count, cgroup_quota("/sys/fs/cgroup", self).value_or(count));
}

}  // namespace

std::optional<unsigned> running_threads(std::string_view loadavg) {
  for (int i = 0; i != 3; ++i) {
    const auto space = loadavg.find(' ');
    if (space == std::string_view::npos) return std::nullopt;
    loadavg.remove_prefix(space + 1);
  }
  const auto running = take_number(loadavg);
  return loadavg.starts_with('/') ? running : std::nullopt;
}

std::optional<unsigned> processors_of_quota(std::string_view cpu_max) {
  const auto quota = take_number(cpu_max);
  if (!quota || !cpu_max.starts_with(' ')) return std::nullopt;
  cpu_max.remove_prefix(1);
  const auto period = take_number(cpu_max);
  if (!period || *period == 0) return std::nullopt;
  return *quota / *period;
}

util::Duration pause_after_look(util::Duration cost) {
  return std::clamp(kParts * cost, kLookAgain, kLookAgainMax);
}

void FreeProcessors::look(util::Time now) {
  if (now < next_look_) return;
  if (now - counted_ >= kCountAgain) {
    counted_ = now;
    processors_ = count_processors();
    all_ = static_cast<unsigned>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
  }
  const auto begin = clock_();
  if (!loadavg_) {
    loadavg_ = os::keep(os::UniqueFd(::open("/proc/loadavg", O_RDONLY | O_CLOEXEC)));
  }
  std::array<char, 128> line;
  const auto size = ::pread(loadavg_.get(), line.data(), line.size(), 0);
  running_ = running_threads({line.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0))});
  next_look_ = now + pause_after_look(clock_() - begin);
}

/// Counts threads of other processes too. Processors reserved for other processes do not count.
bool FreeProcessors::any() const {
  // The thread for which the work is done needs a second processor.
  return processors_ >= 2 && running_ && *running_ <= processors_;
}

unsigned FreeProcessors::crowd() const { return std::max(1u, running_.value_or(0) / all_); }

}  // namespace softhca::door
