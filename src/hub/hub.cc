#include "hub/hub.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <utility>

#include "hub/fd_message.h"
#include "hub/hello.h"
#include "hub/hub_client.h"
#include "hub/join.h"
#include "hub/roce_link.h"
#include "os/event_signal.h"
#include "os/foreign_bytes.h"
#include "os/unix_socket.h"
#include "wire/ethernet.h"
#include "wire/mac_address.h"

namespace softhca::hub {
namespace {

using os::UniqueFd;

constexpr int kBacklog = 512;
/// Frames between two polls of the sockets, and frames from one process in each round.
constexpr std::size_t kFramesPerTurn = 128;
constexpr std::size_t kFramesAtOnce = 16;
/// Bytes that must be free in a capture before a frame is taken: see room_for_frames().
constexpr std::size_t kTapRoom = std::size_t{1} << 20;
constexpr auto kLookAgain = std::chrono::microseconds(50);
/// Frames of a departed process that are still delivered.
constexpr std::size_t kLastFrames = 8192;
/// Bytes from a process's socket in a turn of the loop, and the cost of a request.
constexpr std::size_t kBytesAtOnce = Request::kSizeMax;
constexpr std::int64_t kRequestWork = 1000;
constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();

UniqueFd make_eventfd() { return UniqueFd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)); }

/// A ring mapped by the hub, and its descriptor for the process. The hub keeps no descriptor.
struct Ring {
  os::SharedRing memory;
  os::SharedRing created;
};

util::Result<Ring> make_ring(std::size_t capacity) {
  auto created = os::SharedRing::create(capacity);
  if (!created) return tl::unexpected(created.error());
  auto memory = os::SharedRing::attach(created->fd());
  if (!memory) return tl::unexpected(memory.error());
  return Ring{.memory = *std::move(memory), .created = *std::move(created)};
}

/// Learns that a station which is no process is behind process `number`.
void learn_source(fabric::MacTable& stations, unsigned number, std::span<const std::byte> header) {
  if (header.size() < wire::EthernetLayout::kSize) return;
  const auto source = wire::Ethernet::parse(wire::EthernetView(header)).source;
  if (number_of(source.bytes) == 0 && source != RoceLink::mac()) stations.learn(source, number);
}

util::Result<void> send_hello(int socket, unsigned number, const std::array<int, kFds>& fds) {
  Hello hello;
  hello.number = number;
  hello.mac = mac_of(number);
  if (send_message(socket, std::as_bytes(std::span(&hello, 1)), fds)) return {};
  return util::fail_errno("sendmsg");
}

}  // namespace

Hub::Hub(os::EventLoop& loop, std::string socket_path, const Options& options)
    : loop_(loop),
      socket_path_(std::move(socket_path)),
      options_(options),
      numbers_(options.number_max, options.first_block, options.claim_block),
      poll_(options.poll),
      work_(loop, [this] { turn(); }),
      station_(
          loop,
          {.port = options.roce_port,
           .clock = options.clock,
           .publish = options.publish_block,
           .catch_up = [this](unsigned number) { catch_up(number); }},
          [this](unsigned number, const auto& datagram) { return forward(number, datagram); }) {
  switch_.set_tap(options.tap);
  if (options.others != nullptr) attach_others();
}

util::Result<std::unique_ptr<Hub>> Hub::create(os::EventLoop& loop, const std::string& socket_path,
                                               Options options) {
  std::unique_ptr<Hub> hub(new Hub(loop, socket_path, options));
  if (auto listens = hub->listen(); !listens) return tl::unexpected(listens.error());
  return hub;
}

Hub::~Hub() {
  while (!clients_.empty()) remove(*clients_.back());
  if (options_.others != nullptr) options_.others->detach();
  if (listener_) {
    loop_.remove(listener_.get());
    loop_.remove(timer_.get());
    ::unlink(socket_path_.c_str());
  }
}

util::Result<void> Hub::listen() {
  os::EventSignal::instance();  // created before descriptors run out
  auto bound = os::bind_unix(socket_path_, "hub");
  if (!bound) return tl::unexpected(bound.error());
  listener_ = *std::move(bound);
  if (::listen(listener_.get(), kBacklog) != 0) return util::fail_errno("hub: listen");
  timer_ = UniqueFd(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  if (!timer_) return util::fail_errno("hub: timerfd");
  auto timed = loop_.add(timer_.get(), EPOLLIN | EPOLLET, [this](auto) { work_.raise(); });
  if (!timed) return timed;
  return loop_.add(listener_.get(), EPOLLIN, [this](std::uint32_t) { accept(); });
}

void Hub::accept() {
  UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket && (errno == EMFILE || errno == ENFILE)) {
    if (spare_.turn_away(listener_.get())) ++counters_.refused;
    return warn("a process is refused: no descriptors are left (ulimit -n)");
  }
  if (!socket) return;
  if (auto admitted = admit(socket); !admitted) {
    os::close_connection(std::move(socket), janitor_);
    ++counters_.refused;
    warn(fmt::format("a process is refused: {}", admitted.error().message));
  }
}

util::Result<void> Hub::admit(UniqueFd& socket) {
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
  const auto number = next_number();
  if (number == 0) return util::fail("no number is free");
  auto to = make_ring(options_.ring_capacity);
  if (!to) return tl::unexpected(to.error());
  auto from = make_ring(options_.ring_capacity);
  if (!from) return tl::unexpected(from.error());
  auto bell = make_eventfd(), wake = make_eventfd();
  if (!bell || !wake) return util::fail_errno("eventfd");
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
  by_number_[number] = &client;
  if (options_.others != nullptr) options_.others->handle_member(number, true);
  ++counters_.joined;
  util::log(util::LogLevel::kDebug, "hub: process {} joins as {}", peer.pid, number);
  if (auto watched = watch(client); !watched) {
    remove(client);
    return watched;
  }
  handle_bell(client);  // the process may have sent before its doorbell was watched
  return {};
}

util::Result<void> Hub::watch(Client& client) {
  auto added =
      loop_.add(client.socket.get(), EPOLLIN, [this, &client](auto) { handle_socket(client); });
  if (!added) return added;
  // Edge-triggered: each write wakes the hub, and the eventfd, which the process shares, is never
  // read.
  return loop_.add(client.bell.get(), EPOLLIN | EPOLLET,
                   [this, &client](auto) { handle_bell(client); });
}

/// 0: none is free. A number stays reserved while any client still maps it to a departed peer.
unsigned Hub::next_number() {
  std::vector<bool> is_remembered(options_.number_max + 1);
  for (const auto& client : clients_) {
    for (const auto number : client->departed) is_remembered[number] = true;
  }
  const auto number = numbers_.next([&](unsigned one) {
    const bool is_far = options_.others != nullptr && !options_.others->may_give(one);
    return is_remembered[one] || is_far || by_number_.contains(one);
  });
  give_back_numbers();
  return number;
}

void Hub::give_back_numbers() {
  numbers_.give_back([this](unsigned first, unsigned last) {
    const auto at = by_number_.lower_bound(first);
    return at != by_number_.end() && at->first <= last;
  });
}

void Hub::handle_socket(Client& client) {
  std::array<char, kBytesAtOnce> bytes;
  const auto size = os::receive_bytes(client.socket.get(), bytes, janitor_);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size <= 0) {
    util::log(util::LogLevel::kDebug, "hub: process {} ({}) has gone", client.number, client.pid);
    loop_.remove(client.socket.get());
    client.leaves = true;
    return handle_bell(client);
  }
  Request request;
  for (const auto byte : std::as_bytes(std::span(bytes).first(static_cast<std::size_t>(size)))) {
    const auto read = client.requests.take(byte, request);
    if (read == RequestReader::Result::kMore) continue;
    if (read == RequestReader::Result::kNonsense || !serve(client, request)) {
      return expel(client, "it talks, and has nothing to say");
    }
  }
}

/// False: the process breaks the rules.
bool Hub::serve(Client& client, const Request& request) {
  loop_.budget().charge(kRequestWork);
  if (request.kind == Request::Kind::kAcceptLinks) return !std::exchange(client.is_willing, true);
  if (request.kind == Request::Kind::kShare && station_.number() == 0) begin_station();
  if (!station_.requests().serve(
          {.number = client.number, .pid = client.pid, .socket = client.socket.get()}, request,
          station_.number())) {
    return false;
  }
  if (request.kind == Request::Kind::kJoinAddress && client.is_willing) {
    note(client, LinkNote::Kind::kIntroduced, client.number);
    work_.raise();
  }
  return true;
}

/// Delivers frames that a departed process sent before. True: nothing is left, so remove it.
bool Hub::drain_departed(Client& client) {
  if (!client.leaves) return false;
  const bool more = client.last_frames < kLastFrames && !client.link.prepare_to_sleep();
  if (!more) ++counters_.left;
  return !more;
}

void Hub::handle_bell(Client& client) {
  poll_.message(static_cast<unsigned>(client.bell.get()), options_.clock());
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
    other->departed.insert(client.number);
  }
  for (const auto& other : clients_) other->frames_to.erase(client.number);
  if (!client.known.empty()) work_.raise();
  loop_.remove(client.socket.get());
  loop_.remove(client.bell.get());
  os::close_connection(std::move(client.socket), janitor_);
  by_number_.erase(client.number);
  if (options_.others != nullptr) options_.others->handle_member(client.number, false);
  station_.requests().host().forget(client.number);
  give_back_numbers();
  stations_.forget_port(client.number);
  std::erase(active_, &client);
  std::erase_if(clients_, [&client](const auto& one) { return one.get() == &client; });
}

void Hub::turn() {
  std::size_t now = 0;
  for (std::size_t frames = 0; frames < kFramesPerTurn; frames += now) {
    now = receive();
    if (now == 0) break;
  }
  settle();
  if (now != 0) {
    poll_.work(options_.clock());
  } else if (held_) {
    return poll_soon();
  } else if (!poll_.look(options_.clock())) {
    std::erase_if(active_, [](Client* client) {
      client->active = !client->link.prepare_to_sleep();
      return !client->active;
    });
  }
  if (!active_.empty() || (now != 0 && options_.others != nullptr)) work_.raise();
}

/// Poll again soon: a draining ring raises no event.
void Hub::poll_soon() {
  const auto nanoseconds = std::chrono::nanoseconds(kLookAgain).count();
  const itimerspec when{.it_interval = {}, .it_value = {.tv_sec = 0, .tv_nsec = nanoseconds}};
  ::timerfd_settime(timer_.get(), 0, &when, nullptr);
}

Hub::Client* Hub::find(unsigned number) const {
  const auto at = by_number_.find(number);
  return at == by_number_.end() ? nullptr : at->second;
}

/// Takes a client's share of frames and delivers them. Delivery ends here: the hub's end of a link
/// has no receiver that answers.
std::size_t Hub::take_frames(Client& client) {
  if (auto* const tap = options_.tap; tap != nullptr) {
    const bool waits = tap_patience_.room(tap->room(), tap->taken(), kTapRoom, options_.clock) == 0;
    held_ |= waits;
    if (waits) return 0;
  }
  const auto taken = client.link.receive(kFramesAtOnce, [&](wire::Frame& frame) {
    learn_source(stations_, client.number, frame.link_header());
    if (station_.is_for(frame.link_header())) {
      return station_.steer(frame, client.number, [this](unsigned number) {
        auto* const to = find(number);
        return to != nullptr && !to->leaves && is_full(*to);
      });
    }
    if (must_wait(client, frame.head())) return fabric::Verdict::kWaits;
    return consumes(client, frame.head()) ? fabric::Verdict::kTaken : fabric::Verdict::kGoes;
  });
  station_.flush();
  switch_.deliver(kAll);
  return taken;
}

/// Takes frames from all active clients in turn.
std::size_t Hub::receive() {
  held_ = false;
  auto frames = take_from_others();
  for (auto* client : active_) {
    const auto taken = take_frames(*client);
    if (client->leaves) client->last_frames += taken;
    frames += taken;
  }
  counters_.frames += frames;
  return frames;
}

/// Releases delivered frames, and wakes sleeping clients that have frames.
void Hub::settle() {
  if (options_.others != nullptr) options_.others->settle();
  std::vector<Client*> broken, left;
  for (const auto& client : clients_) {
    report_departures(*client);
    if (client->link.settle()) os::EventSignal::instance().raise(client->wake.get());
    if (client->link.broken()) {
      broken.push_back(client.get());
    } else if (drain_departed(*client)) {
      left.push_back(client.get());
    }
    report_loss(*client);
  }
  for (auto* client : broken) expel(*client, "it broke the rules of its rings");
  for (auto* client : left) remove(*client);
}

void Hub::report_loss(Client& client) {
  const auto lost = client.link.counters().dropped_full - client.losses_seen;
  if (lost == 0) return;
  client.losses_seen += lost;
  counters_.dropped += lost;
  warn(fmt::format("process {} ({}) does not keep up: {} frames for it are lost", client.number,
                   client.pid, lost));
}

void Hub::warn(std::string_view text) {
  std::uint64_t held_back = 0;
  if (!warnings_.allow(options_.clock(), &held_back)) return;
  if (held_back == 0) return util::log(util::LogLevel::kWarning, "hub: {}", text);
  util::log(util::LogLevel::kWarning, "hub: {} ({} such lines were held back)", text, held_back);
}

}  // namespace softhca::hub
