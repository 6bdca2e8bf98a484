#include "pair.h"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "wire/ethernet.h"
#include "wire/ipv4.h"
#include "wire/udp.h"

namespace softhca::bench {
namespace {

constexpr unsigned kMtu = 4096;
/// Bytes of memory for each receive.
constexpr std::size_t kSlot = 2048;
/// Bytes of the headers that are inlined in the request, as Linux does for this card.
constexpr std::size_t kInlineHeader = 18;
constexpr std::uint32_t kQkey = 1;

/// Bytes that the program holds from the allocator.
std::ptrdiff_t heap_in_use() {
  const auto info = ::mallinfo2();
  return static_cast<std::ptrdiff_t>(info.uordblks + info.hblkhd);
}

std::unique_ptr<connectx::Device> make_device(unsigned number, fabric::Port& port) {
  connectx::DeviceOptions options;
  options.name = fmt::format("connectx{}", number);
  options.mac = wire::MacAddress::from_u64(0x020000000000u + number);
  options.node_guid = number;
  return std::make_unique<connectx::Device>(std::move(options), port);
}

/// Writes Ethernet, IPv4 and UDP headers to the start of the side's memory, and returns them.
std::span<const std::byte> write_headers(Side& from, const Side& to, std::size_t size) {
  const auto bytes = std::span(from.memory);
  const wire::Ethernet ethernet{.destination = wire::MacAddress{to.hca->mac().bytes},
                                .source = wire::MacAddress{from.hca->mac().bytes},
                                .ether_type = wire::EtherType::kIpv4};
  ethernet.emit(util::MutableView<wire::EthernetLayout>(bytes));
  const auto l3 = bytes.subspan(wire::EthernetLayout::kSize);
  const auto ip_size = size - wire::EthernetLayout::kSize;
  std::ranges::fill(l3.first(wire::Ipv4Layout::kSize + wire::UdpLayout::kSize), std::byte{0});
  const util::MutableView<wire::Ipv4Layout> ip(l3);
  ip.set(wire::Ipv4Layout::version, 4);
  ip.set(wire::Ipv4Layout::ihl, 5);
  ip.set(wire::Ipv4Layout::total_length, static_cast<std::uint32_t>(ip_size));
  ip.set(wire::Ipv4Layout::ttl, 64);
  ip.set(wire::Ipv4Layout::protocol, static_cast<std::uint32_t>(wire::IpProtocol::kUdp));
  ip.set(wire::Ipv4Layout::source, util::load_be32(from.gid.bytes.data() + 12));
  ip.set(wire::Ipv4Layout::destination, util::load_be32(to.gid.bytes.data() + 12));
  const util::MutableView<wire::UdpLayout> udp(l3.subspan(wire::Ipv4Layout::kSize));
  udp.set(wire::UdpLayout::source_port, 1000);
  udp.set(wire::UdpLayout::destination_port, 2000);
  udp.set(wire::UdpLayout::length, static_cast<std::uint32_t>(ip_size - wire::Ipv4Layout::kSize));
  return bytes;
}

}  // namespace

void must(util::Result<void> result) {
  if (!result) throw std::runtime_error(result.error().message);
}

void must(driver::PostStatus status) {
  if (status != driver::PostStatus::kOk) {
    throw std::runtime_error(fmt::format("posting: {}", to_string(status)));
  }
}

Side::Side(pcie::Function& device, std::function<void()> progress, unsigned number,
           std::size_t memory_size)
    : host(device, {.progress = std::move(progress)}),
      gid(driver::Gid::from_ipv4(10, 0, 0, static_cast<std::uint8_t>(number))),
      memory(memory_size, static_cast<std::byte>(number)),
      hca(must(driver::connectx::Hca::open(host))),
      pd(must(driver::connectx::ProtectionDomain::create(*hca))),
      key(must(driver::connectx::MemoryKey::register_memory(
          *pd, memory, {.remote_read = true, .remote_write = true}))),
      cq(must(driver::connectx::CompletionQueue::create(*hca, {.entries = 1024}))),
      qp(must(driver::connectx::QueuePair::create(
          *pd,
          {.send_cq = *cq,
           .receive_cq = *cq,
           .send = {.requests = Pair::kQueueDepth, .pieces = 1, .inline_size = Pair::kInlineMax},
           .receive = {.requests = Pair::kQueueDepth, .pieces = 1}}))) {
  datagrams = must(driver::connectx::QueuePair::create(
      *pd, {.send_cq = *cq,
            .receive_cq = *cq,
            .send = {.requests = Pair::kQueueDepth, .pieces = 1, .inline_size = Pair::kInlineMax},
            .receive = {.requests = Pair::kQueueDepth, .pieces = 1},
            .service = spec::connectx::service_type::UD}));
  must(hca->set_roce_address(0, {.gid = gid, .mac = hca->mac()}));
  domain = must(driver::connectx::TransportDomain::create(*hca));
  sender = must(driver::connectx::FrameSender::create(
      *pd, *domain,
      {.cq = *cq,
       .send = {.requests = Pair::kQueueDepth, .pieces = 1, .inline_size = kInlineHeader}}));
  receiver = must(driver::connectx::FrameReceiver::create(
      *pd, *domain, {.cq = *cq, .receive = {.requests = Pair::kQueueDepth, .pieces = 1}}));
  must(receiver->take_all_frames());
}

Pair::Pair(std::size_t memory_size)
    : port_a_(switch_.create_port("a")),
      port_b_(switch_.create_port("b")),
      device_a_(make_device(1, *port_a_)),
      device_b_(make_device(2, *port_b_)) {
  a_ = std::make_unique<Side>(*device_a_, [this] { progress(); }, 1, memory_size);
  b_ = std::make_unique<Side>(*device_b_, [this] { progress(); }, 2, memory_size);
  connect(*a_->qp, *b_->qp);
  must(a_->datagrams->activate(kQkey));
  must(b_->datagrams->activate(kQkey));
  using Way = driver::connectx::AddressVector;
  way_to_a_ = std::make_unique<Way>(Way::Attributes{.gid = a_->gid, .mac = a_->hca->mac()});
  way_to_b_ = std::make_unique<Way>(Way::Attributes{.gid = b_->gid, .mac = b_->hca->mac()});
  // Lets the switch learn where b is.
  receive_frames(*a_, 1);
  send_frames(*b_, *a_, kSlot / 2, 1);
  wait(*a_, 1);
  wait(*b_, 1);
}

void Pair::connect(driver::connectx::QueuePair& a, driver::connectx::QueuePair& b,
                   std::uint8_t ack_timeout) {
  const auto name = [](const Side& side, const driver::connectx::QueuePair& qp) {
    return driver::connectx::RemoteQueuePair{
        .qpn = qp.qpn(), .psn = 0, .gid = side.gid, .mac = side.hca->mac()};
  };
  must(a.connect(name(*b_, b), {.path_mtu = kMtu, .ack_timeout = ack_timeout}));
  must(b.connect(name(*a_, a), {.path_mtu = kMtu, .ack_timeout = ack_timeout}));
}

void Pair::progress() {
  const auto before = counts_memory_ ? heap_in_use() : 0;
  const auto now = util::monotonic_now();
  for (auto* device : {device_a_.get(), device_b_.get()}) {
    device->run(now);
    switch_.deliver(std::numeric_limits<std::size_t>::max());
  }
  if (counts_memory_) device_memory_ += heap_in_use() - before;
}

void Pair::write(Side& from, Side& to, std::size_t size, bool signaled) {
  const driver::Sge piece{from.address(), static_cast<std::uint32_t>(size), from.key->key()};
  must(from.qp->post_send({.opcode = driver::SendOpcode::kRdmaWrite,
                           .pieces = {&piece, 1},
                           .remote_address = to.address(),
                           .rkey = to.key->key(),
                           .signaled = signaled}));
}

void Pair::read(Side& from, Side& to, std::size_t size, bool signaled) {
  const driver::Sge piece{from.address(), static_cast<std::uint32_t>(size), from.key->key()};
  must(from.qp->post_send({.opcode = driver::SendOpcode::kRdmaRead,
                           .pieces = {&piece, 1},
                           .remote_address = to.address(),
                           .rkey = to.key->key(),
                           .signaled = signaled}));
}

void Pair::send(Side& from, std::size_t size, bool signaled) {
  const driver::Sge piece{from.address(), static_cast<std::uint32_t>(size), from.key->key()};
  must(from.qp->post_send(
      {.opcode = driver::SendOpcode::kSend, .pieces = {&piece, 1}, .signaled = signaled}));
}

void Pair::receive(Side& side, std::size_t size) {
  const driver::Sge piece{side.address(), static_cast<std::uint32_t>(size), side.key->key()};
  must(side.qp->post_receive({.pieces = {&piece, 1}}));
}

void Pair::write_inline(Side& from, Side& to, std::span<const std::byte> bytes, bool signaled) {
  must(from.qp->post_send({.opcode = driver::SendOpcode::kRdmaWrite,
                           .inline_data = bytes,
                           .remote_address = to.address(),
                           .rkey = to.key->key(),
                           .signaled = signaled}));
}

void Pair::send_datagram(Side& from, Side& to, std::span<const std::byte> bytes, bool signaled) {
  must(from.datagrams->post_send({.inline_data = bytes,
                                  .signaled = signaled,
                                  .address = &(&to == b_.get() ? way_to_b_ : way_to_a_)->form(),
                                  .remote_qpn = to.datagrams->qpn(),
                                  .remote_qkey = kQkey}));
}

void Pair::receive_datagram(Side& side) {
  constexpr auto kRoom = spec::infiniband::kGrhBytes + kInlineMax;
  const driver::Sge piece{side.address(), kRoom, side.key->key()};
  must(side.datagrams->post_receive({.pieces = {&piece, 1}}));
}

void Pair::receive_frames(Side& side, std::size_t count) {
  for (; count != 0; --count, ++next_receive_) {
    const auto slot = next_receive_ % kQueueDepth;
    const driver::Sge piece{side.address(slot * kSlot), kSlot, side.key->key()};
    must(side.receiver->post({.id = slot, .pieces = {&piece, 1}}));
  }
}

void Pair::send_frames(Side& from, Side& to, std::size_t size, std::size_t count) {
  const auto header = write_headers(from, to, size);
  const auto rest = static_cast<std::uint32_t>(size - kInlineHeader);
  const driver::Sge piece{from.address(kInlineHeader), rest, from.key->key()};
  std::array<driver::FrameRequest, kBurst> requests;
  for (std::size_t i = 0; i != count; ++i) {
    requests[i] = {.id = i,
                   .header = header.first(kInlineHeader),
                   .pieces = {&piece, 1},
                   .checksums = true,
                   .signaled = i + 1 == count};
  }
  auto status = driver::PostStatus::kOk;
  (void)from.sender->post(std::span(requests).first(count), status);
  must(status);
}

void Pair::wait(Side& side, std::size_t count) {
  while (count != 0) {
    const auto n = side.cq->poll(std::span(done_).first(std::min(count, done_.size())));
    for (const auto& completion : std::span(done_).first(n)) {
      if (completion.status != driver::WorkStatus::kSuccess) {
        throw std::runtime_error(fmt::format("completion: {}", to_string(completion.status)));
      }
    }
    count -= n;
  }
}

}  // namespace softhca::bench
