#include "hub/hub.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <map>
#include <utility>

#include "hub/fd_message.h"
#include "hub/hello.h"
#include "hub/join.h"
#include "util/endian.h"
#include "vfio_user/event_signal.h"
#include "vfio_user/unix_socket.h"
#include "wire/mac_address.h"

namespace softhca::hub {
namespace {

using vfio_user::UniqueFd;

constexpr int kBacklog = 512;
/// Frames between two looks at the sockets, and of each process in one round.
constexpr std::size_t kFramesPerTurn = 128;
constexpr std::size_t kFramesAtOnce = 16;
/// Of a process that has gone: what it had sent before is still delivered, as far as this.
constexpr std::size_t kLastFrames = 8192;
/// Of a process to another, before the two have a link of their own; and links of one process.
constexpr unsigned kFramesBeforeLink = 16;
constexpr std::size_t kLinksMax = 32;
constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();
/// Addresses of 198.18.0.0/16 are made of them.
constexpr unsigned kNumberMax = 0xfffe;

UniqueFd make_eventfd() { return UniqueFd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)); }

UniqueFd open_spare() { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

/// A ring for us to use, and its descriptor for the other process: we keep none.
struct Ring {
  util::SharedRing memory;
  util::SharedRing created;
};

util::Result<Ring> make_ring(std::size_t capacity) {
  auto created = util::SharedRing::create(capacity);
  if (!created) return tl::unexpected(created.error());
  auto memory = util::SharedRing::attach(created->fd());
  if (!memory) return tl::unexpected(memory.error());
  return Ring{.memory = *std::move(memory), .created = *std::move(created)};
}

util::Result<void> send_hello(int socket, unsigned number, const std::array<int, kFds>& fds) {
  Hello hello;
  hello.number = number;
  hello.mac = mac_of(number);
  if (send_message(socket, std::as_bytes(std::span(&hello, 1)), fds)) return {};
  return util::fail_errno("sendmsg");
}

/// 0: that of no process.
unsigned number_of(std::span<const std::byte> mac) {
  const auto own = std::as_bytes(std::span(kMacs));
  if (!std::ranges::equal(mac.first(own.size()), own)) return 0;
  std::array<std::byte, sizeof(std::uint32_t)> number{};
  std::ranges::copy(mac.subspan(own.size(), 3), number.begin() + 1);
  return util::load_be32(number.data());
}

wire::MacAddress address_of(unsigned number) {
  const auto mac = mac_of(number);
  return wire::MacAddress::from(std::as_bytes(std::span(mac)));
}

}  // namespace

struct Hub::Client {
  Client(unsigned client_number, std::unique_ptr<fabric::Port> port, util::SharedRing out,
         util::SharedRing in)
      : number(client_number), link(std::move(port), std::move(out), std::move(in)) {}

  const unsigned number;
  pid_t pid = 0;  ///< for the log
  UniqueFd socket;
  UniqueFd bell;  ///< it wakes us
  UniqueFd wake;  ///< we wake it
  fabric::RingPort link;
  bool active = false;
  std::uint64_t losses_seen = 0;  ///< of the link's dropped_full

  // Links to others (link_note.h).
  bool is_willing = false;
  std::map<unsigned, unsigned> frames_to;  ///< by number, until they are introduced
  std::set<unsigned> known;                ///< who was introduced
  std::set<unsigned> gone;                 ///< of these, and it has not been told: no room

  bool knows_enough() const { return known.size() + gone.size() >= kLinksMax; }
};

Hub::Hub(util::EventLoop& loop, std::string socket_path, const Options& options)
    : loop_(loop),
      socket_path_(std::move(socket_path)),
      options_(options),
      poll_(options.poll),
      work_(loop, [this] { turn(); }) {
  switch_.set_tap(options.tap);
}

util::Result<std::unique_ptr<Hub>> Hub::create(util::EventLoop& loop,
                                               const std::string& socket_path, Options options) {
  std::unique_ptr<Hub> hub(new Hub(loop, socket_path, options));
  if (auto listens = hub->listen(); !listens) return tl::unexpected(listens.error());
  return hub;
}

Hub::~Hub() {
  while (!clients_.empty()) remove(*clients_.back());
  if (listener_) {
    loop_.remove(listener_.get());
    ::unlink(socket_path_.c_str());
  }
}

util::Result<void> Hub::listen() {
  vfio_user::EventSignal::instance();  // what opens files, while there are any
  spare_ = open_spare();
  auto bound = vfio_user::bind_unix(socket_path_, "hub");
  if (!bound) return tl::unexpected(bound.error());
  listener_ = *std::move(bound);
  if (::listen(listener_.get(), kBacklog) != 0) return util::fail_errno("hub: listen");
  return loop_.add(listener_.get(), EPOLLIN, [this](std::uint32_t) { accept(); });
}

void Hub::accept() {
  UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket && (errno == EMFILE || errno == ENFILE)) return turn_away();
  if (!socket) return;
  if (auto admitted = admit(std::move(socket)); !admitted) {
    ++counters_.refused;
    warn(fmt::format("a process is refused: {}", admitted.error().message));
  }
}

void Hub::turn_away() {
  spare_.reset();
  if (UniqueFd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC))) ++counters_.refused;
  spare_ = open_spare();
  warn("a process is refused: no descriptors are left (ulimit -n)");
}

util::Result<void> Hub::admit(UniqueFd socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return util::fail_errno("SO_PEERCRED");
  }
  if (peer.uid != ::geteuid()) {
    return util::fail(fmt::format("process {} is of another user (uid {})", peer.pid, peer.uid));
  }
  if (clients_.size() >= options_.clients_max) {
    return util::fail(fmt::format("{} have joined already", clients_.size()));
  }
  auto to = make_ring(options_.ring_capacity);
  if (!to) return tl::unexpected(to.error());
  auto from = make_ring(options_.ring_capacity);
  if (!from) return tl::unexpected(from.error());
  auto bell = make_eventfd(), wake = make_eventfd();
  if (!bell || !wake) return util::fail_errno("eventfd");
  const auto number = next_number();
  const auto sent = send_hello(socket.get(), number,
                               {from->created.fd(), to->created.fd(), bell.get(), wake.get()});
  if (!sent) return sent;
  auto port = switch_.create_port(fmt::format("process {} ({})", number, peer.pid));
  auto& client = *clients_.emplace_back(std::make_unique<Client>(
      number, std::move(port), std::move(to->memory), std::move(from->memory)));
  client.pid = peer.pid;
  client.socket = std::move(socket);
  client.bell = std::move(bell);
  client.wake = std::move(wake);
  numbers_.insert(number);
  ++counters_.joined;
  util::log(util::LogLevel::kDebug, "hub: process {} joins as {}", peer.pid, number);
  if (auto watched = watch(client); !watched) {
    remove(client);
    return watched;
  }
  handle_bell(client);  // it may have begun, and have found nobody asleep
  return {};
}

util::Result<void> Hub::watch(Client& client) {
  auto added =
      loop_.add(client.socket.get(), EPOLLIN, [this, &client](auto) { handle_socket(client); });
  if (!added) return added;
  // By edges: each write wakes us, and the eventfd, which is as much the other's, is never read.
  return loop_.add(client.bell.get(), EPOLLIN | EPOLLET,
                   [this, &client](auto) { handle_bell(client); });
}

unsigned Hub::next_number() {
  do {
    last_number_ = last_number_ % kNumberMax + 1;
  } while (numbers_.contains(last_number_) || is_remembered(last_number_));
  return last_number_;
}

/// Somebody still takes it for that of one who has gone.
bool Hub::is_remembered(unsigned number) const {
  return std::ranges::any_of(
      clients_, [number](const auto& client) { return client->gone.contains(number); });
}

void Hub::handle_socket(Client& client) {
  char byte;
  const auto size = ::recv(client.socket.get(), &byte, sizeof byte, MSG_DONTWAIT);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size > 0) return expel(client, "it talks, and has nothing to say");
  for (std::size_t frames = 0; frames < kLastFrames; frames += kFramesAtOnce) {
    if (take_frames(client) == 0) break;
    switch_.deliver(kAll);
  }
  util::log(util::LogLevel::kDebug, "hub: process {} ({}) has gone", client.number, client.pid);
  ++counters_.left;
  remove(client);
  work_.raise();  // for those who got its last frames
}

void Hub::handle_bell(Client& client) {
  poll_.message(static_cast<unsigned>(client.bell.get()), util::monotonic_now());
  if (!std::exchange(client.active, true)) active_.push_back(&client);
  work_.raise();
}

void Hub::expel(Client& client, const char* reason) {
  ++counters_.expelled;
  warn(fmt::format("process {} ({}) is put out: {}", client.number, client.pid, reason));
  remove(client);
}

void Hub::remove(Client& client) {
  for (const auto number : client.known) {
    auto* const other = find(number);
    if (other == nullptr) continue;
    other->known.erase(client.number);
    other->gone.insert(client.number);
  }
  for (const auto& other : clients_) other->frames_to.erase(client.number);
  if (!client.known.empty()) work_.raise();
  loop_.remove(client.socket.get());
  loop_.remove(client.bell.get());
  numbers_.erase(client.number);
  std::erase(active_, &client);
  std::erase_if(clients_, [&client](const auto& one) { return one.get() == &client; });
}

void Hub::turn() {
  std::size_t now = 0;
  for (std::size_t frames = 0; frames < kFramesPerTurn; frames += now) {
    now = receive();
    // No more than what was received: at our end of a link nobody answers.
    switch_.deliver(kAll);
    if (now == 0) break;
  }
  settle();
  if (now != 0) {
    poll_.work(util::monotonic_now());
  } else if (!poll_.look(util::monotonic_now())) {
    std::erase_if(active_, [](Client* client) {
      client->active = !client->link.prepare_to_sleep();
      return !client->active;
    });
  }
  if (!active_.empty()) work_.raise();
}

// Links between processes -------------------------------------------------------------------------

Hub::Client* Hub::find(unsigned number) {
  const auto at = std::ranges::find(clients_, number, [](const auto& one) { return one->number; });
  return at == clients_.end() ? nullptr : at->get();
}

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

/// What one who may have something has, as far as it is its turn.
std::size_t Hub::take_frames(Client& client) {
  return client.link.receive(
      kFramesAtOnce, [&](const wire::Frame& frame) { return look_at(client, frame.head()); });
}

/// Of a frame from `client`. True: it goes nowhere.
bool Hub::look_at(Client& client, std::span<const std::byte> frame) {
  if (frame.size() < wire::EthernetLayout::kSize) return false;
  const auto to = number_of(frame);
  const auto said = LinkNote::parse(frame);
  if (!said) {
    if (client.is_willing && to != 0) count_frame(client, to);
    return false;
  }
  // Nobody speaks for somebody else, and guests are nobody here.
  if (said->from != address_of(client.number)) return true;
  if (said->kind == LinkNote::Kind::kWilling) client.is_willing = options_.tap == nullptr;
  const bool for_peer =
      said->kind == LinkNote::Kind::kReady || said->kind == LinkNote::Kind::kSwitched;
  return !for_peer || !client.known.contains(to);
}

void Hub::count_frame(Client& client, unsigned to) {
  if (client.known.contains(to)) return;
  if (client.frames_to.size() >= kLinksMax) client.frames_to.clear();
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

/// Frames of all who may have some, in turn.
std::size_t Hub::receive() {
  std::size_t frames = 0;
  for (auto* client : active_) frames += take_frames(*client);
  counters_.frames += frames;
  return frames;
}

/// Gives back what was delivered, and wakes those who sleep and have something.
void Hub::settle() {
  std::vector<Client*> broken;
  for (const auto& client : clients_) {
    tell_of_the_gone(*client);
    if (client->link.settle()) vfio_user::EventSignal::instance().raise(client->wake.get());
    if (client->link.broken()) broken.push_back(client.get());
    look_for_loss(*client);
  }
  for (auto* client : broken) expel(*client, "it broke the rules of its rings");
}

void Hub::look_for_loss(Client& client) {
  const auto lost = client.link.counters().dropped_full - client.losses_seen;
  if (lost == 0) return;
  client.losses_seen += lost;
  counters_.dropped += lost;
  warn(fmt::format("process {} ({}) does not keep up: {} frames for it are lost", client.number,
                   client.pid, lost));
}

void Hub::warn(std::string_view text) {
  std::uint64_t held_back = 0;
  if (!warnings_.allow(util::monotonic_now(), &held_back)) return;
  if (held_back == 0) return util::log(util::LogLevel::kWarning, "hub: {}", text);
  util::log(util::LogLevel::kWarning, "hub: {} ({} such lines were held back)", text, held_back);
}

}  // namespace softhca::hub
