#include "vfio_user/client_interrupts.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <bit>

namespace softhca::vfio_user {
namespace {

using namespace protocol;

constexpr std::uint32_t kDataFlags = kIrqSetDataNone | kIrqSetDataBool | kIrqSetDataEventfd;
constexpr std::uint32_t kActionFlags =
    kIrqSetActionMask | kIrqSetActionUnmask | kIrqSetActionTrigger;

/// An eventfd has no file type. A pipe or socket in its place could block us or end us by SIGPIPE.
bool prepare_eventfd(int fd) {
  struct stat status;
  if (::fstat(fd, &status) != 0 || (status.st_mode & S_IFMT) != 0) return false;
  const auto flags = ::fcntl(fd, F_GETFL);
  // A full counter must not block us either: the interrupt is pending at the client then.
  return flags >= 0 && ((flags & O_NONBLOCK) || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0);
}

}  // namespace

ClientInterrupts::ClientInterrupts(pcie::Msix& msix)
    : msix_(msix), vectors_(msix.layout().vectors) {
  msix_.set_sink(this, pcie::Msix::Masking::kExternal);
}

ClientInterrupts::~ClientInterrupts() { msix_.set_sink(nullptr); }

void ClientInterrupts::raise(std::uint16_t vector) {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(vectors_[vector].eventfd.get(), &one, sizeof one);
}

IrqInfo ClientInterrupts::info(std::uint32_t index) const {
  IrqInfo out{.argsz = sizeof(IrqInfo), .flags = 0, .index = index, .count = 0};
  if (index == kMsixIrqIndex) {
    // Without NORESIZE: a client may add vectors one by one while others are in use.
    out.flags = kIrqInfoEventfd | kIrqInfoMaskable;
    out.count = static_cast<std::uint32_t>(vectors_.size());
  }
  return out;
}

Verdict ClientInterrupts::set(const IrqSet& request, std::span<const std::byte> data,
                              std::span<UniqueFd> fds) {
  if (request.argsz < sizeof request) return refuse(EINVAL, "argsz below the structure's size");
  if (request.flags & ~(kDataFlags | kActionFlags)) return refuse(EINVAL, "unknown flags");
  const auto kind = request.flags & kDataFlags;
  const auto action = request.flags & kActionFlags;
  if (!std::has_single_bit(kind)) return refuse(EINVAL, "not exactly one kind of data");
  if (!std::has_single_bit(action)) return refuse(EINVAL, "not exactly one action");
  if (request.index >= kIrqIndexCount) return refuse(EINVAL, "no such interrupt type");
  if (kind != kIrqSetDataEventfd && !fds.empty())
    return refuse(EINVAL, "descriptors without their flag");
  if (data.size() != (kind == kIrqSetDataBool ? request.count : 0)) {
    return refuse(EINVAL, "data does not match its count");
  }
  if (request.count == 0) {
    // "A count (and start) of 0, with data flags of VFIO_IRQ_SET_DATA_NONE disables all interrupts
    // of the index", and the types that we do not have are always disabled.
    if (kind != kIrqSetDataNone || request.start != 0 || action != kIrqSetActionTrigger) {
      return refuse(EINVAL, "count 0");
    }
    if (request.index == kMsixIrqIndex) disable();
    return kDone;
  }
  const auto available = request.index == kMsixIrqIndex ? vectors_.size() : 0;
  if (request.start >= available || request.count > available - request.start) {
    return refuse(EINVAL, "beyond the interrupts of this type");
  }
  if (kind == kIrqSetDataEventfd) {
    if (action != kIrqSetActionTrigger) {
      return refuse(ENOTSUP, "eventfds that tell of masking are not offered");
    }
    return set_eventfds(request, fds);
  }
  for (std::uint32_t i = 0; i < request.count; ++i) {
    if (kind == kIrqSetDataBool && data[i] == std::byte{0}) continue;
    const auto vector = request.start + i;
    if (action == kIrqSetActionTrigger) {
      msix_.raise(static_cast<std::uint16_t>(vector));
    } else {
      vectors_[vector].masked = action == kIrqSetActionMask;
      update_mask(vector);
    }
  }
  return kDone;
}

Verdict ClientInterrupts::set_eventfds(const IrqSet& request, std::span<UniqueFd> fds) {
  // "If no file descriptors are provided, this de-assigns the specified previously configured
  // interrupts": the client's -1 travels as the absence of descriptors.
  if (!fds.empty() && fds.size() != request.count) {
    return refuse(EINVAL, "number of descriptors is not the count");
  }
  for (const auto& fd : fds) {
    if (!prepare_eventfd(fd.get())) return refuse(EINVAL, "a descriptor is not an eventfd");
  }
  for (std::uint32_t i = 0; i < request.count; ++i) {
    const auto vector = request.start + i;
    vectors_[vector].eventfd = fds.empty() ? UniqueFd() : std::move(fds[i]);
    update_mask(vector);
  }
  return kDone;
}

void ClientInterrupts::disable() {
  for (std::uint32_t vector = 0; vector < vectors_.size(); ++vector) {
    vectors_[vector] = Vector{};
    update_mask(vector);
  }
}

void ClientInterrupts::update_mask(std::uint32_t vector) {
  const auto& v = vectors_[vector];
  msix_.set_vector_masked(static_cast<std::uint16_t>(vector), v.masked || !v.eventfd);
}

}  // namespace softhca::vfio_user
