// WQEs in, CQEs and events out: the RDMA side with its transport. Two QPs of one device communicate
// through the fabric (mlx5 driver interface 8).
#include "connectx/qp/data_path.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "connectx/base/timestamp.h"
#include "pcie/bus_master.h"
#include "pcie/dma_space.h"
#include "spec/connectx/raw_queues.h"

namespace softhca::connectx {
namespace {

using namespace std::chrono_literals;
using test::HostQp;
using test::kKey;
using test::RdmaDataPath;
using test::RdmaTestHost;
using test::Syndrome;
using CqeCode = test::CqeOpcode;
using WqeOpcode = spec::connectx::wqe_opcode;
using Command_ = spec::connectx::command_opcode;
using State = spec::connectx::qp_state;

TEST_F(RdmaDataPath, SendArrivesInTheReceiveBuffer) {
  auto [a, b] = host_.connected({.user_index = 0x123});
  const auto from = host_.put_text("hello, queue pair");
  const auto to = host_.allocate(64, 64);
  host_.post_receive(b, to, 64);
  send(a, wqe(a, WqeOpcode::SEND).data(from, 17, kKey));
  host_.run();
  EXPECT_EQ(host_.text(to, 17), "hello, queue pair");
  const auto cqes = completions();
  ASSERT_EQ(cqes.size(), 2u);
  for (const auto& cqe : cqes) {
    EXPECT_EQ(cqe.user_index, 0x123u);
    EXPECT_EQ(cqe.wqe_counter, 0);
    if (cqe.opcode == CqeCode::REQUESTER) {
      EXPECT_EQ(cqe.qpn, a.qpn);
    } else {
      EXPECT_EQ(cqe.opcode, CqeCode::RESPONDER_SEND);
      EXPECT_EQ(cqe.qpn, b.qpn);
      EXPECT_EQ(cqe.byte_count, 17u);
    }
  }
}

// mlx5_ib answers ibv_query_qp from the context.
TEST_F(RdmaDataPath, QueryReportsThePsnsAsTheyMove) {
  auto [a, b] = host_.connected();
  const auto psns = [&](const HostQp& qp) {
    using spec::connectx::qpc;
    using spec::connectx::query_qp_in;
    using spec::connectx::query_qp_out;
    const auto out = host_.call<query_qp_out, query_qp_in>(
        Command_::QUERY_QP, [&](auto in) { in.set(query_qp_in::qpn, qp.qpn); });
    EXPECT_TRUE(out) << out.reason();
    const auto context = out.as<query_qp_out>().get(query_qp_out::qpc);
    return std::pair(context.get(qpc::next_send_psn), context.get(qpc::next_rcv_psn));
  };
  EXPECT_EQ(psns(a), std::pair(0x1000u, 0x1000u));
  const auto place = host_.allocate(4096, 64);
  host_.post_receive(b, place, 64);
  send(a, wqe(a, WqeOpcode::SEND).inline_data("one packet"));
  send(a, wqe(a, WqeOpcode::RDMA_WRITE).remote(place, kKey).data(place, 3000, kKey));
  host_.run();
  EXPECT_EQ(psns(a), std::pair(0x1004u, 0x1000u));
  EXPECT_EQ(psns(b), std::pair(0x1000u, 0x1004u));
}

TEST_F(RdmaDataPath, WithoutBusMasteringNoMemoryIsAccessed) {
  // PCIe 5.0 7.5.1.1.3. The first pair has transferred data, so its cached translations were valid.
  auto [a, b] = host_.connected();
  const auto from = host_.put_text("hello, queue pair");
  const auto to = host_.allocate(64, 64);
  const auto write = [&](HostQp& qp) {
    send(qp, wqe(qp, WqeOpcode::RDMA_WRITE).remote(to, kKey).data(from, 17, kKey));
    host_.run();
  };
  write(a);
  ASSERT_EQ(host_.text(to, 17), "hello, queue pair");
  ASSERT_EQ(completions().size(), 1u);
  std::memset(host_.at(to), 0, 64);
  host_.post_receive(b, to, 64);
  host_.post_send(a, wqe(a, WqeOpcode::SEND).data(from, 17, kKey).bytes());
  const std::vector<std::byte> before(
      host_.at(RdmaTestHost::kMemoryAt),
      host_.at(RdmaTestHost::kMemoryAt) + RdmaTestHost::kMemorySize);
  pcie::set_bus_master(host_.device, false);
  host_.ring_send(a);
  host_.run();
  const auto same = std::memcmp(host_.at(RdmaTestHost::kMemoryAt), before.data(), before.size());
  EXPECT_EQ(same, 0) << "neither data, nor a CQE, nor an event";
  pcie::set_bus_master(host_.device, true);
  auto [c, d] = host_.connected();
  write(c);
  EXPECT_EQ(host_.text(to, 17), "hello, queue pair");
}

TEST_F(RdmaDataPath, UnsignaledSuccessHasNoCqe) {
  auto [a, b] = host_.connected();
  const auto from = host_.put_text("x");
  send(a, wqe(a, WqeOpcode::RDMA_WRITE).unsignaled().remote(from, kKey).data(from, 1, kKey));
  send(a, wqe(a, WqeOpcode::RDMA_WRITE).unsignaled().remote(from, kKey).data(from, 1, kKey));
  send(a, wqe(a, WqeOpcode::RDMA_WRITE).remote(from, kKey).data(from, 1, kKey));
  host_.run();
  const auto cqes = completions();
  ASSERT_EQ(cqes.size(), 1u);
  EXPECT_EQ(cqes[0].wqe_counter, 2);
}

TEST_F(RdmaDataPath, WriteReadAndAtomics) {
  auto [a, b] = host_.connected();
  const auto remote = host_.allocate(4096);
  const auto local = host_.allocate(4096);
  std::memset(host_.at(local), 'w', 3000);
  send(a, wqe(a, WqeOpcode::RDMA_WRITE).remote(remote, kKey).data(local, 3000, kKey));
  send(a, wqe(a, WqeOpcode::RDMA_READ).remote(remote, kKey).data(local + 3000, 1000, kKey));
  host_.run();
  EXPECT_EQ(host_.text(remote, 3000), std::string(3000, 'w'));
  EXPECT_EQ(host_.text(local + 3000, 1000), std::string(1000, 'w'));

  std::uint64_t value = 40;
  std::memcpy(host_.at(remote), &value, 8);
  send(a, wqe(a, WqeOpcode::ATOMIC_FA).remote(remote, kKey).atomic(2, 0).data(local, 8, kKey));
  send(a, wqe(a, WqeOpcode::ATOMIC_CS).remote(remote, kKey).atomic(7, 42).data(local + 8, 8, kKey));
  host_.run();
  const auto cqes = completions();
  ASSERT_EQ(cqes.size(), 4u);
  EXPECT_EQ(cqes[1].byte_count, 1000u);
  EXPECT_EQ(cqes[2].byte_count, 8u);
  std::uint64_t results[2];
  std::memcpy(results, host_.at(local), 16);
  EXPECT_EQ(results[0], 40u);
  EXPECT_EQ(results[1], 42u);
  std::memcpy(&value, host_.at(remote), 8);
  EXPECT_EQ(value, 7u);
}

TEST_F(RdmaDataPath, AWqeMayMixInlineDataAndPointers) {
  // PRM 7.4.4.1.4. Libraries put their own header inline before the user's memory.
  auto [a, b] = host_.connected();
  const auto from = host_.put_text("from memory");
  const auto to = host_.allocate(64, 64);
  host_.post_receive(b, to, 64);
  send(a,
       wqe(a, WqeOpcode::SEND).inline_data("header ").data(from, 11, kKey).inline_data(" trailer"));
  host_.run();
  EXPECT_EQ(host_.text(to, 26), "header from memory trailer");
  EXPECT_EQ(completions().size(), 2u);
}

TEST_F(RdmaDataPath, WqesWrapAroundTheRing) {
  auto [a, b] = host_.connected({.log_sq = 2});
  const std::string text(100, 'i');  // at least 2 basic blocks each
  const auto remote = host_.allocate(4096);
  for (int i = 0; i < 40; ++i) {
    std::memset(host_.at(remote), 0, 128);
    send(a, wqe(a, WqeOpcode::RDMA_WRITE).remote(remote, kKey).inline_data(text));
    host_.run();
    const auto cqes = completions();
    ASSERT_EQ(cqes.size(), 1u) << i;
    ASSERT_EQ(cqes[0].opcode, CqeCode::REQUESTER);
    EXPECT_EQ(cqes[0].wqe_counter, static_cast<std::uint16_t>(i * 3));
    EXPECT_EQ(host_.text(remote, 100), text);
  }
}

TEST_F(RdmaDataPath, ImmediateReachesTheCqe) {
  auto [a, b] = host_.connected();
  const auto buffer = host_.put_text("data");
  host_.post_receive(b, host_.allocate(64, 64), 64);
  host_.post_receive(b, host_.allocate(64, 64), 64);
  send(a, wqe(a, WqeOpcode::SEND_IMM).unsignaled().immediate(0x01020304).data(buffer, 4, kKey));
  send(a, wqe(a, WqeOpcode::RDMA_WRITE_IMM).unsignaled().immediate(5).remote(buffer, kKey));
  host_.run();
  const auto cqes = completions();
  ASSERT_EQ(cqes.size(), 2u);
  EXPECT_EQ(cqes[0].opcode, CqeCode::RESPONDER_SEND_WITH_IMMEDIATE);
  EXPECT_EQ(cqes[0].immediate, 0x01020304u);
  EXPECT_EQ(cqes[1].opcode, CqeCode::RESPONDER_RDMA_WRITE_WITH_IMMEDIATE);
  EXPECT_EQ(cqes[1].immediate, 5u);
  EXPECT_EQ(cqes[1].wqe_counter, 1);
}

TEST_F(RdmaDataPath, NopCompletes) {
  auto [a, b] = host_.connected();
  send(a, wqe(a, WqeOpcode::NOP));
  host_.run();
  const auto cqes = completions();
  ASSERT_EQ(cqes.size(), 1u);
  EXPECT_EQ(cqes[0].opcode, CqeCode::REQUESTER);
}

TEST_F(RdmaDataPath, CqesCarryTheDevicesClock) {
  auto [a, b] = host_.connected();
  send(a, wqe(a, WqeOpcode::NOP));
  const auto before = device_ticks(host_.now);
  host_.run();
  const auto cqes = completions();
  ASSERT_EQ(cqes.size(), 1u);
  const auto time = spec::connectx::cqe64_requester::timestamp.read(cqes[0].bytes.data());
  EXPECT_GE(time, before);
  EXPECT_LE(time, device_ticks(host_.now));
  EXPECT_EQ(device_ticks(util::Time(1s)), 156'250'000u);
}

// Datagrams ------------------------------------------------------------------------------------

TEST_F(RdmaDataPath, DatagramHasFortyBytesInFrontAndItsSource) {
  auto a = host_.datagram_qp();
  auto b = host_.datagram_qp();
  const auto buffer = host_.allocate(256, 64);
  host_.post_receive(b, buffer, 256);
  send(a, wqe(a, WqeOpcode::SEND)
              .datagram(b.qpn, RdmaTestHost::kQkey, host_.mac, host_.gid, 3)
              .inline_data("datagram"));
  host_.run();
  const auto cqes = completions();
  ASSERT_EQ(cqes.size(), 2u);
  const auto& cqe = cqes[0].opcode == CqeCode::RESPONDER_SEND ? cqes[0] : cqes[1];
  using Layout = spec::connectx::cqe64_responder;
  EXPECT_EQ(cqe.byte_count, 48u);
  EXPECT_EQ(Layout::grh.read(cqe.bytes.data()), 1u);
  EXPECT_EQ(Layout::rqpn.read(cqe.bytes.data()), a.qpn);
  EXPECT_EQ(Layout::sl_l3_type.read(cqe.bytes.data()), 2u);
  EXPECT_EQ(host_.text(buffer + 40, 8), "datagram");
}

TEST_F(RdmaDataPath, ServiceLevelOfADatagramIsItsVlanPriority) {
  auto entry = *host_.device.driver().rdma().gids().get(3);
  entry.vlan_id = 7;
  ASSERT_TRUE(host_.device.driver().rdma().gids().set(3, entry));
  auto a = host_.datagram_qp();
  auto b = host_.datagram_qp();
  for (const std::uint8_t level : {0, 1, 5, 7}) {
    host_.post_receive(b, host_.allocate(256, 64), 256);
    send(a, wqe(a, WqeOpcode::SEND)
                .unsignaled()
                .datagram(b.qpn, RdmaTestHost::kQkey, host_.mac, host_.gid, 3, true, level)
                .inline_data("datagram"));
    host_.run();
    const auto cqes = completions();
    ASSERT_EQ(cqes.size(), 1u);
    using Layout = spec::connectx::cqe64_responder;
    EXPECT_EQ(Layout::up.read(cqes[0].bytes.data()), level);
    EXPECT_EQ(Layout::vid.read(cqes[0].bytes.data()), 7u);
  }
}

TEST_F(RdmaDataPath, Qp1IsReachedByItsNumberAndReportsThePkey) {
  auto gsi = host_.datagram_qp({.service = test::Service::QP1});
  EXPECT_NE(gsi.qpn, 1u);
  auto ud = host_.datagram_qp();
  // IBTA 10.2.5: the GSI's Q_Key, which only the kernel may use.
  constexpr std::uint32_t kGsiQkey = 0x80010000;
  using Bit = spec::connectx::qp_opt_param_bit;
  for (auto* qp : {&gsi, &ud}) {
    ASSERT_TRUE(host_.modify(*qp, Command_::RTS2RTS_QP, 1u << static_cast<unsigned>(Bit::Q_KEY),
                             [](auto c) { c.set(test::qpc::q_key, kGsiQkey); }));
  }
  host_.post_receive(gsi, host_.allocate(512, 64), 512);
  host_.post_receive(ud, host_.allocate(512, 64), 512);
  send(ud, wqe(ud, WqeOpcode::SEND)
               .unsignaled()
               .datagram(1, kGsiQkey, host_.mac, host_.gid, 3)
               .inline_data("mad"));
  host_.run();
  auto cqes = completions();
  ASSERT_EQ(cqes.size(), 1u);
  EXPECT_EQ(cqes[0].qpn, gsi.qpn) << "the number that CREATE_QP returned";
  EXPECT_EQ(cqes[0].immediate, 0xFFFFu);
  // Its own datagrams have QP 1 as their source.
  send(gsi, wqe(gsi, WqeOpcode::SEND)
                .unsignaled()
                .datagram(ud.qpn, kGsiQkey, host_.mac, host_.gid, 3)
                .inline_data("reply"));
  host_.run();
  cqes = completions();
  ASSERT_EQ(cqes.size(), 1u);
  EXPECT_EQ(spec::connectx::cqe64_responder::rqpn.read(cqes[0].bytes.data()), 1u);
}

TEST_F(RdmaDataPath, DatagramSendErrorLeavesTheReceiveQueueWorking) {
  auto a = host_.datagram_qp();
  auto b = host_.datagram_qp();
  const auto buffer = host_.allocate(256, 64);
  host_.post_receive(a, buffer, 256);
  send(a, wqe(a, WqeOpcode::RDMA_WRITE).remote(0, 0));
  host_.run();
  auto cqes = completions();
  ASSERT_EQ(cqes.size(), 1u);
  EXPECT_EQ(cqes[0].syndrome, Syndrome::LOCAL_QP_OPERATION_ERROR);
  EXPECT_EQ(host_.query_state(a), state(State::SQER));
  send(b, wqe(b, WqeOpcode::SEND)
              .unsignaled()
              .datagram(a.qpn, RdmaTestHost::kQkey, host_.mac, host_.gid, 3)
              .inline_data("still there?"));
  send(a, wqe(a, WqeOpcode::NOP));
  host_.run();
  cqes = completions();
  ASSERT_EQ(cqes.size(), 2u);
  // In SQE, posted sends are flushed and arriving messages are received.
  const auto sent = cqes[0].opcode == CqeCode::REQUESTER_ERROR ? 0 : 1;
  EXPECT_EQ(cqes[sent].opcode, CqeCode::REQUESTER_ERROR);
  EXPECT_EQ(cqes[sent].syndrome, Syndrome::WORK_REQUEST_FLUSHED_ERROR);
  EXPECT_EQ(cqes[1 - sent].opcode, CqeCode::RESPONDER_SEND);
  EXPECT_EQ(cqes[1 - sent].qpn, a.qpn);
  EXPECT_EQ(host_.text(buffer + 40, 12), "still there?");
}

TEST_F(RdmaDataPath, Sqerr2RtsFlushesWhatIsPostedAndNoMore) {
  auto a = host_.datagram_qp();
  send(a, wqe(a, WqeOpcode::RDMA_WRITE).remote(0, 0));
  host_.run();
  ASSERT_EQ(completions().size(), 1u);
  ASSERT_EQ(host_.query_state(a), state(State::SQER));
  // WQEs of two basic blocks each without a doorbell: only the record announces them.
  const std::string text(100, 'x');
  for (int i = 0; i < 10; ++i) {
    host_.post_send(a, wqe(a, WqeOpcode::SEND)
                           .datagram(a.qpn, RdmaTestHost::kQkey, host_.mac, host_.gid, 3)
                           .inline_data(text)
                           .bytes());
  }
  ASSERT_TRUE(host_.modify(a, Command_::SQERR2RTS_QP));
  send(a, wqe(a, WqeOpcode::NOP));
  host_.run();
  const auto cqes = completions();
  ASSERT_EQ(cqes.size(), 11u);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(cqes[i].syndrome, Syndrome::WORK_REQUEST_FLUSHED_ERROR);
    EXPECT_EQ(cqes[i].wqe_counter, 1 + 3 * i);
  }
  EXPECT_EQ(cqes[10].opcode, CqeCode::REQUESTER);
  EXPECT_EQ(cqes[10].wqe_counter, a.send_producer - 1);
}

// mlx5 driver interface 8.1: software writes the record first. The device reads it when the
// doorbell rings.
TEST_F(RdmaDataPath, AWqeIsSentWhenTheDoorbellRingsAndNotBefore) {
  auto [a, b] = host_.connected();
  const auto remote = host_.allocate(64);
  const auto write = [&, &from = a](const char* text) {
    host_.post_send(
        from, wqe(from, WqeOpcode::RDMA_WRITE).remote(remote, kKey).inline_data(text).bytes());
  };
  write("one");
  host_.ring_send(a);
  host_.run();
  EXPECT_EQ(host_.text(remote, 3), "one");
  write("two");
  host_.run();
  EXPECT_EQ(host_.text(remote, 3), "one");
  host_.ring_send(a);
  host_.ring_send(a);  // one doorbell more than needed
  host_.run();
  EXPECT_EQ(host_.text(remote, 3), "two");
  write("six");
  host_.ring_send(a);
  host_.run();
  EXPECT_EQ(host_.text(remote, 3), "six");
}

// `softhca run` executes commands without a turn of the whole device.
TEST_F(RdmaDataPath, ADoorbellAfterATurnOfCommandsAloneIsNoticed) {
  auto [a, b] = host_.connected();
  const auto whole_turn = std::exchange(host_.turn, [&](pcie::Function&, util::Time at) {
    host_.device.run_commands(at);
    return at;
  });
  host_.ring_send(a);
  ASSERT_TRUE(host_.to_reset(a));
  ASSERT_TRUE(host_.to_init(a) && host_.to_rtr(a, b.qpn) && host_.to_rts(a));
  send(a, wqe(a, WqeOpcode::NOP));
  host_.turn = whole_turn;
  host_.run();
  EXPECT_EQ(completions().size(), 1u);
}

/// Memory of zeros that is reached by messages.
class FarMemory final : public pcie::RemoteMemory {
 public:
  bool dma_read(pcie::Iova from, std::span<std::byte> out) override {
    std::ranges::fill(out, std::byte{0});
    places.insert(from);
    return true;
  }
  bool dma_write(pcie::Iova, std::span<const std::byte>) override { return true; }
  std::set<pcie::Iova> places;  ///< that were read
};

// A message to the memory's owner costs as much as a hundred looks at local memory.
TEST_F(RdmaDataPath, ATurnPollsNoMoreQpsInErrThanItsWorkAllows) {
  using spec::connectx::create_qp_in;
  using spec::connectx::create_qp_out;
  constexpr pcie::Iova kRecords = 0x50'0000'0000;
  constexpr std::uint64_t kSize = 1 << 16;
  constexpr unsigned kQps = 100;
  FarMemory records;
  auto& dma = host_.device.dma();
  ASSERT_TRUE(dma.map_remote(kRecords, kSize, records, pcie::DmaAccess::kReadWrite));
  for (unsigned i = 0; i != kQps; ++i) {
    auto qp = host_.allocate_qp({});
    qp.record = kRecords + i * 64;
    const auto made = host_.call<create_qp_out, create_qp_in>(
        Command_::CREATE_QP, [&](auto in) { host_.fill_create(in, qp); },
        RdmaTestHost::page_list(qp.ring,
                                qp.send_offset() + (std::size_t{64} << qp.options.log_sq)));
    ASSERT_TRUE(made) << made.reason();
    qp.qpn = made.as<create_qp_out>().get(create_qp_out::qpn);
    ASSERT_TRUE(host_.to_init(qp) && host_.to_error(qp));
  }
  host_.run();
  records.places.clear();
  (void)pcie::RemoteAccesses::take();
  const auto poll = [&] {
    host_.advance(2ms);
    (void)host_.run_rdma();
  };
  poll();
  EXPECT_GT(records.places.size(), kQps / 10);
  EXPECT_LT(records.places.size(), kQps / 2);
  for (unsigned i = 0; i != 10; ++i) poll();
  EXPECT_EQ(records.places.size(), kQps) << "later polls go on";
  (void)pcie::RemoteAccesses::take();
  ASSERT_TRUE(dma.unmap(kRecords, kSize));
}

TEST_F(RdmaDataPath, ASendQueueThatIsLostInSqeFailsTheQpWhenItGoesOn) {
  auto a = host_.datagram_qp();
  send(a, wqe(a, WqeOpcode::RDMA_WRITE).remote(0, 0));
  host_.run();
  ASSERT_EQ(completions().size(), 1u);
  util::store_be32(host_.at(a.record + 4), 0x1234);  // exceeds the length of the queue
  ASSERT_TRUE(host_.modify(a, Command_::SQERR2RTS_QP));
  host_.run();
  EXPECT_EQ(host_.query_state(a), state(State::ERR));
}

}  // namespace
}  // namespace softhca::connectx
