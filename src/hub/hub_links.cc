// Links between processes: who is introduced to whom, and what the two are told (link_note.h).
#include <array>
#include <span>

#include "hub/fd_message.h"
#include "hub/hello.h"
#include "hub/hub.h"
#include "hub/hub_client.h"
#include "wire/ethernet.h"

namespace softhca::hub {
namespace {

/// Of a process to another, before the two have a link of their own.
constexpr unsigned kFramesBeforeLink = 16;

}  // namespace

/// To one of the two ends of a link. False: there was no room for it.
bool Hub::note(Client& client, LinkNote::Kind kind, unsigned about) {
  const auto sent = client.link.counters().sent;
  const auto lost = client.link.counters().dropped_full;
  client.link.handle_frame(
      LinkNote{.to = address_of(client.number), .from = address_of(about), .kind = kind}.frame());
  client.losses_seen += client.link.counters().dropped_full - lost;  // no frame of anybody
  return client.link.counters().sent != sent;
}

/// Again until there is room: its link would take what is for the next one of that number.
void Hub::tell_of_the_gone(Client& client) {
  while (!client.gone.empty()) {
    if (!note(client, LinkNote::Kind::kGone, *client.gone.begin())) return;
    client.gone.erase(client.gone.begin());
  }
}

/// Of a frame from `client`. True: it goes nowhere.
bool Hub::look_at(Client& client, std::span<const std::byte> frame) {
  if (frame.size() < wire::EthernetLayout::kSize) return false;
  const auto to = number_of(frame);
  const auto said = LinkNote::parse(frame);
  if (!said) {
    if (client.is_willing && to != 0 && options_.tap == nullptr) count_frame(client, to);
    // A switch that does not know a place sends to all, and who sends to one that has died sends
    // again and again.
    const bool to_the_gone = to != 0 && find(to) == nullptr;
    if (to_the_gone) ++counters_.to_the_gone;
    return to_the_gone;
  }
  // A process speaks for itself only. A guest can send any frame in the name of its server, which
  // is why willingness is said on the socket: where there is none, there is no link to speak of.
  if (said->from != address_of(client.number)) return true;
  const bool for_peer =
      said->kind == LinkNote::Kind::kReady || said->kind == LinkNote::Kind::kSwitched;
  return !for_peer || !client.known.contains(to);
}

void Hub::count_frame(Client& client, unsigned to) {
  if (client.known.contains(to)) return;
  if (client.frames_to.size() >= Client::kLinksMax) client.frames_to.clear();
  if (++client.frames_to[to] < kFramesBeforeLink) return;
  client.frames_to.erase(to);
  auto* const other = find(to);
  if (other == nullptr || other == &client || !other->is_willing) return;
  if (client.knows_enough() || other->knows_enough()) return;
  introduce(client, *other);
}

/// Each gets the rings, as it sees them, and what wakes the other. Who gets nothing does not say
/// that it is ready, and all stays as it was.
void Hub::introduce(Client& a, Client& b) {
  const auto to_b = util::SharedRing::create(options_.link_capacity);
  const auto to_a = util::SharedRing::create(options_.link_capacity);
  if (!to_a || !to_b) return;
  const auto tell = [this](Client& whom, const Client& of, int to, int from) {
    Introduction introduction;
    introduction.number = of.number;
    introduction.mac = mac_of(of.number);
    const std::array<int, kIntroductionFds> fds = {to, from, of.wake.get()};
    if (!send_message(whom.socket.get(), std::as_bytes(std::span(&introduction, 1)), fds)) return;
    note(whom, LinkNote::Kind::kIntroduced, of.number);
  };
  tell(a, b, to_b->fd(), to_a->fd());
  tell(b, a, to_a->fd(), to_b->fd());
  a.known.insert(b.number);
  b.known.insert(a.number);
  ++counters_.links;
}

}  // namespace softhca::hub
