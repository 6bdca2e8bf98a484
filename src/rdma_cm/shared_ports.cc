// Sharing of a port number by identifiers of one process, by Linux's rules (cma_check_port).
// Identifiers may share a number in these cases:
// - they have different addresses;
// - 0.0.0.0 and :: serve one IP version each;
// - both ask to share it, until one of them listens.
// Other processes see a number as owned by one process.
#include <cerrno>

#include "rdma_cm/manager.h"

namespace softhca::rdma_cm {
namespace {

/// The error if two identifiers with one number conflict.
Errno conflict_of(const Identifier& one, const Identifier& other) {
  const bool apart = one.one_family && other.one_family;
  if (apart && one.source.family() != other.source.family()) return 0;
  if (one.source.is_of_no_device() || other.source.is_of_no_device()) return EADDRNOTAVAIL;
  return one.source.gid() == other.source.gid() ? EADDRINUSE : 0;
}

bool have_one_number(const Identifier& one, const Identifier& other) {
  return &one != &other && other.owns_port && other.port_space == one.port_space &&
         other.source.port() == one.source.port();
}

}  // namespace

/// Checks against the other identifiers of this process.
Errno Manager::check_port(const Id& id, bool reuses) const {
  for (const auto& [number, other] : identifiers_.all()) {
    if (!have_one_number(id, *other)) continue;
    if (reuses && other->reuses_port && other->state != State::kListening) continue;
    if (const auto wrong = conflict_of(id, *other); wrong != 0) return wrong;
  }
  return 0;
}

/// Another identifier of this process with the same number.
Manager::Id* Manager::other_owner(const Id& id) const {
  for (const auto& [number, other] : identifiers_.all()) {
    if (have_one_number(id, *other)) return other.get();
  }
  return nullptr;
}

/// Claims the port number of its address, or a free one.
Errno Manager::take_port(Id& id) {
  const bool any = id.source.is_of_no_device();
  if (id.source.port() != 0) {
    if (const auto wrong = check_port(id, id.reuses_port); wrong != 0) return wrong;
    const auto wrong =
        other_owner(id) != nullptr
            ? 0
            : options_.port_numbers.claim(id.port_space, id.source.port(), id.local.gid, any);
    id.owns_port = wrong == 0;
    return wrong;
  }
  const auto range = options_.port_numbers.free_numbers();
  const unsigned count = range.last - range.first + 1u;
  for (unsigned i = 0; i != count; ++i) {
    last_port_ = static_cast<std::uint16_t>((last_port_ + 1u) % count);
    const auto port = static_cast<std::uint16_t>(range.first + last_port_);
    if (options_.port_numbers.claim(id.port_space, port, id.local.gid, any) != 0) continue;
    id.source.set_port(port);
    id.owns_port = true;
    return 0;
  }
  return EADDRNOTAVAIL;
}

/// Releases the port number. If another identifier of this process shares it, claims it again for
/// that one's address. A listener whose connections go on will probably return.
void Manager::leave_port(Id& id) {
  if (!id.owns_port) return;
  id.owns_port = false;
  const auto port = id.source.port();
  bool returns = false;
  if (id.state == State::kListening) {
    for (const auto& [number, other] : identifiers_.all()) {
      returns |= other->accepted && other->source.port() == port &&
                 other->state >= State::kReqReceived && other->state <= State::kDreqSent;
    }
    std::erase_if(left_, [this](const auto& one) { return now_ - one.second >= kListenAgain; });
    if (returns) left_[port] = now_;
  }
  options_.port_numbers.release(id.port_space, port, returns);
  if (const auto* other = other_owner(id); other != nullptr) {
    (void)options_.port_numbers.claim(id.port_space, port, other->local.gid,
                                      other->source.is_of_no_device());
  }
}

}  // namespace softhca::rdma_cm
