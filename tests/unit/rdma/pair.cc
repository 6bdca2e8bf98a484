#include "rdma/pair.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>

#include "util/log.h"
#include "wire/train.h"

namespace softhca::rdma::test {
namespace {

std::uint32_t next_cookie = 1;

// Many tests provoke refusals; logging them would clutter the terminal.
const bool quiet = (util::set_log_level(util::LogLevel::kError), true);

// The memory of an End stays with the process for the next one: its page faults took most of the
// time of short tests.
const bool keeps_memory =
    ::mallopt(M_MMAP_THRESHOLD, 32 << 20) == 1 && ::mallopt(M_TRIM_THRESHOLD, 256 << 20) == 1;

wire::Link link_of(Joined joined) {
  return joined == Joined::kLocal || joined == Joined::kGlobal ? wire::Link::kInfiniband
                                                               : wire::Link::kEthernet;
}

SendRequest request(SendOpcode opcode, std::vector<Sge> sges) {
  SendRequest r;
  r.cookie = next_cookie++;
  r.opcode = opcode;
  r.signaled = true;
  r.sges = std::move(sges);
  r.rkey = kKey;
  return r;
}

}  // namespace

End::End(unsigned number, Joined joined, std::size_t requests, util::Duration ack_timeout_min)
    : Port({.packets = &queued}),
      memory(kMemorySize),
      notes("end " + std::to_string(number)),
      transport(*this, keys, notes,
                {.link = link_of(joined),
                 .gids = 16,
                 .multicast_groups = 4,
                 .multicast_members = 3,
                 .requests = requests,
                 .ack_timeout_min = ack_timeout_min}) {
  EXPECT_TRUE(dma.map(kMemoryIova, memory.size(), memory.data(), pcie::DmaAccess::kReadWrite));
  gid.gid = Gid::from_ipv4(0x0A000000 + number);
  gid.mac = Mac::from_u64(0x020000000000 + number);
  gid.roce_v2 = joined == Joined::kRoceV2;
  EXPECT_TRUE(transport.gids().set(0, gid));
  link.lid = Lid(static_cast<std::uint16_t>(0x40 + 0x10 * number));
  transport.set_link_attributes(link);
  MemoryKey::Attributes key;
  key.key = kKey;
  key.pd = kPd;
  key.access = kLocalRead | kLocalWrite | kRemoteRead | kRemoteWrite | kRemoteAtomic;
  key.start = kKeyStart;
  key.length = memory.size();
  for (std::size_t offset = 0; offset < memory.size(); offset += 4096) {
    key.pages.push_back(kMemoryIova + offset);
  }
  keys.insert(key);
}

std::uint64_t End::transmit(const wire::Frame& frame) {
  on_transmit(*this, frame);
  return ++transmitted;
}

void End::use_memory_again() {
  uses_memory_again_ = true;
  hca.on_complete_send = [this](const SendCompletion& completion) {
    for (const auto& sge : posted_.at(completion.cookie)) {
      std::memset(at(sge.address - kKeyStart), 0xDD, sge.length);
    }
  };
}

void End::fill(std::uint64_t offset, std::size_t length, unsigned seed) {
  // splitmix64: the tests fill hundreds of megabytes.
  std::uint64_t state = seed;
  for (std::size_t i = 0; i < length; i += sizeof state) {
    state += 0x9e3779b97f4a7c15;
    auto bytes = state;
    bytes = (bytes ^ bytes >> 30) * 0xbf58476d1ce4e5b9;
    bytes = (bytes ^ bytes >> 27) * 0x94d049bb133111eb;
    bytes ^= bytes >> 31;
    std::memcpy(&memory[offset + i], &bytes, std::min(sizeof bytes, length - i));
  }
}

void End::post(QueuePair& qp, SendRequest request) {
  if (uses_memory_again_) posted_[request.cookie] = request.sges;
  hca.sends_posted[qp.qpn()].push_back(std::move(request));
  transport.doorbell_send(qp);
}

void End::post_receive(QueuePair& qp, std::vector<Sge> sges, std::uint32_t cookie) {
  auto& queue = qp.options().uses_srq ? hca.srq : hca.receives_posted[qp.qpn()];
  queue.push_back({.cookie = cookie, .sges = std::move(sges)});
  transport.notice_receive(qp);
}

Pair::Pair(WireOptions wire_options, unsigned seed, Joined on)
    : options(wire_options), joined(on), random_(seed) {
  a.trains = b.trains = options.trains;
  a.on_transmit = b.on_transmit = [this](End& from, const wire::Frame& f) { take(from, f); };
}

Path Pair::path_to(const End& to) const {
  Path path;
  path.dst_gid = to.gid.gid;
  path.dst_mac = to.gid.mac;
  path.dst_lid = to.link.lid;
  path.global = joined != Joined::kLocal;
  return path;
}

QpAttributes Pair::attributes_for(End& from, End& to, Qpn remote) const {
  QpAttributes attributes;
  attributes.pd = kPd;
  attributes.path = path_to(to);
  attributes.remote_qpn = remote;
  attributes.rq_psn = &from == &a ? 0x000100 : 0xFFFFF0;  // one direction wraps early
  attributes.sq_psn = &from == &a ? 0xFFFFF0 : 0x000100;
  attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 4;
  attributes.access_flags.remote_read = attributes.access_flags.remote_write =
      attributes.access_flags.remote_atomic = true;
  attributes.access_flags.masked_atomic_sizes = 4 | 8;
  attributes.min_rnr_timer = 12;
  attributes.qkey = 0x1111;
  if (adjust) adjust(attributes);
  return attributes;
}

void Pair::to_rts(End& end, QueuePair& qp, const QpAttributes& attributes) {
  for (const auto state : {QpState::kInit, QpState::kRtr, QpState::kRts}) {
    const auto modified = end.transport.modify(qp, state, attributes);
    EXPECT_TRUE(modified) << describe(modified.error()).text;
  }
}

void Pair::change_drained(End& end, QueuePair& qp, const QpAttributes& attributes) {
  for (const auto state : {QpState::kSqDrain, QpState::kSqDrain, QpState::kRts}) {
    const auto modified = end.transport.modify(qp, state, attributes);
    EXPECT_TRUE(modified) << describe(modified.error()).text;
  }
}

void Pair::connect(QpType type) {
  auto option = qp_options;
  option.counters = &a.counters;
  const auto for_a = attributes_for(a, b, Qpn(0x22));
  const auto for_b = attributes_for(b, a, Qpn(0x11));
  qa = &a.create_qp(Qpn(0x11), type, for_a, option);
  option.counters = &b.counters;
  qb = &b.create_qp(Qpn(0x22), type, for_b, option);
  to_rts(a, *qa, for_a);
  to_rts(b, *qb, for_b);
}

void Pair::put(bool to_b, const std::vector<std::byte>& bytes, util::Duration delay,
               std::shared_ptr<wire::Frame> whole) {
  wire_.push_back({now + delay, order_++, to_b, bytes, std::move(whole)});
  std::push_heap(wire_.begin(), wire_.end(), std::greater<>());
}

void Pair::take(End& from, const wire::Frame& frame) {
  ++from.waiting;
  waiting_.push_back({&from, frame});
}

void Pair::carry() {
  for (const auto& [from, frame] : waiting_) {
    carry(*from, frame);
    --from->waiting;
  }
  waiting_.clear();
}

Pair::Fates Pair::fates_of(const wire::Frame& packet, bool to_b) {
  auto fate = Fate::kDeliver;
  if (script || keep_sent) {
    const auto parsed = wire::IbPacket::parse(packet);
    EXPECT_TRUE(parsed) << "the transport sent a packet that cannot be parsed";
    if (!parsed) return {.lost = true};
    if (keep_sent) sent.push_back({*parsed, to_b});
    if (script) fate = script(*parsed, to_b);
  }
  if (fate == Fate::kLose || chance(options.loss)) return {.lost = true};
  const bool late = fate == Fate::kLate || chance(options.late);
  return {.late = late, .doubled = fate == Fate::kDouble || chance(options.duplicate)};
}

void Pair::put_bytes(bool to_b, const wire::Frame& packet, Fates fates) {
  std::vector<std::byte> bytes(packet.size());
  packet.copy_to(bytes);
  if (capture) capture(bytes, to_b);
  if (fates.lost) return;
  std::shared_ptr<wire::Frame> whole;
  if (options.trains) {
    whole = std::make_shared<wire::Frame>(packet);
    whole->own_segments();
  }
  put(to_b, bytes, options.latency + (fates.late ? options.lateness : util::Duration{}), whole);
  if (fates.doubled) put(to_b, bytes, options.latency + options.lateness / 2, whole);
}

void Pair::carry(End& from, const wire::Frame& frame) {
  const bool to_b = &from == &a;
  if (frame.packets() != 1) return carry_train(from, frame);
  put_bytes(to_b, frame, fates_of(frame, to_b));
}

/// Adjacent packets that no fault hits stay together in one train.
void Pair::carry_train(End& from, const wire::Frame& train) {
  const bool to_b = &from == &a;
  unsigned together = 0;
  const auto put_part = [&](unsigned end) {
    if (together == 0) return;
    auto part = std::make_shared<wire::Frame>();
    wire::part(train, end - together, together, *part);
    part->own_segments();
    wire_.push_back({now + options.latency, order_++, to_b, {}, std::move(part)});
    std::push_heap(wire_.begin(), wire_.end(), std::greater<>());
    together = 0;
  };
  wire::Frame packet;
  for (unsigned i = 0; i != train.packets(); ++i) {
    wire::cut(train, i, packet);
    const auto fates = fates_of(packet, to_b);
    if (fates.lost || fates.late || fates.doubled) {
      put_part(i);
      put_bytes(to_b, packet, fates);
      continue;
    }
    ++together;
    if (!capture) continue;
    std::vector<std::byte> bytes(packet.size());
    packet.copy_to(bytes);
    capture(bytes, to_b);
  }
  put_part(train.packets());
}

util::Time Pair::run_both() {
  // The order is fixed, so that a seed means the same with every compiler.
  const auto next_a = a.run(now);
  const auto next_b = b.run(now);
  carry();
  return std::min(next_a, next_b);
}

bool Pair::step() {
  auto next = run_both();
  if (!wire_.empty()) next = std::min(next, wire_.front().due);
  if (next == util::kNever) return false;
  now = std::max(now, next);
  while (!wire_.empty() && wire_.front().due <= now) {
    std::pop_heap(wire_.begin(), wire_.end(), std::greater<>());
    const auto packet = std::move(wire_.back());
    wire_.pop_back();
    auto& to = (packet.to_b ? b : a).transport;
    if (packet.whole) {
      to.handle_frame(*packet.whole, now);
      continue;
    }
    // The bytes have their own memory, so that a sanitizer sees an access beyond the packet.
    const auto frame = wire::Frame::from_bytes(packet.bytes, link_of(joined));
    to.handle_frame(frame, now);
  }
  return true;
}

void Pair::drive(unsigned steps_max) {
  for (unsigned i = 0; i < steps_max; ++i) {
    if (!step()) return;
  }
  FAIL() << "still busy after " << steps_max << " steps:\n"
         << a.transport.inspect() << b.transport.inspect();
}

void Pair::drive_for(util::Duration time) {
  const auto end = now + time;
  for (;;) {
    auto next = run_both();
    if (!wire_.empty()) next = std::min(next, wire_.front().due);
    if (next > end) break;
    step();
  }
  now = end;
}

SendRequest send(std::uint64_t offset, std::uint32_t length) {
  return request(SendOpcode::kSend, {End::sge(offset, length)});
}
SendRequest datagram_to(const End& to, std::uint64_t offset, std::uint32_t length, Qpn qpn) {
  auto r = send(offset, length);
  r.ud.dst_gid = to.gid.gid;
  r.ud.dst_mac = to.gid.mac;
  r.ud.qpn = qpn;
  r.ud.qkey = 0x1111;
  return r;
}
SendRequest write(std::uint64_t from, std::uint64_t to, std::uint32_t length) {
  auto r = request(SendOpcode::kRdmaWrite, {End::sge(from, length)});
  r.remote_address = kKeyStart + to;
  return r;
}
SendRequest read(std::uint64_t to, std::uint64_t from, std::uint32_t length) {
  auto r = request(SendOpcode::kRdmaRead, {End::sge(to, length)});
  r.remote_address = kKeyStart + from;
  return r;
}
SendRequest fetch_add(std::uint64_t result, std::uint64_t at, std::uint64_t add) {
  auto r = request(SendOpcode::kFetchAdd, {End::sge(result, 8)});
  r.remote_address = kKeyStart + at;
  r.swap_add = add;
  return r;
}
SendRequest compare_swap(std::uint64_t result, std::uint64_t at, std::uint64_t compare,
                         std::uint64_t swap) {
  auto r = request(SendOpcode::kCompareSwap, {End::sge(result, 8)});
  r.remote_address = kKeyStart + at;
  r.compare = compare;
  r.swap_add = swap;
  return r;
}

}  // namespace softhca::rdma::test
