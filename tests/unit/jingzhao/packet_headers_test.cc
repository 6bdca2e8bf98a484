// Headers of packets on an InfiniBand link: service level, GRH, the solicited event bit (table
// A2-1, JingZhao 3.4.1).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "fabric/tap.h"
#include "jingzhao/spoiler.h"
#include "spec/jingzhao/context.h"
#include "wire/ib_packet.h"
#include "wire/train.h"

namespace softhca::jingzhao::test {
namespace {

using spec::jingzhao::command_opcode;
using spec::jingzhao::qp_context;

/// Keeps the headers of each packet on the switch, besides those of MADs.
class DataPackets final : public fabric::Tap {
 public:
  void handle_port(std::uint32_t, std::string_view, wire::Link) override {}
  void handle_frame(std::uint32_t, const wire::Frame& frame) override {
    wire::for_each_packet(frame, [this](const wire::Frame& one) {
      const auto packet = wire::IbPacket::parse(one);
      ASSERT_TRUE(packet);
      if (packet->bth.dest_qp.value() > wire::kGsiQpn.value()) packets.push_back(*packet);
    });
  }
  /// The solicited event bit of each packet from this LID, in order.
  std::vector<bool> solicited_from(std::uint16_t lid) const {
    std::vector<bool> found;
    for (const auto& packet : packets) {
      if (packet.address.source_lid.value() == lid) found.push_back(packet.bth.solicited_event);
    }
    return found;
  }

  std::vector<wire::IbPacket> packets;
};

/// All bits of the path's fields in a QP context are ones, which would mean service level 15 and a
/// GRH.
void ask_for_a_global_path(command_opcode op, std::span<std::byte> mailbox) {
  if (op != command_opcode::RST2INIT_QPEE && op != command_opcode::INIT2RTR_QPEE &&
      op != command_opcode::RTR2RTS_QPEE) {
    return;
  }
  const util::MutableView<qp_context> context(mailbox.first(qp_context::kSize));
  const auto set = [&](auto... fields) { (context.set(fields, fields.kMax), ...); };
  set(qp_context::sl_tclass_flowlabel, qp_context::g_mylmc, qp_context::mgid_index,
      qp_context::hop_limit);
  std::ranges::fill(context.sub(qp_context::rgid), std::byte{0xFF});
}

class JingzhaoPacketHeaders : public testing::Test {
 protected:
  using Type = spec::jingzhao::qp_type;

  JingzhaoPacketHeaders()
      : world({.card = {.link = wire::Link::kInfiniband}, .make_host = Spoiler::make()}) {
    for (auto* node : {&world.a(), &world.b()}) Spoiler::of(*node).spoil = ask_for_a_global_path;
    world.open();
    world.network().set_tap(&seen);
  }
  /// A message of one packet, and one of three.
  void send_and_write() {
    Side a(world.a()), b(world.b());
    connect(a, b);
    b.receive(7, 0, 100);
    const auto message = a.piece(0, 100), data = a.piece(0, 3000);
    ASSERT_EQ(
        a.qp->post_send({.id = 1, .opcode = driver::SendOpcode::kSend, .pieces = {&message, 1}}),
        PostStatus::kOk);
    ASSERT_EQ(a.qp->post_send({.id = 2,
                               .opcode = driver::SendOpcode::kRdmaWrite,
                               .pieces = {&data, 1},
                               .remote_address = b.address(20000),
                               .rkey = b.key->key()}),
              PostStatus::kOk);
    ASSERT_EQ(wait(world, *a.send_cq, 2).size(), 2u);
  }
  void send_datagram() {
    Side a(world.a(), {.type = Type::UD}), b(world.b(), {.type = Type::UD});
    must(a.qp->listen(world.a().address, kQkey));
    must(b.qp->listen(world.b().address, kQkey));
    b.receive(7, 0, 100);
    const auto message = a.piece(0, 100);
    ASSERT_EQ(
        a.qp->post_send({.id = 1, .opcode = driver::SendOpcode::kSend, .pieces = {&message, 1}},
                        {.to = world.b().address, .qpn = b.qp->qpn(), .qkey = kQkey}),
        PostStatus::kOk);
    ASSERT_EQ(wait(world, *b.receive_cq).size(), 1u);
  }
  void expect_local_paths() {
    for (const auto& packet : seen.packets) {
      EXPECT_EQ(packet.address.encapsulation, wire::Encapsulation::kLocal);
      EXPECT_EQ(packet.address.service_level, 0);
    }
  }

  DataPackets seen;
  World world;
};

// Table A2-1 has a service level and a GRH; the field table calls the fields of both unused.
// docs/jingzhao.md, "InfiniBand links": the service level is 0, and there is no GRH.
TEST_F(JingzhaoPacketHeaders, OfAConnectionHaveServiceLevel0AndNoGrh) {
  send_and_write();
  EXPECT_GE(seen.packets.size(), 5u) << "four of requests, and an acknowledgement";
  expect_local_paths();
}

// The ud unit has no fields for them, though table A2-1 has. docs/jingzhao.md, "datagrams".
TEST_F(JingzhaoPacketHeaders, OfADatagramHaveServiceLevel0AndNoGrh) {
  send_datagram();
  EXPECT_EQ(seen.packets.size(), 1u);
  expect_local_paths();
}

// The document calls bit S of a next unit unused, and does not say which messages are solicited.
// docs/jingzhao.md, "C, S, E and D of a next unit": all are. IBTA 9.2.3: the bit is in the last
// packet of a message.
TEST_F(JingzhaoPacketHeaders, TheLastOfEachMessageIsSolicited) {
  send_and_write();
  EXPECT_EQ(seen.solicited_from(world.a().address.lid),
            (std::vector<bool>{true, false, false, true}));
}

TEST_F(JingzhaoPacketHeaders, EachDatagramIsSolicited) {
  send_datagram();
  EXPECT_EQ(seen.solicited_from(world.a().address.lid), std::vector<bool>{true});
}

}  // namespace
}  // namespace softhca::jingzhao::test
