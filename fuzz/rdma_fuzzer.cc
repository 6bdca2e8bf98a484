// Arbitrary frames for a transport with QPs in various states, mixed with a device's calls:
// posting, changing states, changing keys, letting time pass.
//
// The first byte is the link: RoCEv2, RoCEv1, InfiniBand with or without GRH. A step of the input
// is one byte for the action and a few for its operands. Frames are raw, or built with right
// addresses, lengths and ICRC, so that they pass the parser.

#include <cstdint>
#include <memory>
#include <vector>

#include "device_turn.h"
#include "rdma/test_hca.h"
#include "rdma/transport.h"
#include "script.h"
#include "util/log.h"
#include "wire/ib_header.h"

namespace softhca::rdma {
namespace {

constexpr std::size_t kMemory = 1 << 16;
constexpr pcie::Iova kIova = 0x100000;
constexpr MKey kKey{0x100};
constexpr MKey kSmallKey{0x200};
constexpr Pd kPd{1};
constexpr XrcSrqn kSrq{3};
constexpr Qpn kTarget{0x30};
constexpr std::uint64_t kDcKey = 0x1122'3344'5566'7788;
const Gid kGroup = Gid::from_ipv4(0xE0000001);

using fuzz::check;
using fuzz::Script;

/// Frames wait by reference, as in a switch, until the loop delivers them.
class Sink final : public fabric::Port {
 public:
  std::uint64_t transmit(const wire::Frame& frame) override {
    waiting_.push_back(frame);
    return ++transmitted_;
  }
  std::uint64_t loop_back(const wire::Frame& frame, std::uint32_t) override {
    return transmit(frame);
  }
  std::uint64_t released() const override { return transmitted_ - waiting_.size(); }
  void set_receiver(fabric::Receiver*) override {}
  bool link_up() const override { return true; }

  /// Reads everything that the frames refer to, so that a sanitizer checks it.
  void carry() {
    for (const auto& frame : waiting_) {
      std::vector<std::byte> bytes(frame.size());
      frame.copy_to(bytes);
      check(wire::IbPacket::parse(wire::Frame::from_bytes(bytes, frame.link())).has_value());
    }
    waiting_.clear();
  }

 private:
  std::vector<wire::Frame> waiting_;
  std::uint64_t transmitted_ = 0;
};

class World {
 public:
  explicit World(Script& input)
      : input_(input), encapsulation_(wire::Encapsulation(input.take<std::uint8_t>() % 4)) {
    (void)dma_.map(kIova, kMemory, memory_.data(), pcie::DmaAccess::kReadWrite);
    SourceAddress entry;
    entry.gid = Gid::from_ipv4(0x0A000001);
    entry.mac = Mac::from_u64(0x020000000001);
    entry.roce_v2 = encapsulation_ == wire::Encapsulation::kRoceV2;
    transport_.gids().set(0, entry);
    transport_.set_link_attributes({.lid = Lid(1), .lmc = 1, .virtual_lanes = {}});
    add_key(kKey, kMemory);
    add_key(kSmallKey, 100);
    transport_.xrc_srqs().add(kSrq, {.domain = {}, .pd = kPd});
    for (std::uint32_t i = 0; i < kQps; ++i) create(i);
    (void)transport_.groups().attach(Qpn(0x14), kGroup);
    add_target();
  }

  void step() {
    auto& qp = *qps_[input_.below(kQps)];
    switch (input_.take<std::uint8_t>() % 10) {
      case 0:
        return raw_frame();
      case 1:
      case 2:
      case 3:
      case 4:
        return made_frame(qp);
      case 5:
        return post_send(qp);
      case 6:
        return post_receive(qp);
      case 7:
        return modify(qp);
      case 8:
        return change_key();
      default:
        now_ += std::chrono::microseconds(input_.below(2000));
    }
  }
  /// A turn of the loop. Work that waits until frames are read happens in a later one.
  void run() {
    {
      const fuzz::Turn turn;
      util::WorkBudget work(kTurnWork);
      transport_.run(now_, work);
      fuzz::check_work(work.done(), kTurnWork);
    }
    port_.carry();
  }

 private:
  static constexpr std::uint32_t kQps = 9;
  static constexpr std::int64_t kTurnWork = 50'000;

  wire::Link link() const {
    const bool ethernet = encapsulation_ == wire::Encapsulation::kRoceV2 ||
                          encapsulation_ == wire::Encapsulation::kRoceV1;
    return ethernet ? wire::Link::kEthernet : wire::Link::kInfiniband;
  }

  void add_key(MKey number, std::uint64_t length) {
    MemoryKey::Attributes key;
    key.key = number;
    key.pd = kPd;
    key.access = 0x1F;
    key.start = 0x1000;
    key.length = length;
    key.invalidatable = true;
    for (std::uint64_t at = 0; at < length; at += 4096) key.pages.push_back(kIova + at);
    keys_.insert(key);
  }
  QpAttributes attributes() const {
    QpAttributes a;
    a.pd = kPd;
    a.path.dst_gid = Gid::from_ipv4(0x0A000002);
    a.path.dst_mac = Mac::from_u64(0x020000000002);
    a.path.dst_lid = Lid(4);
    a.path.global = encapsulation_ != wire::Encapsulation::kLocal;
    a.path_mtu = 256;
    a.remote_qpn = Qpn(0x99);
    a.qkey = 5;
    a.retry_count = 1;
    a.rnr_retry = 1;
    a.ack_timeout = 1;
    a.max_rd_atomic = a.max_dest_rd_atomic = 2;
    a.access_flags.remote_read = a.access_flags.remote_write = a.access_flags.remote_atomic = true;
    a.access_flags.masked_atomic_sizes = 4 | 8;
    return a;
  }
  void create(std::uint32_t i) {
    constexpr QpType kTypes[kQps] = {
        QpType::kRc, QpType::kRc,           QpType::kRc,        QpType::kUc,         QpType::kUd,
        QpType::kRc, QpType::kXrcInitiator, QpType::kXrcTarget, QpType::kDcInitiator};
    QpOptions options;
    options.uses_srq = i == 1;
    options.has_receive_queue = i != 1;
    auto& qp = transport_.create_qp(Qpn(0x10 + i), kTypes[i], attributes(), options,
                                    hca_.queues_of(Qpn(0x10 + i), options.uses_srq));
    qps_[i] = &qp;
    for (const auto state : {QpState::kInit, QpState::kRtr, QpState::kRts}) {
      if (i == 5 && state == QpState::kRts) break;
      (void)transport_.modify(qp, state, attributes());
    }
  }

  void add_target() {
    DcTargetAttributes target;
    target.key = kDcKey;
    target.connection = attributes();
    target.connection.path = {};
    transport_.dc_targets().add(kTarget, target, hca_.queues_of(kTarget, true));
  }
  /// Once drained, a new target takes its place.
  void drain_target() {
    util::WorkBudget work(kTurnWork);
    if (!transport_.dc_targets().drain(kTarget, work)) return;
    transport_.dc_targets().remove(kTarget);
    add_target();
  }

  void raw_frame() {
    const auto bytes = input_.take(input_.below(400));
    transport_.handle_frame(wire::Frame::from_bytes(bytes, link()), now_);
  }
  void made_frame(QueuePair& qp) {
    wire::IbAddress address;
    address.encapsulation = encapsulation_;
    address.source_lid = Lid(4);
    address.destination_lid = Lid(1);
    address.source_gid = Gid::from_ipv4(0x0A000002);
    address.destination_gid = Gid::from_ipv4(0x0A000001);
    address.destination_mac = Mac::from_u64(0x020000000001);
    wire::Bth bth;
    bth.opcode = wire::Opcode(input_.take<std::uint8_t>());
    if (!wire::info(bth.opcode).defined) bth.opcode = wire::Opcode::RC_SEND_ONLY;
    bth.dest_qp = qp.qpn();
    if (input_.take<std::uint8_t>() == 0) bth.dest_qp = Qpn(0x99);  // no such QP
    if (qp.type() == QpType::kUd && (input_.take<std::uint8_t>() & 1) != 0) {
      address.destination_gid = kGroup;
      address.destination_mac = Mac::from_u64(0x01005E000001);
      bth.dest_qp = wire::kMulticastQpn;
    }
    const bool request = wire::info(bth.opcode).request;
    bth.psn = wire::Psn((request ? qp.next_receive_psn() : qp.last_acked_psn() + 1) +
                        static_cast<std::uint32_t>(input_.take<std::int8_t>() / 32));
    bth.ack_req = input_.take<std::uint8_t>() & 1;
    wire::ExtHeaders ext;
    const auto key = input_.below(4) == 0 ? kSmallKey : kKey;
    const auto where = input_.take<std::uint8_t>();
    const std::uint64_t va = where == 255 ? input_.take<std::uint64_t>() : 0x1000u + where * 8;
    const std::uint32_t length = where == 254 ? input_.take<std::uint32_t>() : input_.below(1200);
    ext.reth = {va, wire::RKey(key.value()), length};
    ext.atomic = {va, wire::RKey(key.value()), input_.take<std::uint8_t>(), 0};
    ext.aeth = {wire::AethType(input_.take<std::uint8_t>() & 3),
                static_cast<std::uint8_t>(input_.take<std::uint8_t>() & 31), wire::Msn(0)};
    ext.ieth.rkey = wire::RKey(key.value());
    ext.deth = {wire::QKey(5), wire::Qpn(3)};
    ext.xrceth.xrc_srq = kSrq;
    static constexpr std::uint16_t kSizes[] = {0, 1, 8, 255, 256, 257, 600, 64};
    const std::vector<std::byte> payload(kSizes[input_.take<std::uint8_t>() & 7]);
    if (request && wire::info(bth.opcode).service == wire::Service::DC) {
      const auto how = input_.take<std::uint8_t>();
      bth.dest_qp = kTarget;
      bth.psn = wire::Psn(how % 8u);
      ext.dceth = {.key = how / 8u % 8 == 7 ? 0 : kDcKey,
                   .may_connect = how < 128,
                   .source_qp = Qpn(7 + input_.take<std::uint8_t>() % 2),
                   .session = input_.take<std::uint8_t>() % 4u,
                   .first_psn = wire::Psn(input_.take<std::uint8_t>() % 4u)};
    }
    wire::Frame frame;
    wire::IbHeader(address).emit(bth, ext, payload.size(), frame);
    (void)frame.add_segment(payload);
    transport_.handle_frame(frame, now_);
  }
  std::vector<Sge> pieces() {
    std::vector<Sge> all;
    for (unsigned n = input_.take<std::uint8_t>() % 4; n != 0; --n) {
      const auto key = input_.take<std::uint8_t>() % 8 == 0 ? MKey(0x700) : kKey;
      all.push_back({0x1000u + input_.take<std::uint16_t>(), input_.below(700), key});
    }
    return all;
  }
  void post_send(QueuePair& qp) {
    SendRequest request;
    request.opcode = SendOpcode(input_.take<std::uint8_t>() % 10);
    request.sges = pieces();
    request.fence = input_.take<std::uint8_t>() & 1;
    request.rkey = kKey;
    request.remote_address = 0x1000;
    request.is_inline = input_.take<std::uint8_t>() % 4 == 0;
    if (request.is_inline) {
      request.inline_data.assign(std::vector<std::byte>(input_.below(400)));
    } else if (input_.take<std::uint8_t>() % 4 == 0) {
      // Between pointers.
      request.inline_data.assign(std::vector<std::byte>(100));
      const auto from = input_.below(100);
      request.sges.insert(request.sges.begin() + input_.below(2) % (request.sges.size() + 1),
                          {.address = from, .length = 100 - from, .lkey = {}, .is_inline = true});
    }
    request.ud.dst_gid = Gid::from_ipv4(0x0A000002);
    request.ud.global = input_.take<std::uint8_t>() % 2 == 0;
    request.ud.service_level = input_.take<std::uint8_t>() % 16;
    request.ud.qpn = Qpn(7);
    request.ud.dst_lid = Lid(4);
    request.dc_key = kDcKey;
    auto& queue = hca_.sends_posted[qp.qpn()];
    if (queue.size() < 64) queue.push_back(request);
    transport_.doorbell_send(qp);
  }
  void post_receive(QueuePair& qp) {
    auto& queue = qp.service().names_srq  ? hca_.xrc_srqs[kSrq]
                  : qp.options().uses_srq ? hca_.srq
                                          : hca_.receives_posted[qp.qpn()];
    if (queue.size() < 64) queue.push_back({.sges = pieces()});
    transport_.notice_receive(qp);
  }
  void modify(QueuePair& qp) {
    const auto to = QpState(input_.take<std::uint8_t>() % 7);
    if (qp.type() == QpType::kDcInitiator && to == QpState::kSqDrain) return drain_target();
    (void)transport_.modify(qp, to, attributes());
    // Usually returns to RTS, or there would be nothing to test.
    if (qp.state() == QpState::kReset && (input_.take<std::uint8_t>() & 3) != 0) {
      for (const auto state : {QpState::kInit, QpState::kRtr, QpState::kRts}) {
        (void)transport_.modify(qp, state, attributes());
      }
    }
  }
  void change_key() {
    switch (input_.take<std::uint8_t>() % 4) {
      case 0:
        keys_.find(kKey)->set_free(true);
        break;
      case 1:
        keys_.find(kKey)->set_free(false);
        break;
      case 2:
        keys_.erase_index(keys_.shape().index(kSmallKey));
        break;
      default:
        if (keys_.find(kSmallKey) == nullptr) add_key(kSmallKey, 100);
    }
  }

  Script& input_;
  wire::Encapsulation encapsulation_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(kMemory);
  pcie::DmaSpace dma_;
  test::TestHca hca_;
  Sink port_;
  KeyTable keys_{dma_, KeyShape(8, 24)};
  util::Notes notes_{"fuzzer"};
  Transport transport_{
      port_,
      keys_,
      notes_,
      {.link = link(), .gids = 1, .multicast_groups = 1, .multicast_members = 1, .requests = 32}};
  QueuePair* qps_[kQps] = {};
  util::Time now_{};
};

}  // namespace
}  // namespace softhca::rdma

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  softhca::util::set_log_level(softhca::util::LogLevel::kError);
  return softhca::fuzz::run_input([&] {
    softhca::fuzz::Script script(data, size);
    softhca::rdma::World world(script);
    while (!script.empty()) {
      world.step();
      world.run();
    }
  });
}
