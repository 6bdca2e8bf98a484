#include "server/host_port.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cassert>
#include <utility>

#include "server/arrival.h"
#include "util/endian.h"
#include "util/log.h"
#include "wire/ethernet.h"
#include "wire/icrc.h"
#include "wire/vlan.h"

namespace softhca::server {
namespace {

/// Cost of a call of the kernel, which carries a frame to its receiver in the host; of each packet;
/// bytes per unit of work.
constexpr std::int64_t kSendWork = 2000;
constexpr std::int64_t kReceiveWork = 1000;
constexpr std::int64_t kPacketWork = 200;
constexpr std::size_t kBytesPerWork = 4;
/// Alignment of frames in memory.
constexpr std::size_t kAlign = 64;

static_assert(wire::Frame::kSegmentsMax + 2 <= os::FrameFile::kPiecesMax);
static_assert(HostPort::kMemory >= os::FrameFile::kRoom);

/// The pieces of a packet on a wire, in place, but for its tail.
class Pieces {
 public:
  explicit Pieces(const wire::Frame& frame) {
    add(frame.head());
    for (const auto segment : frame.segments()) add(segment);
    const auto tail = frame.tail();
    if (tail.empty()) return;
    std::ranges::copy(tail, tail_.begin());
    if (frame.icrc() == wire::Frame::Icrc::kDeferred) put_icrc(frame);
    add(std::span(tail_).first(tail.size()));
  }
  Pieces(const Pieces&) = delete;
  Pieces& operator=(const Pieces&) = delete;

  std::span<const iovec> all() const { return {pieces_.data(), count_}; }

 private:
  void add(std::span<const std::byte> bytes) {
    pieces_[count_++] = {const_cast<std::byte*>(bytes.data()), bytes.size()};
  }
  void put_icrc(const wire::Frame& frame) {
    const auto start = wire::find_icrc_start(frame);
    assert(start && "a frame without the headers of IBA");
    const auto covered = frame.size() - wire::kIcrcSize;
    util::store_le32(tail_.data() + frame.tail_size() - wire::kIcrcSize,
                     wire::icrc_of(frame, *start, covered));
  }

  std::array<iovec, os::FrameFile::kPiecesMax> pieces_;
  std::size_t count_ = 0;
  std::array<std::byte, wire::Frame::kTailCapacity> tail_;
};

/// Bytes of the longest frame with the headers of this one. The MTU does not include an Ethernet
/// header, nor a tag.
std::size_t longest(const wire::Frame& frame, unsigned mtu) {
  const auto type = wire::EtherType(
      wire::EthernetView(frame.link_header()).get(wire::EthernetLayout::ether_type));
  const bool tagged = type == wire::EtherType::kVlan || type == wire::EtherType::kServiceVlan;
  return wire::EthernetLayout::kSize + (tagged ? wire::VlanLayout::kSize : 0) + mtu;
}

}  // namespace

util::Result<std::unique_ptr<HostPort>> HostPort::create(os::EventLoop& loop,
                                                         fabric::Switch& network, std::string name,
                                                         std::unique_ptr<os::FrameFile> file) {
  auto interface = os::NetworkInterface::follow(file->interface());
  if (!interface) return tl::unexpected(interface.error());
  std::unique_ptr<HostPort> port(
      new HostPort(loop, network, std::move(name), std::move(file), *std::move(interface)));
  if (auto watched = port->watch(); !watched) return tl::unexpected(watched.error());
  port->report_link();
  return port;
}

HostPort::HostPort(os::EventLoop& loop, fabric::Switch& network, std::string name,
                   std::unique_ptr<os::FrameFile> file, os::NetworkInterface interface)
    : loop_(loop),
      name_(std::move(name)),
      file_(std::move(file)),
      interface_(std::move(interface)),
      memory_(kMemory),
      port_(network.create_port(name_)) {
  port_->set_receiver(this);
}

HostPort::~HostPort() {
  port_->set_receiver(nullptr);
  leave();
}

util::Result<void> HostPort::watch() {
  auto watched = loop_.add(interface_.fd(), EPOLLIN, [this](std::uint32_t) { follow(); });
  if (!watched) return watched;
  return loop_.add(file_->fd(), EPOLLIN, [this](std::uint32_t) { receive(); });
}

void HostPort::leave() {
  loop_.remove(interface_.fd());
  loop_.remove(file_->fd());
}

// To the network ---------------------------------------------------------------------------------

void HostPort::handle_frame(const wire::Frame& frame) { ++send(frame); }

/// Returns the counter of what became of it.
std::uint64_t& HostPort::send(const wire::Frame& frame) {
  const auto& state = interface_.state();
  if (!state.carrier) return counters_.no_carrier;
  if (frame.size() > longest(frame, state.mtu)) return counters_.above_mtu;
  work_ += kSendWork + static_cast<std::int64_t>(frame.size() / kBytesPerWork);
  using Sent = os::FrameFile::Sent;
  switch (file_->send(Pieces(frame).all())) {
    case Sent::kSent:
      return counters_.sent;
    case Sent::kFull:
      return counters_.queue_full;
    case Sent::kTooLong:
      return counters_.above_mtu;
    case Sent::kDown:
      return counters_.no_carrier;
    case Sent::kUnreadable:
      return counters_.unreadable;
    case Sent::kRefused:
      break;
  }
  return counters_.refused;
}

std::int64_t HostPort::take_work() { return std::exchange(work_, 0); }

// From the network -------------------------------------------------------------------------------

/// Takes a limited number of packets. The loop calls again while there are more.
void HostPort::receive() {
  if (port_->released() >= last_) used_ = 0;
  for (std::size_t packets = 0; packets < kPacketsPerTurn && !loop_.budget().spent();) {
    if (!receive_frame(packets)) return;
  }
}

bool HostPort::receive_frame(std::size_t& packets) {
  const auto room = std::span(memory_).subspan(used_);
  if (room.size() < os::FrameFile::kRoom) return false;
  const auto received = file_->receive(room);
  using Status = os::FrameFile::Received::Status;
  if (received.status == Status::kNothing) return false;
  if (received.status == Status::kGone) {
    loop_.remove(file_->fd());
    return false;
  }
  Arrival arrival;
  if (received.status == Status::kFrame) {
    arrival = transmit_arrival(received.frame, received.rest, *port_);
  }
  if (arrival.packets != 0) {
    last_ = arrival.number;
    const auto end = received.frame.data() + received.frame.size() - memory_.data();
    used_ =
        std::min((static_cast<std::size_t>(end) + kAlign - 1) / kAlign * kAlign, memory_.size());
    counters_.received += arrival.packets;
  } else {
    ++(received.status == Status::kTooLong ? counters_.received_too_long
                                           : counters_.received_unfit);
  }
  packets += std::max<std::size_t>(arrival.packets, 1);
  loop_.budget().charge(kReceiveWork + static_cast<std::int64_t>(arrival.packets) * kPacketWork +
                        static_cast<std::int64_t>(received.frame.size() / kBytesPerWork));
  return true;
}

// The link ---------------------------------------------------------------------------------------

void HostPort::follow() {
  const auto before = interface_.state();
  if (!interface_.update()) return;
  const auto& state = interface_.state();
  if (!state.exists) {
    leave();
    util::log(util::LogLevel::kError,
              "--port {}: the interface has gone. The server must be started again to use another",
              name_);
  } else if (state.carrier != before.carrier) {
    report_link();
  }
}

void HostPort::report_link() const {
  const auto& state = interface_.state();
  if (state.carrier) {
    util::log(util::LogLevel::kInfo, "--port {}: the link is up, MTU {}", name_, state.mtu);
    return;
  }
  const std::string_view interface = std::string_view(name_).substr(name_.find(':') + 1);
  if (state.up) {
    util::log(util::LogLevel::kWarning, "--port {}: the link is down: {} has no carrier", name_,
              interface);
  } else {
    util::log(util::LogLevel::kWarning, "--port {}: the link is down: ip link set {} up", name_,
              interface);
  }
}

void HostPort::inspect(util::InspectNode& out) const {
  const auto& state = interface_.state();
  out.add("exists", state.exists);
  out.add("up", state.up);
  out.add("carrier", state.carrier);
  out.add("mtu", state.mtu);
  out.add("sent", counters_.sent);
  out.add("received", counters_.received);
  auto& dropped = out.child("dropped");
  dropped.add("no_carrier", counters_.no_carrier);
  dropped.add("above_mtu", counters_.above_mtu);
  dropped.add("queue_full", counters_.queue_full);
  dropped.add("unreadable", counters_.unreadable);
  dropped.add("refused", counters_.refused);
  dropped.add("received_too_long", counters_.received_too_long);
  dropped.add("received_unfit", counters_.received_unfit);
  dropped.add("received_queue_full", file_->lost());
}

}  // namespace softhca::server
