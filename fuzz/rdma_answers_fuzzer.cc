// An RC requester whose peer responds with anything at any time: acknowledgments, NAKs, RNR NAKs,
// responses to READs and atomics, of any PSN. Meanwhile frames are read early or late or get lost,
// timers expire, and the QP and its keys change. honest_peer.h judges:
// - a request completes at most once, and in order
// - it succeeds only if the peer has executed it, and fails only if it is the one at fault
// - each byte on the wire belongs to the posted message
// - a buffer is not touched after its completion
//
// The first byte says whether the peer lies about what it has executed, and whether frames are
// trains. At the end an honest peer responds to everything, and everything completes.

#include <memory>
#include <vector>

#include "device_turn.h"
#include "honest_peer.h"
#include "rdma/test_hca.h"
#include "rdma/transport.h"
#include "script.h"
#include "util/log.h"
#include "wire/ib_header.h"
#include "wire/train.h"

namespace softhca::rdma {
namespace {

using fuzz::check;
using fuzz::HonestPeer;
using fuzz::Script;

constexpr pcie::Iova kIova = 0x100000;
constexpr std::uint64_t kStart = 0x4000'0000;
constexpr MKey kKey{0x100};
constexpr Pd kPd{1};
constexpr Qpn kQpn{0x10};

/// Frames wait by reference until the script lets them be read.
class Wire final : public fabric::Port {
 public:
  explicit Wire(bool trains) : trains_(trains) {}
  std::uint64_t transmit(const wire::Frame& frame) override {
    waiting.push_back(frame);
    return ++transmitted_;
  }
  std::uint64_t loop_back(const wire::Frame& frame, std::uint32_t) override {
    return transmit(frame);
  }
  std::uint64_t released() const override { return transmitted_ - waiting.size(); }
  void set_receiver(fabric::Receiver*) override {}
  bool takes_trains() const override { return trains_; }
  bool link_up() const override { return true; }

  std::vector<wire::Frame> waiting;

 private:
  bool trains_;
  std::uint64_t transmitted_ = 0;
};

class World {
 public:
  World(Script& input, std::uint8_t kind)
      : input_(input), peer_(memory_, (kind & 1) != 0), wire_((kind & 2) != 0) {
    peer_.reset();
    (void)dma_.map(kIova, memory_.size(), memory_.data(), pcie::DmaAccess::kReadWrite);
    SourceAddress source;
    source.gid = Gid::from_ipv4(0x0A000001);
    source.mac = Mac::from_u64(0x020000000001);
    source.roce_v2 = true;
    transport_.gids().set(0, source);
    MemoryKey::Attributes key;
    key.key = kKey;
    key.pd = kPd;
    key.access = kLocalRead | kLocalWrite;
    key.start = kStart;
    key.length = memory_.size();
    for (std::size_t at = 0; at < memory_.size(); at += 4096) key.pages.push_back(kIova + at);
    keys_.insert(key);
    hca_.keep = false;
    hca_.on_complete_send = [this](const SendCompletion& c) { peer_.complete(c, keys_changed_); };
    qp_ = &transport_.create_qp(kQpn, QpType::kRc, attributes(), {}, hca_.queues_of(kQpn, false));
    to_rts();
  }

  void step() {
    switch (input_.byte() % 16) {
      case 0:
      case 1:
      case 2:
        return post();
      case 3:
      case 4:
      case 5:
        return run();
      case 6:
      case 7:
        return carry(input_.byte());
      case 8:
      case 9:
      case 10:
        return answer();
      case 11:
        return answer_all();
      case 12:
      case 13:
        now_ += std::chrono::microseconds(input_.below(200));
        return;
      case 14:
        return change_key();
      default:
        return modify();
    }
  }
  /// An honest peer responds to everything, and the link loses nothing.
  void finish() {
    if (peer_.lies()) return;
    keys_.find(kKey)->set_free(false);
    if (qp_->state() == QpState::kSqDrain) {
      (void)transport_.modify(*qp_, QpState::kRts, attributes());
    }
    post(SendOpcode::kNop, 0,
         kSignaled);  // its completion covers the unsignaled requests before it
    for (unsigned i = 0; i != 200 && peer_.completed() != peer_.posted(); ++i) {
      run();
      carry(0xFF);
      answer_all();
      now_ += std::chrono::milliseconds(10);  // the longest RNR timer is 655 ms
    }
    check(peer_.completed() == peer_.posted());
  }

 private:
  static constexpr std::int64_t kTurnWork = 50'000;
  // How to post a message. The highest two bits give the number of pieces.
  static constexpr std::uint8_t kSignaled = 1;
  static constexpr std::uint8_t kFenced = 2;
  static constexpr std::uint8_t kInline = 4;

  static QpAttributes attributes() {
    QpAttributes a;
    a.pd = kPd;
    a.path.dst_gid = Gid::from_ipv4(0x0A000002);
    a.path.dst_mac = Mac::from_u64(0x020000000002);
    a.path_mtu = HonestPeer::kMtu;
    a.remote_qpn = Qpn(0x99);
    a.sq_psn = HonestPeer::kFirstPsn;
    a.retry_count = 3;
    a.rnr_retry = 3;
    a.ack_timeout = 4;  // 66 us
    a.max_rd_atomic = a.max_dest_rd_atomic = 4;
    return a;
  }
  static wire::IbAddress source() {
    wire::IbAddress address;
    address.encapsulation = wire::Encapsulation::kRoceV2;
    address.source_gid = Gid::from_ipv4(0x0A000002);
    address.destination_gid = Gid::from_ipv4(0x0A000001);
    address.destination_mac = Mac::from_u64(0x020000000001);
    return address;
  }
  void to_rts() {
    for (const auto state : {QpState::kInit, QpState::kRtr, QpState::kRts}) {
      (void)transport_.modify(*qp_, state, attributes());
    }
  }

  void post() {
    constexpr SendOpcode kOpcodes[] = {
        SendOpcode::kRdmaWrite, SendOpcode::kSend,     SendOpcode::kRdmaWrite, SendOpcode::kSend,
        SendOpcode::kRdmaRead,  SendOpcode::kFetchAdd, SendOpcode::kNop,       SendOpcode::kLocal};
    const auto opcode = kOpcodes[input_.byte() % 8];
    const auto how = input_.byte();
    auto length = input_.below(1500);
    if (opcode == SendOpcode::kFetchAdd) length = 8;
    if (opcode == SendOpcode::kNop || opcode == SendOpcode::kLocal) length = 0;
    if (peer_.posted() - peer_.completed() < HonestPeer::kSlots / 2) post(opcode, length, how);
  }
  void post(SendOpcode opcode, std::uint32_t length, std::uint8_t how) {
    const auto& m = peer_.post(opcode, length, (how & kSignaled) != 0);
    SendRequest request;
    request.cookie = m.id;
    request.opcode = opcode;
    request.signaled = m.signaled;
    request.fence = (how & kFenced) != 0;
    request.rkey = MKey(0x300);
    request.remote_address = m.remote();
    request.swap_add = 1;
    request.is_inline = (how & kInline) != 0 && !m.wants_data();
    if (request.is_inline) {
      request.inline_data.assign(peer_.slot(m.id).first(length));
    } else {
      put_pieces(m, how, request);
    }
    hca_.sends_posted[kQpn].push_back(std::move(request));
    transport_.doorbell_send(*qp_);
  }
  /// Splits the message into up to four pieces.
  void put_pieces(const HonestPeer::Message& m, std::uint8_t how, SendRequest& request) {
    auto address = kStart + std::uint64_t{m.id % HonestPeer::kSlots} * HonestPeer::kSlotBytes;
    auto left = m.length;
    for (unsigned i = m.is_atomic() ? 0 : how >> 6; i != 0 && left > 1; --i) {
      const auto part = 1 + input_.byte() % (left - 1);
      request.sges.push_back({address, part, kKey});
      address += part;
      left -= part;
    }
    request.sges.push_back({address, left, kKey});
  }

  void run() {
    const fuzz::Turn turn;
    util::WorkBudget work(kTurnWork);
    transport_.run(now_, work);
    fuzz::check_work(work.done(), kTurnWork);
  }
  /// Reads all waiting frames. Packets whose bit in `arrives` is 0 are lost.
  void carry(std::uint8_t arrives) {
    unsigned number = 0;
    for (const auto& frame : wire_.waiting) {
      wire::for_each_packet(frame, [&](const wire::Frame& packet) {
        std::vector<std::byte> bytes(packet.size());
        packet.copy_to(bytes);
        const auto whole = wire::Frame::from_bytes(bytes);
        const auto parsed = wire::IbPacket::parse(whole);
        check(parsed.has_value());
        peer_.see(*parsed, std::span(bytes).subspan(parsed->payload_offset, parsed->payload_size),
                  (arrives >> number++ % 8 & 1) != 0);
      });
    }
    wire_.waiting.clear();
  }

  /// Response `psn` acknowledges everything before `end`.
  void claim(std::uint64_t psn, std::uint64_t end) {
    const bool takes = qp_->state() == QpState::kRts || qp_->state() == QpState::kSqDrain;
    peer_.claim(psn, end, takes);
  }
  void give(wire::Opcode opcode, std::uint64_t psn, wire::Aeth aeth, std::uint64_t original = 0,
            std::span<const std::byte> data = {}) {
    wire::Bth bth;
    bth.opcode = opcode;
    bth.dest_qp = kQpn;
    bth.psn = wire::Psn(static_cast<std::uint32_t>(psn));
    wire::ExtHeaders ext;
    ext.aeth = aeth;
    ext.atomic_ack.original = original;
    wire::Frame frame;
    header_.emit(bth, ext, data.size(), frame);
    (void)frame.add_segment(data);
    transport_.handle_frame(frame, now_);
  }
  void acknowledge(std::uint64_t psn) {
    claim(psn, psn + 1);
    give(wire::Opcode::RC_ACKNOWLEDGE, psn, wire::Aeth::ack(wire::Msn(0)));
  }
  void respond(const HonestPeer::Message& m, std::uint64_t psn) {
    using enum wire::Opcode;
    const auto data = HonestPeer::response(m, psn);
    const bool first = psn == m.first_psn;
    const bool last = psn + 1 == m.end();
    claim(psn, psn + 1);
    give(first && last ? RC_RDMA_READ_RESPONSE_ONLY
         : first       ? RC_RDMA_READ_RESPONSE_FIRST
         : last        ? RC_RDMA_READ_RESPONSE_LAST
                       : RC_RDMA_READ_RESPONSE_MIDDLE,
         psn, wire::Aeth::ack(wire::Msn(0)), 0, data);
  }
  void respond_atomic(const HonestPeer::Message& m) {
    claim(m.first_psn, m.end());
    give(wire::Opcode::RC_ATOMIC_ACKNOWLEDGE, m.first_psn, wire::Aeth::ack(wire::Msn(0)),
         m.original);
  }
  /// Responds to everything that has arrived, in order.
  void answer_all() {
    const auto messages = peer_.messages();
    for (const auto& m : messages) {
      if (m.end() > peer_.expected() || m.id < peer_.completed()) continue;
      if (m.is_atomic()) respond_atomic(m);
      for (auto psn = m.first_psn; m.is_read() && psn != m.end(); ++psn) respond(m, psn);
    }
    if (peer_.expected() != HonestPeer::kFirstPsn) acknowledge(peer_.expected() - 1);
  }
  /// One response that the script makes.
  void answer() {
    const auto kind = input_.byte();
    auto psn = peer_.expected() + input_.byte() % 64 - 48;
    if (!peer_.lies()) psn = std::min(psn, peer_.expected());
    switch (kind % 8) {
      case 0:
      case 1:
        return acknowledge(peer_.lies() ? psn : std::min(psn, peer_.expected() - 1));
      case 2:
      case 3:
        return refuse({wire::AethType::RNR_NAK, static_cast<std::uint8_t>(kind / 8), {}}, psn);
      case 4:
        return refuse({wire::AethType::NAK, 0, {}}, psn);
      case 5:
        return refuse({wire::AethType(kind / 8 % 4), static_cast<std::uint8_t>(kind / 32), {}},
                      psn);
      default:
        return answer_with_data(kind, psn);
    }
  }
  void refuse(wire::Aeth aeth, std::uint64_t psn) {
    if (aeth.type == wire::AethType::ACK && !peer_.lies()) aeth.type = wire::AethType::NAK;
    // The reserved type acknowledges nothing.
    if (aeth.type != wire::AethType(2)) claim(psn, psn + (aeth.type == wire::AethType::ACK));
    peer_.refuse(psn);
    give(wire::Opcode::RC_ACKNOWLEDGE, psn, aeth);
  }
  /// Responds to a READ or atomic that has arrived. A lying peer responds to any request.
  void answer_with_data(std::uint8_t kind, std::uint64_t psn) {
    if (peer_.lies()) {
      const auto opcode =
          wire::Opcode(unsigned(wire::Opcode::RC_RDMA_READ_RESPONSE_FIRST) + kind / 8 % 6);
      claim(psn, psn + 1);
      if (opcode == wire::Opcode::RC_ACKNOWLEDGE) peer_.refuse(psn);
      const std::vector<std::byte> data(
          wire::info(opcode).operation == wire::Operation::kRdmaReadResponse ? input_.below(300)
                                                                             : 0);
      return give(opcode, psn, {wire::AethType(kind / 64), 0, {}}, 0, data);
    }
    const auto* m = peer_.find(psn);
    if (m == nullptr || m->end() > peer_.expected()) return;
    if (m->is_read()) return respond(*m, psn);
    if (m->is_atomic()) respond_atomic(*m);
  }

  void change_key() {
    keys_changed_ = true;
    keys_.find(kKey)->set_free((input_.byte() & 1) != 0);
  }
  void modify() {
    switch (input_.byte() % 4) {
      case 0:
        (void)transport_.modify(*qp_, QpState::kError, attributes());
        return;
      case 1:
        // Drains the QP, then returns it to RTS.
        (void)transport_.modify(*qp_, QpState::kSqDrain, attributes());
        return;
      case 2:
        (void)transport_.modify(*qp_, QpState::kRts, attributes());
        return;
      default:
        // Only while the fabric holds no frame (src/rdma/README.md).
        carry(0);
        (void)transport_.modify(*qp_, QpState::kReset, attributes());
        hca_.sends_posted[kQpn].clear();
        keys_changed_ = keys_.find(kKey)->is_free();
        peer_.reset();
        to_rts();
    }
  }

  Script& input_;
  std::vector<std::byte> memory_ =
      std::vector<std::byte>(std::size_t{HonestPeer::kSlots} * HonestPeer::kSlotBytes);
  HonestPeer peer_;
  pcie::DmaSpace dma_;
  test::TestHca hca_;
  Wire wire_;
  wire::IbHeader header_{source()};
  KeyTable keys_{dma_, KeyShape(8, 24)};
  util::Notes notes_{"fuzzer"};
  Transport transport_{wire_,
                       keys_,
                       notes_,
                       {.gids = 1, .multicast_groups = 1, .multicast_members = 1, .requests = 64}};
  QueuePair* qp_ = nullptr;
  bool keys_changed_ = false;
  util::Time now_{};
};

}  // namespace
}  // namespace softhca::rdma

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  softhca::util::set_log_level(softhca::util::LogLevel::kError);
  return softhca::fuzz::run_input([&] {
    softhca::fuzz::Script script(data, size);
    const auto kind = script.byte();
    softhca::rdma::World world(script, kind);
    while (!script.empty()) world.step();
    world.finish();
  });
}
