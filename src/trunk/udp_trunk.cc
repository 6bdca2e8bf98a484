#include "trunk/udp_trunk.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "util/log.h"

namespace softhca::trunk {
namespace {

/// Bytes that the kernel may hold, if its limits allow.
constexpr int kBufferBytes = 4 << 20;
/// Errors of the socket that one receive() passes over.
constexpr int kErrorsMax = 8;

socklen_t to_sockaddr(const Address& address, int family, sockaddr_storage& out) {
  out = {};
  if (family == AF_INET) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(address.port);
    std::memcpy(&to.sin_addr, address.ip.data() + 12, sizeof to.sin_addr);
    std::memcpy(&out, &to, sizeof to);
    return sizeof to;
  }
  sockaddr_in6 to{};
  to.sin6_family = AF_INET6;
  to.sin6_port = htons(address.port);
  to.sin6_scope_id = address.scope;
  std::memcpy(&to.sin6_addr, address.ip.data(), sizeof to.sin6_addr);
  std::memcpy(&out, &to, sizeof to);
  return sizeof to;
}

os::UniqueFd open_socket(int family) {
  return os::UniqueFd(::socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

bool is_ipv4(const Address& address) { return family_of(address) == AF_INET; }

void set_option(int fd, int level, int name, int value) {
  (void)::setsockopt(fd, level, name, &value, sizeof value);
}

/// Datagrams are never fragmented by IP, and the size that they may have is found by the sessions.
void set_options(int fd) {
  set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  set_option(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE);
  set_option(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE);
  set_option(fd, SOL_SOCKET, SO_RCVBUF, kBufferBytes);
  set_option(fd, SOL_SOCKET, SO_SNDBUF, kBufferBytes);
}

}  // namespace

UdpTrunk::Batch::Batch() : bytes(kBatch * kDatagramMax) {
  for (std::size_t i = 0; i != kBatch; ++i) {
    parts[i] = {.iov_base = bytes.data() + i * kDatagramMax, .iov_len = kDatagramMax};
    auto& header = messages[i].msg_hdr;
    header.msg_name = &addresses[i];
    header.msg_namelen = sizeof addresses[i];
    header.msg_iov = &parts[i];
    header.msg_iovlen = 1;
  }
}

UdpTrunk::UdpTrunk(os::EventLoop& loop, Options options)
    : loop_(loop),
      trunk_({.identity = make_identity(options.key, fabric_id_of(options.fabric)),
              .targets = std::move(options.targets),
              .far = std::move(options.far)},
             *this) {}

util::Result<std::unique_ptr<UdpTrunk>> UdpTrunk::create(os::EventLoop& loop, Options options) {
  const auto listen = options.listen;
  for (const auto& target : options.targets) {
    if (listen.ip == Address{}.ip || is_ipv4(listen) == is_ipv4(target.address)) continue;
    return util::fail(fmt::format("--join {}: its address is {}, and that of --listen is not",
                                  target.name, is_ipv4(listen) ? "IPv6" : "IPv4"));
  }
  std::unique_ptr<UdpTrunk> trunk(new UdpTrunk(loop, std::move(options)));
  if (auto opened = trunk->open(listen); !opened) return tl::unexpected(opened.error());
  return trunk;
}

util::Result<void> UdpTrunk::open(const Address& listen) {
  if (is_ipv4(listen)) family_ = AF_INET;
  socket_ = open_socket(family_);
  if (!socket_ && family_ == AF_INET6) socket_ = open_socket(family_ = AF_INET);
  if (!socket_) return util::fail_errno("trunk: socket");
  set_options(socket_.get());
  sockaddr_storage own;
  auto size = to_sockaddr(listen, family_, own);
  if (::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&own), size) != 0) {
    return util::fail_errno("trunk: --listen " + to_text(listen));
  }
  size = sizeof own;
  (void)::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&own), &size);
  address_ = to_address(own);
  auto alarm = os::Alarm::create(loop_, [this] { handle_alarm(); });
  if (!alarm) return tl::unexpected(alarm.error());
  alarm_ = *std::move(alarm);
  auto added = loop_.add(socket_.get(), EPOLLIN | EPOLLOUT | EPOLLET,
                         [this](std::uint32_t events) { handle_socket(events); });
  if (!added) return added;
  handle_alarm();
  return {};
}

UdpTrunk::~UdpTrunk() {
  trunk_.sessions().say_goodbye();
  flush();
  if (socket_) loop_.remove(socket_.get());
}

void UdpTrunk::attach(std::unique_ptr<fabric::Port> port, IsFull is_full,
                      std::function<void()> raise) {
  trunk_.attach(std::move(port), std::move(is_full));
  raise_ = std::move(raise);
  if (readable_) raise_();
}

void UdpTrunk::detach() {
  trunk_.detach();
  raise_ = nullptr;
}

void UdpTrunk::handle_member(unsigned number, bool is_there) {
  trunk_.handle_member(number, is_there);
  settle();
}

void UdpTrunk::handle_socket(std::uint32_t events) {
  if ((events & EPOLLOUT) != 0) flush();
  if ((events & EPOLLIN) == 0) return;
  readable_ = true;
  if (raise_) raise_();
}

hub::OtherHubs::Received UdpTrunk::receive(std::size_t& frames) {
  if (trunk_.waits()) return Received::kWaits;
  if (in_.at == in_.end && !fill()) return Received::kNothing;
  const auto i = in_.at++;
  const auto& message = in_.messages[i];
  const auto before = trunk_.counters().frames;
  if ((message.msg_hdr.msg_flags & MSG_TRUNC) == 0) {
    const auto* const bytes = static_cast<const std::byte*>(in_.parts[i].iov_base);
    trunk_.sessions().handle_datagram(to_address(in_.addresses[i]), {bytes, message.msg_len});
  }
  frames = trunk_.counters().frames - before;
  return Received::kFrames;
}

/// Reads the next datagrams. False: there are none.
bool UdpTrunk::fill() {
  for (int errors = 0; readable_ && errors != kErrorsMax; ++errors) {
    for (auto& message : in_.messages) message.msg_hdr.msg_namelen = sizeof(sockaddr_storage);
    const auto got = ::recvmmsg(socket_.get(), in_.messages.data(), kBatch, MSG_DONTWAIT, nullptr);
    if (got > 0) {
      in_.at = 0;
      in_.end = static_cast<std::size_t>(got);
      return true;
    }
    if (errno == EAGAIN) readable_ = false;
  }
  return false;
}

void UdpTrunk::settle() {
  trunk_.settle();
  flush();
  arm();
}

void UdpTrunk::send(const Address& to, std::span<const std::byte> datagram) {
  if (out_.end == kBatch) flush();
  if (out_.end == kBatch) {
    ++lost_;
    return;
  }
  const auto i = out_.end++;
  std::memcpy(out_.parts[i].iov_base, datagram.data(), datagram.size());
  out_.parts[i].iov_len = datagram.size();
  out_.messages[i].msg_hdr.msg_namelen = to_sockaddr(to, family_, out_.addresses[i]);
}

/// If the socket is full, the rest waits until it is writable. A datagram that cannot be sent (too
/// long for the interface, no route) is dropped.
void UdpTrunk::flush() {
  while (out_.at != out_.end) {
    const auto count = static_cast<unsigned>(out_.end - out_.at);
    const auto sent =
        ::sendmmsg(socket_.get(), out_.messages.data() + out_.at, count, MSG_DONTWAIT);
    if (sent < 0 && errno == EAGAIN) return;
    // Datagrams that are too long belong to the search for the path's MTU.
    if (sent < 0 && errno != EMSGSIZE) {
      const auto error = errno;
      trunk_.sessions().note_send_error(to_address(out_.addresses[out_.at]), error);
    }
    out_.at += sent > 0 ? static_cast<std::size_t>(sent) : 1;
  }
  out_.at = out_.end = 0;
}

void UdpTrunk::handle_alarm() {
  alarm_at_ = util::kNever;
  trunk_.sessions().tick();
  flush();
  arm();
}

/// The alarm is set to an earlier time only: one that comes too early costs an empty turn.
void UdpTrunk::arm() {
  const auto next = trunk_.sessions().next();
  if (next >= alarm_at_) return;
  alarm_at_ = next;
  alarm_->set(next);
}

std::string UdpTrunk::line() const {
  const auto& sessions = trunk_.sessions();
  std::string joined;
  for (std::size_t peer = 0; peer != sessions.end(); ++peer) {
    const auto* const session = sessions.find(peer);
    if (session != nullptr) joined += " " + to_text(session->ends().address);
  }
  const auto silent = sessions.silent();
  return fmt::format("trunk: listens at UDP {}; joined with{}{}", to_text(address_),
                     joined.empty() ? " no hub yet" : joined,
                     silent.empty() ? "" : "; no answer yet from" + silent);
}

void UdpTrunk::inspect(util::InspectNode& node) const {
  node.add("address", to_text(address_));
  trunk_.inspect(node);
  node.add("dropped_by_socket", lost_);
}

}  // namespace softhca::trunk
