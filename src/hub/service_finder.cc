#include "hub/service_finder.h"

#include <algorithm>

namespace softhca::hub {

void ServiceFinder::ask(const Service& service) {
  if (asked_.size() == kMax && !asked_.contains(service)) {
    asked_.erase(
        std::ranges::min_element(asked_, {}, [](const auto& one) { return one.second.order; }));
  }
  asked_[service].order = ++asks_;
  below().transmit(
      ServiceNote{.to = wire::MacAddress::broadcast(), .from = mac_, .service = service}.frame());
}

std::optional<wire::Gid> ServiceFinder::find(const Service& service) const {
  const auto at = asked_.find(service);
  return at == asked_.end() ? std::nullopt : at->second.owner;
}

void ServiceFinder::arrive(const wire::Frame& frame, fabric::Receiver& to) {
  const auto header = frame.link_header();
  // A frame with decoded headers is a transport packet.
  if (header.size() == wire::EthernetLayout::kSize && frame.headers() == nullptr &&
      wire::EthernetView(header).get(wire::EthernetLayout::ether_type) == ServiceNote::kEtherType) {
    if (const auto note = ServiceNote::parse(frame)) return handle(*note);
  }
  to.handle_frame(frame);
}

/// Any station may have sent it. Answers that were not asked for are ignored, and the first one
/// counts.
void ServiceFinder::handle(const ServiceNote& note) {
  if (note.from.is_multicast() || note.from == mac_) return;
  if (note.kind == ServiceNote::Kind::kAnswer) {
    const auto at = asked_.find(note.service);
    if (at != asked_.end() && !at->second.owner) at->second.owner = note.owner;
    return;
  }
  const auto owner = owner_ ? owner_(note.service) : std::nullopt;
  if (!owner) return;
  below().transmit(ServiceNote{.to = note.from,
                               .from = mac_,
                               .kind = ServiceNote::Kind::kAnswer,
                               .service = note.service,
                               .owner = *owner}
                       .frame());
}

}  // namespace softhca::hub
