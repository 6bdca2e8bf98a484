// Links between processes: their creation, and the notes to both ends (link_note.h). Frames that
// wait for room. The hub's port to hubs of other machines (other_hubs.h), the station of shared
// addresses (station.h), its listeners, and the frames of datagrams that the hub forwards.
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <span>
#include <utility>

#include "hub/fd_message.h"
#include "hub/hello.h"
#include "hub/hub.h"
#include "hub/hub_client.h"
#include "os/foreign_bytes.h"
#include "wire/ethernet.h"

namespace softhca::hub {
namespace {

/// Frames from one process to another before the hub gives them a link.
constexpr unsigned kFramesBeforeLink = 16;
/// Frames from other hubs in each round, but at least those of a datagram. One without frames costs
/// as much as a frame.
constexpr std::size_t kFramesOfOthers = 16;
/// Bytes of a process's socket that are read for its listeners: as many as it may have.
constexpr std::size_t kBytesOfListeners = Request::kSizeMax * CmDispatch::kListenersMax;
/// The cost of reading one (util::WorkBudget).
constexpr std::int64_t kListenerWork = 1000;
/// Bytes that must be free in a receiver's ring before a frame is sent: some frames of any
/// common size.
std::size_t room_for_frames(std::size_t ring_capacity) {
  return std::min(std::size_t{128} << 10, ring_capacity / 2);
}

}  // namespace

/// Sends a note to one end of a link. False: its ring is full.
bool Hub::note(Client& client, LinkNote::Kind kind, unsigned about) {
  const auto sent = client.link.counters().sent;
  const auto lost = client.link.counters().dropped_full;
  client.link.handle_frame(
      LinkNote{.to = address_of(client.number), .from = address_of(about), .kind = kind}.frame());
  client.losses_seen += client.link.counters().dropped_full - lost;  // not a client's frame
  return client.link.counters().sent != sent;
}

/// Notifies the client of departed peers, until its ring is full; later calls continue. Without the
/// note the link would carry frames for the next owner of the number.
void Hub::report_departures(Client& client) {
  while (!client.departed.empty()) {
    if (!note(client, LinkNote::Kind::kGone, *client.departed.begin())) return;
    client.departed.erase(client.departed.begin());
  }
}

/// Handles notes, and counts other frames. True: the frame is not forwarded.
bool Hub::consumes(Client& client, std::span<const std::byte> frame) {
  if (frame.size() < wire::EthernetLayout::kSize) return false;
  const auto to = number_of(frame);
  const auto said = LinkNote::parse(frame);
  if (!said) {
    if (client.is_willing && to != 0 && options_.tap == nullptr) count_frame(client, to);
    // The switch would flood frames for a departed process, whose peers keep retransmitting.
    const bool to_departed =
        to != 0 && find(to) == nullptr && (options_.others == nullptr || !options_.others->has(to));
    if (to_departed) ++counters_.to_departed;
    return to_departed;
  }
  // A process may send notes only about itself. A guest can send any frame in its server's name, so
  // willingness is stated on the socket. Without it a process has no links, and so no notes.
  if (said->from != address_of(client.number)) return true;
  const bool for_peer =
      said->kind == LinkNote::Kind::kReady || said->kind == LinkNote::Kind::kSwitched;
  return !for_peer || !client.known.contains(to);
}

void Hub::count_frame(Client& client, unsigned to) {
  if (client.known.contains(to)) return;
  auto* const other = find(to);
  if (other == nullptr) return;  // far or gone
  if (client.frames_to.size() >= Client::kLinksMax) client.frames_to.clear();
  if (++client.frames_to[to] < kFramesBeforeLink) return;
  client.frames_to.erase(to);
  if (other == &client || !other->is_willing) return;
  if (client.knows_enough() || other->knows_enough()) return;
  introduce(client, *other);
}

/// Creates a link. Sends each process the two rings in its own order, and the other's eventfd. If
/// the message fails, the process never sends kReady, and its frames stay with the hub.
void Hub::introduce(Client& a, Client& b) {
  const auto to_b = os::SharedRing::create(options_.link_capacity);
  const auto to_a = os::SharedRing::create(options_.link_capacity);
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

/// Whether the unicast destination's ring is full, which stalls `client`. Multicast never stalls.
bool Hub::must_wait(const Client& client, std::span<const std::byte> frame) {
  if (frame.size() < wire::EthernetLayout::kSize) return false;
  auto* const other = find_station(frame);
  if (other == nullptr && options_.others != nullptr) {
    const bool waits = options_.others->must_wait(frame);
    held_ |= waits;
    return waits;
  }
  return other != nullptr && other != &client && !other->leaves && is_full(*other);
}

bool Hub::is_full(Client& client) {
  const auto enough = room_for_frames(options_.ring_capacity);
  auto& link = client.link;
  const bool full =
      client.patience.room(link.room(enough), link.taken(), enough, options_.clock) == 0;
  held_ |= full;
  return full;
}

// Other machines ---------------------------------------------------------------------------------

void Hub::attach_others() {
  const auto is_full_station = [this](std::span<const std::byte> frame) {
    auto* const client = find_station(frame);
    return client != nullptr && !client->leaves && is_full(*client);
  };
  auto port = std::make_unique<StationPort>(switch_.create_port("trunk"), station_);
  options_.others->attach(std::move(port), is_full_station, [this] { work_.raise(); });
}

std::size_t Hub::take_from_others() {
  if (options_.others == nullptr) return 0;
  std::size_t taken = 0;
  while (taken < kFramesOfOthers) {
    std::size_t frames = 0;
    const auto got = options_.others->receive(frames);
    if (got != OtherHubs::Received::kFrames) {
      held_ |= got == OtherHubs::Received::kWaits;
      break;
    }
    taken += std::max<std::size_t>(frames, 1);
    switch_.deliver(std::numeric_limits<std::size_t>::max());
  }
  return taken;
}

/// The process to which a frame goes, or behind which its station is. @pre an Ethernet frame
Hub::Client* Hub::find_station(std::span<const std::byte> frame) const {
  if (station_.is_for(frame)) return find(station_.process_of(frame));
  auto to = number_of(frame);
  if (to == 0) {
    const auto mac = wire::MacAddress::from(frame.first<wire::MacAddress::kSize>());
    to = stations_.find(mac).value_or(0);
  }
  return find(to);
}

/// Without a free number there is none, and no process shares addresses.
void Hub::begin_station() {
  const auto number = next_number();
  if (number == 0) return;
  by_number_[number] = nullptr;
  station_.begin(number, switch_.create_port("shared addresses"));
  if (options_.others != nullptr) options_.others->handle_member(number, true);
  if (options_.publish_block) options_.publish_block(0, number);
}

/// Reads the listeners that a process has registered, as far as no other request precedes them:
/// that one waits for its turn, as what it does may end the process or an address.
void Hub::catch_up(unsigned number) {
  auto* const client = find(number);
  if (client == nullptr || client->leaves) return;
  const RoceRequests::Asker asker{
      .number = number, .pid = client->pid, .socket = client->socket.get()};
  std::array<char, kBytesOfListeners> bytes;
  const auto size = ::recv(asker.socket, bytes.data(), bytes.size(), MSG_PEEK | MSG_DONTWAIT);
  auto reader = client->requests;
  std::size_t used = 0;
  Request request;
  for (std::size_t i = 0; std::cmp_less(i, size); ++i) {
    const auto read = reader.take(static_cast<std::byte>(bytes[i]), request);
    if (read == RequestReader::Result::kMore) continue;
    if (read == RequestReader::Result::kNonsense || !request.is_about_a_listener()) break;
    (void)station_.requests().serve(asker, request, station_.number());
    loop_.budget().charge(kListenerWork);
    client->requests = reader;
    used = i + 1;
  }
  while (used != 0) {
    const auto taken = os::receive_bytes(asker.socket, std::span(bytes).first(used), janitor_);
    if (taken <= 0) return;
    used -= static_cast<std::size_t>(taken);
  }
}

/// False: the process's ring is full. The hub waits for no process with datagrams of peers.
bool Hub::forward(unsigned number, const ForwardedDatagram& datagram) {
  auto* const client = find(number);
  if (client == nullptr || client->leaves) return false;
  wire::Frame frame;
  datagram.write(address_of(number), frame);
  const auto& counters = client->link.counters();
  const auto sent = counters.sent;
  const auto lost = counters.dropped_full;
  client->link.handle_frame(frame);
  client->losses_seen += counters.dropped_full - lost;  // RoceHost counts it
  work_.raise();
  return counters.sent != sent;
}

}  // namespace softhca::hub
