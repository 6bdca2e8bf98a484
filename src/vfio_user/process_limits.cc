#include "vfio_user/process_limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "os/descriptor_limit.h"
#include "os/memory_guard.h"
#include "vfio_user/capabilities.h"
#include "vfio_user/message_stream.h"

namespace softhca::vfio_user {
namespace {

/// Maps that the process itself needs: libraries, heaps, stacks.
constexpr std::size_t kOwnMaps = 4096;
/// Descriptors that it needs: files, waiting sockets, and all that one message can carry.
constexpr std::size_t kOwnDescriptors = 512;
/// Descriptors per client besides eventfds: sockets, and descriptors whose message is incomplete.
constexpr std::size_t kWaitingDescriptors = kMaxWaitingFds + 8;
/// A device with fewer is not useful.
constexpr std::size_t kFewestMaps = 64;
constexpr std::size_t kFewestEventfds = 16;

std::size_t max_map_count() {
  std::size_t count = 65530;  // default, if /proc does not say
  std::ifstream("/proc/sys/vm/max_map_count") >> count;
  return std::min(count, os::MemoryGuard::kMaxRanges + kOwnMaps);
}

/// The share of each of `clients` in the amount above `reserved`.
std::size_t share(std::size_t all, std::size_t reserved, std::size_t clients) {
  return all <= reserved ? 0 : (all - reserved) / clients;
}

}  // namespace

util::Result<ClientShare> share_process(std::size_t clients) {
  const auto maps = share(max_map_count(), kOwnMaps, clients);
  const auto descriptors = share(os::raise_descriptor_limit(), kOwnDescriptors, clients);
  if (maps < kFewestMaps) {
    return util::fail(
        fmt::format("{} devices get {} memory maps each: raise vm.max_map_count", clients, maps));
  }
  if (descriptors < kWaitingDescriptors + kFewestEventfds) {
    return util::fail(fmt::format(
        "{} devices get {} descriptors each: raise the limit of open files (ulimit -Hn)", clients,
        descriptors));
  }
  return ClientShare{.maps = std::min(maps, kMaxDmaMaps),
                     .eventfds = descriptors - kWaitingDescriptors};
}

}  // namespace softhca::vfio_user
