#include "vfio_user/client_interrupts.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "os/event_signal.h"

namespace softhca::vfio_user {
namespace {

using namespace protocol;

constexpr std::uint32_t kDataFlags = kIrqSetDataNone | kIrqSetDataBool | kIrqSetDataEventfd;
constexpr std::uint32_t kActionFlags =
    kIrqSetActionMask | kIrqSetActionUnmask | kIrqSetActionTrigger;

/// Cost of a request per vector: with a system call for its eventfd, and without.
constexpr std::int64_t kEventfdWork = 700;
constexpr std::int64_t kMaskWork = 10;

}  // namespace

ClientVectors::ClientVectors(pcie::InterruptMechanism* mechanism, os::Janitor* janitor,
                             WakeupMeter& meter)
    : mechanism_(mechanism),
      janitor_(janitor),
      meter_(meter),
      eventfds_(mechanism == nullptr ? 0 : mechanism->vectors()),
      masked_(eventfds_.size()) {
  if (mechanism_ != nullptr) mechanism_->set_sink(this, pcie::Masking::kExternal);
}

ClientVectors::~ClientVectors() {
  if (mechanism_ != nullptr) mechanism_->set_sink(nullptr);
  if (janitor_ != nullptr && eventfd_count_ != 0) janitor_->close_eventfds(std::move(eventfds_));
}

void ClientVectors::raise(std::uint16_t vector) {
  if (meter_.exceeded()) return;
  meter_.measure([this, vector] {
    os::EventSignal::instance().raise(eventfds_[vector].get());
    return 0;
  });
}

void ClientVectors::set_eventfd(std::uint32_t vector, os::UniqueFd eventfd) {
  const pcie::Paused paused(threads());
  auto& held = eventfds_[vector];
  if (held) --eventfd_count_;
  if (eventfd) ++eventfd_count_;
  held = std::move(eventfd);
  update_mask(vector);
}

void ClientVectors::set_masked(std::uint32_t vector, bool masked) {
  masked_[vector] = masked;
  update_mask(vector);
}

void ClientVectors::trigger(std::uint32_t vector) {
  mechanism_->raise(static_cast<std::uint16_t>(vector));
}

void ClientVectors::disable() {
  const pcie::Paused paused(threads());
  if (janitor_ != nullptr && eventfd_count_ != 0) {
    std::vector<os::UniqueFd> others(count());
    janitor_->close_eventfds(std::exchange(eventfds_, std::move(others)));
    eventfd_count_ = 0;
  }
  for (std::uint32_t vector = 0; vector < count(); ++vector) {
    masked_[vector] = false;
    set_eventfd(vector, {});
  }
}

void ClientVectors::update_mask(std::uint32_t vector) {
  mechanism_->set_vector_masked(static_cast<std::uint16_t>(vector),
                                masked_[vector] || !eventfds_[vector]);
}

const ClientVectors* ClientInterrupts::find(std::uint32_t index) const {
  if (index == kMsixIrqIndex) return &msix_;
  return index == kMsiIrqIndex ? &msi_ : nullptr;
}

ClientVectors* ClientInterrupts::find(std::uint32_t index) {
  return const_cast<ClientVectors*>(std::as_const(*this).find(index));
}

IrqInfo ClientInterrupts::info(std::uint32_t index) const {
  IrqInfo out{.argsz = sizeof(IrqInfo), .flags = 0, .index = index, .count = 0};
  if (const auto* vectors = find(index); vectors != nullptr && vectors->count() != 0) {
    // Without NORESIZE, because a client may add vectors one by one while others are in use.
    out.flags = kIrqInfoEventfd | kIrqInfoMaskable;
    out.count = vectors->count();
  }
  return out;
}

MessageResult ClientInterrupts::set(const IrqSet& request, std::span<const std::byte> data,
                                    std::span<os::UniqueFd> fds) {
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
  auto* vectors = find(request.index);
  if (request.count == 0) {
    // "A count (and start) of 0, with data flags of VFIO_IRQ_SET_DATA_NONE disables all interrupts
    // of the index". Types that the function does not have are always disabled.
    if (kind != kIrqSetDataNone || request.start != 0 || action != kIrqSetActionTrigger) {
      return refuse(EINVAL, "count 0");
    }
    if (vectors == nullptr) return kDone;
    work_ += std::int64_t{vectors->count()} * kMaskWork;
    vectors->disable();
    return kDone;
  }
  const auto available = vectors == nullptr ? 0 : vectors->count();
  if (request.start >= available || request.count > available - request.start) {
    return refuse(EINVAL, "beyond the interrupts of this type");
  }
  // Pauses the device's threads once for all vectors.
  const pcie::Paused paused(vectors->threads());
  work_ += std::int64_t{request.count} *
           (kind == kIrqSetDataEventfd || action != kIrqSetActionMask ? kEventfdWork : kMaskWork);
  if (kind == kIrqSetDataEventfd) {
    if (action != kIrqSetActionTrigger) {
      return refuse(ENOTSUP, "eventfds that report masking are not offered");
    }
    return set_eventfds(*vectors, request, fds);
  }
  for (std::uint32_t i = 0; i < request.count; ++i) {
    if (kind == kIrqSetDataBool && data[i] == std::byte{0}) continue;
    const auto vector = request.start + i;
    if (action == kIrqSetActionTrigger) {
      vectors->trigger(vector);
    } else {
      vectors->set_masked(vector, action == kIrqSetActionMask);
    }
    if (meter_.exceeded()) return refuse(EBUSY, "its eventfds are slow to signal");
  }
  return kDone;
}

MessageResult ClientInterrupts::set_eventfds(ClientVectors& vectors, const IrqSet& request,
                                             std::span<os::UniqueFd> fds) {
  // "If no file descriptors are provided, this de-assigns the specified previously configured
  // interrupts": the client sends its -1 as the absence of descriptors.
  if (!fds.empty() && fds.size() != request.count) {
    return refuse(EINVAL, "number of descriptors is not the count");
  }
  for (const auto& fd : fds) {
    if (!os::EventSignal::instance().is_eventfd(fd.get()))
      return refuse(EINVAL, "a descriptor is not an eventfd");
  }
  if (!fds.empty() && eventfds() + fds.size() > max_eventfds_) {
    return refuse(EMFILE, "the client's share of the process's descriptors is used up");
  }
  for (std::uint32_t i = 0; i < request.count; ++i) {
    vectors.set_eventfd(request.start + i, fds.empty() ? os::UniqueFd() : std::move(fds[i]));
  }
  return kDone;
}

}  // namespace softhca::vfio_user
