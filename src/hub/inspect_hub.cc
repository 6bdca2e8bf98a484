#include "hub/inspect_hub.h"

namespace softhca::hub {
namespace {

void inspect(const CmDispatch::Counters& cm, util::InspectNode& out) {
  out.add("forwarded", cm.forwarded);
  out.add("duplicates", cm.duplicates);
  out.add("unexpected", cm.unexpected);
  out.add("dropped_malformed", cm.malformed);
  out.add("dropped_unknown", cm.unknown);
  out.add("dropped_over_rate", cm.over_rate);
  out.add("dropped_unread", cm.unread);
  out.add("listeners_refused", cm.refused);
}

/// Addresses that processes share, and the sockets of RoCEv2.
void inspect(const Station& station, util::InspectNode& out) {
  const auto& counters = station.counters();
  out.add("packets", counters.packets);
  out.add("messages", counters.messages);
  out.add("neighbors", counters.neighbors);
  out.add("dropped_no_process", counters.no_process);
  out.add("dropped_unfit", counters.unfit);
  const auto host = station.host().counters();
  out.add("addresses", station.host().addresses());
  out.add("sockets_granted", host.joined);
  out.add("sockets_refused", host.refused);
  out.add("dropped_no_block", host.groups.dropped);
  out.add("dropped_overflow", host.groups.overflow);
  out.add("dropped_no_room", host.lost);
  inspect(host.cm, out.child("cm"));
}

}  // namespace

void inspect(const Hub& hub, util::InspectNode& out) {
  const auto& counters = hub.counters();
  out.add("processes", hub.clients());
  out.add("joined", counters.joined);
  out.add("left", counters.left);
  out.add("expelled", counters.expelled);
  out.add("refused", counters.refused);
  out.add("frames", counters.frames);
  out.add("links", counters.links);
  out.add("dropped_full", counters.dropped);
  out.add("dropped_to_departed", counters.to_departed);
  if (hub.station().number() != 0) inspect(hub.station(), out.child("shared"));
}

}  // namespace softhca::hub
