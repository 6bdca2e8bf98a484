#include "hub/uplink.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <utility>

#include "hub/fd_message.h"
#include "hub/hello.h"
#include "hub/roce_link.h"
#include "os/kept_fd.h"
#include "util/endian.h"

namespace softhca::hub {
namespace {

/// After this time a link's ring is polled without the kSwitched note, which must have been lost.
constexpr auto kPatience = Patience::kLongest;
/// Maximum bytes through the hub to a peer whose link is being set up: as many as the peer's ring
/// can hold with no other sender.
constexpr std::size_t kByHub = std::size_t{512} << 10;
std::uint64_t to_u64(const std::array<std::uint8_t, 6>& mac) {
  return wire::MacAddress::from(std::as_bytes(std::span(mac))).to_u64();
}

constexpr auto kMacSize = wire::MacAddress::kSize;

/// Every process has a router with this address on its own switch. From elsewhere, a frame with it
/// would make the switch send the router's frames there.
bool is_of_a_router(const wire::Frame& frame) {
  const auto header = frame.link_header();
  return header.size() >= 2 * kMacSize &&
         wire::MacAddress::from(header.subspan<kMacSize, kMacSize>()) == RoceLink::mac();
}

/// The switch floods the router's frames to groups. Other processes have sockets of their own.
bool is_to_a_group(const wire::Frame& frame) {
  const auto header = frame.link_header();
  return !header.empty() && (header.front() & std::byte{1}) != std::byte{0};
}

/// Whether an eventfd blocks is a property of the file, which the peer shares. The peer may have
/// filled it and made it blocking.
void raise(const UniqueFd& eventfd) {
  const auto flags = ::fcntl(eventfd.get(), F_GETFL);
  if ((flags & O_NONBLOCK) == 0) ::fcntl(eventfd.get(), F_SETFL, flags | O_NONBLOCK);
  const std::uint64_t one = 1;
  (void)!::write(eventfd.get(), &one, sizeof one);
}

/// Rejects pipes: a write to a pipe without readers would kill the program by SIGPIPE.
bool is_no_file(int fd) {
  struct stat status;
  return ::fstat(fd, &status) == 0 && (status.st_mode & S_IFMT) == 0;
}

}  // namespace

Uplink::Uplink(std::unique_ptr<fabric::Port> port, Joined joined, util::TimeSource clock,
               const std::optional<Sharing>& sharing)
    : joined_(std::move(joined)),
      clock_(std::move(clock)),
      mac_(to_u64(joined_.mac)),
      hub_(std::move(*joined_.out), std::move(*joined_.in)),
      port_(std::move(port)) {
  port_->set_receiver(this);
  if (sharing) shared_.emplace(*sharing, clock_);
  (void)::send(joined_.socket.get(), &kWilling, sizeof kWilling, MSG_NOSIGNAL | MSG_DONTWAIT);
}

Uplink::~Uplink() { port_->set_receiver(nullptr); }

Uplink::Link* Uplink::find(std::uint64_t mac) {
  const auto at = std::ranges::find_if(
      links_, [mac](const auto& link) { return link->mac == mac && !link->gone; });
  return at == links_.end() ? nullptr : at->get();
}

std::size_t Uplink::links() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(links_, [](const auto& link) { return link->sends; }));
}

void Uplink::handle_frame(const wire::Frame& frame) {
  if (is_to_a_group(frame) && is_of_a_router(frame)) return;
  if (!links_.empty()) {
    const auto header = frame.link_header();
    if (header.size() >= wire::MacAddress::kSize) {
      const auto to = wire::MacAddress::from(header.first<wire::MacAddress::kSize>()).to_u64();
      if (last_ == nullptr || last_->mac != to) last_ = find(to);
      if (last_ != nullptr && last_->sends) return last_->rings.send(frame);
      if (last_ != nullptr) last_->by_hub += frame.size_of_all();
    }
  }
  hub_.send(frame);
}

std::size_t Uplink::receive(std::size_t frames) {
  std::vector<Link*> late;
  for (const auto& link : links_) {
    if (!link->reads && is_late(*link)) late.push_back(link.get());
  }
  auto count = hub_.receive(*port_, frames, [this](const auto& frame) {
    // Notes of the hub about this process itself have its MAC.
    return is_of_a_router(frame) || handle_note(frame) || is_forged(frame) ? fabric::Verdict::kTaken
                                                                           : fabric::Verdict::kGoes;
  });
  if (count < frames) {
    for (auto* link : late) link->reads = true;
  }
  for (const auto& link : links_) {
    if (link->reads) count += receive_from(*link, frames);
  }
  return count;
}

std::size_t Uplink::receive_from(Link& link, std::size_t frames) {
  return link.rings.receive(*port_, frames, [this](const auto& frame) {
    return is_of_a_router(frame) || is_forged(frame) ? fabric::Verdict::kTaken
                                                     : fabric::Verdict::kGoes;
  });
}

/// A guest of another process can send any frame. One with the MAC of this process's device, or to
/// its router, would be sent to other machines as the device's own (RoceLink).
bool Uplink::is_forged(const wire::Frame& frame) {
  const auto header = frame.link_header();
  if (header.size() < 2 * kMacSize) return false;
  const auto to = wire::MacAddress::from(header.first<kMacSize>());
  const auto from = wire::MacAddress::from(header.subspan<kMacSize, kMacSize>());
  if (to != RoceLink::mac() && from.to_u64() != mac_) return false;
  forged_ += frame.packets();
  return true;
}

/// Whether the kSwitched note seems lost. The peer sent the frames in the link's ring after all
/// that it sent through the hub, and those are in the hub's ring by now.
bool Uplink::is_late(Link& link) const {
  return clock_() - link.made > kPatience && !link.rings.prepare_to_sleep();
}

void Uplink::settle() {
  if (may_switch_) switch_over();
  if (shared_ && !hub_has_gone_) shared_->send_requests(joined_.socket.get());
  if (hub_.settle(*port_)) raise(joined_.wake_hub);
  bool any_gone = false;
  for (const auto& link : links_) {
    if (link->rings.settle(*port_)) raise(link->wake);
    any_gone |= link->gone || link->rings.broken();
  }
  if (any_gone) drop_gone();
}

std::size_t Uplink::room(std::size_t wanted) {
  auto room = patience_.room(hub_.room(wanted), hub_.taken(), kRoomMin, clock_);
  for (const auto& link : links_) {
    if (link->sends) {
      auto& rings = link->rings;
      room =
          std::min(room, link->patience.room(rings.room(wanted), rings.taken(), kRoomMin, clock_));
    } else if (!link->gone && clock_() - link->made < kPatience) {
      // If the peer's ring stays full, the hub drops frames: limit the bytes that go through it.
      const auto left = kByHub - std::min(kByHub, link->by_hub);
      room = std::min(room, left < kRoomMin ? 0 : left);
    }
  }
  return room;
}

void Uplink::free_idle_pages() {
  hub_.free_idle_pages();
  for (const auto& link : links_) link->rings.free_idle_pages();
}

bool Uplink::prepare_to_sleep() {
  bool sleeps = hub_.prepare_to_sleep();
  for (const auto& link : links_) {
    sleeps = link->rings.prepare_to_sleep() && sleeps && !link->gone;
  }
  return sleeps;
}

// Notes ------------------------------------------------------------------------------------------

void Uplink::say(LinkNote::Kind kind, std::uint64_t to) {
  hub_.send(LinkNote{
      .to = wire::MacAddress::from_u64(to), .from = wire::MacAddress::from_u64(mac_), .kind = kind}
                .frame());
}

/// False: the frame is no note. The hub ensures that a note's sender is genuine.
bool Uplink::handle_note(const wire::Frame& frame) {
  const auto note = LinkNote::parse(frame.head());
  if (!note) return false;
  const auto from = note->from.to_u64();
  auto* link = find(from);
  switch (note->kind) {
    case LinkNote::Kind::kIntroduced:
      read_socket();
      break;
    case LinkNote::Kind::kReady:
      if (link == nullptr) read_socket();  // the kIntroduced note was lost
      link = find(from);
      if (link == nullptr) break;
      link->ready = may_switch_ = true;
      break;
    case LinkNote::Kind::kSwitched:
      if (link != nullptr) link->reads = true;
      break;
    case LinkNote::Kind::kGone:
      if (link == nullptr) read_socket();  // introduced before, but not read
      link = find(from);
      if (link == nullptr) break;
      link->gone = true;
      link->sends = false;
      break;
    case LinkNote::Kind::kDatagram:
      take_datagram(frame);
      break;
  }
  return true;
}

void Uplink::take_datagram(const wire::Frame& frame) {
  std::array<std::byte, ForwardedDatagram::kFrameMax> bytes;
  if (!forwarded_ || frame.size() > bytes.size()) return;
  const auto all = std::span(bytes).first(frame.size());
  frame.copy_range(0, all);
  if (const auto datagram = ForwardedDatagram::parse(all)) forwarded_(*datagram);
}

/// Waits until the hub has delivered all earlier frames, which later ones would otherwise overtake.
void Uplink::switch_over() {
  if (!hub_.all_is_taken()) return;
  may_switch_ = false;
  for (const auto& link : links_) {
    if (!link->ready || link->sends || link->gone) continue;
    say(LinkNote::Kind::kSwitched, link->mac);
    link->sends = true;
  }
}

bool Uplink::see_hub_go() {
  if (hub_has_gone_) return false;
  read_socket();
  if (!hub_has_hung_up_) return false;
  hub_has_gone_ = true;
  return true;
}

/// Handles the introductions and answers that wait on the socket.
void Uplink::read_socket() {
  static_assert(sizeof(RoceAnswer) == sizeof(Introduction));
  for (;;) {
    std::array<std::byte, sizeof(Introduction)> bytes;
    std::array<UniqueFd, kIntroductionFds> fds;
    const auto received = receive_message(joined_.socket.get(), bytes, fds, MSG_DONTWAIT);
    // If the hub left data on the socket unread, its end is an error.
    const bool failed = received == Received::kNothing && errno != EAGAIN && errno != EINTR;
    hub_has_hung_up_ = received == Received::kEnd || failed;
    if (received != Received::kMessage && received != Received::kFdsMissing) return;
    const auto introduction = std::bit_cast<Introduction>(bytes);
    if (introduction.number == 0) {
      if (shared_) shared_->handle_answer(std::bit_cast<RoceAnswer>(bytes), std::move(fds[0]));
    } else if (received == Received::kMessage) {
      meet(introduction, fds);
    }
  }
}

/// Sets up a link.
void Uplink::meet(const Introduction& introduction, std::span<UniqueFd, kIntroductionFds> fds) {
  auto out = os::SharedRing::attach(fds[kRingToIt].get());
  auto in = os::SharedRing::attach(fds[kRingFromIt].get());
  if (!out || !in || !is_no_file(fds[kWakeIt].get())) return;
  const auto mac = to_u64(introduction.mac);
  // The previous owner of this address has left the hub.
  if (auto* const before = find(mac)) {
    before->gone = true;
    before->sends = false;
  }
  links_.push_back(std::make_unique<Link>(mac, *std::move(out), *std::move(in),
                                          os::keep(std::move(fds[kWakeIt])), clock_()));
  say(LinkNote::Kind::kReady, mac);
}

void Uplink::await_answers(std::chrono::milliseconds longest) {
  if (!shared_) return;
  const auto end = util::monotonic_now() + longest;
  shared_->send_requests(joined_.socket.get());
  while (shared_->awaits_answers() && !hub_has_hung_up_) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - util::monotonic_now());
    pollfd wait{.fd = joined_.socket.get(), .events = POLLIN, .revents = 0};
    if (left.count() <= 0) return;
    (void)::poll(&wait, 1, static_cast<int>(left.count()));
    read_socket();
  }
}

/// Takes over what the peer has sent so far: one ring's worth, even if the peer goes on to fill it.
/// One link in each call: the frames are copied, and many links would make a long turn.
void Uplink::drop_gone() {
  const auto at = std::ranges::find_if(
      links_, [](const auto& link) { return link->gone || link->rings.broken(); });
  if ((*at)->gone) receive_from(**at, SIZE_MAX);
  (void)port_->settle();
  last_ = nullptr;
  links_.erase(at);
}

}  // namespace softhca::hub
