// The device ignores fields that the document calls unused, and bits that it does not name. Ones in
// them change nothing.

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "jingzhao/send_wqe.h"
#include "jingzhao/spoiler.h"
#include "spec/jingzhao/wqe.h"

namespace softhca::jingzhao::test {
namespace {

using spec::jingzhao::command_opcode;

/// Sets the bits of the structure `bytes` that belong to no field, or to an unused one. Returns the
/// number of bits set.
template <class Layout>
unsigned scribble(std::span<std::byte> bytes, util::ByteOrder order) {
  std::vector<bool> used(bytes.size() * 8);  // indexed by byte * 8 + bit
  for (const auto& field : Layout::kFields) {
    if (field.note.starts_with("unused")) continue;
    for_each_bit(field, order, [&](std::size_t at, unsigned bit) {
      if (at < bytes.size()) used[at * 8 + bit] = true;
    });
  }
  unsigned count = 0;
  for (std::size_t i = 0; i != used.size(); ++i) {
    if (used[i]) continue;
    bytes[i / 8] |= std::byte{1} << (i % 8);
    ++count;
  }
  return count;
}

/// Sets the unused bits in all input mailboxes of the driver.
class Scribbler {
 public:
  void operator()(command_opcode op, std::span<std::byte> mailbox) {
    using enum command_opcode;
    switch (op) {
      case INIT_HCA:
        return spoil<spec::jingzhao::init_hca_in>(mailbox, 64);
      case SW2HW_MPT:
        return spoil<spec::jingzhao::mpt_entry>(mailbox, 64);
      case SW2HW_EQ:
        return spoil<spec::jingzhao::eq_context>(mailbox, 64);
      case SW2HW_CQ:
        return spoil<spec::jingzhao::cq_context>(mailbox, 64);
      case RESIZE_CQ:
        return spoil<spec::jingzhao::resize_cq_in>(mailbox, 8);
      case RST2INIT_QPEE:
      case INIT2RTR_QPEE:
      case RTR2RTS_QPEE:
        return spoil<spec::jingzhao::qp_context>(mailbox, 192);
      default:
        return;
    }
  }
  unsigned bits() const { return bits_; }  ///< the number of bits set

 private:
  template <class Layout>
  void spoil(std::span<std::byte> mailbox, std::size_t size) {
    bits_ += scribble<Layout>(mailbox.first(size), util::ByteOrder::kBig);
  }
  unsigned bits_ = 0;
};

class JingzhaoUnusedFields : public ::testing::TestWithParam<wire::Link> {};

TEST_P(JingzhaoUnusedFields, OfContextsAndMailboxesAreIgnored) {
  World world({.card = {.link = GetParam()}, .make_host = Spoiler::make()});
  Scribbler scribbler;
  for (auto* node : {&world.a(), &world.b()}) Spoiler::of(*node).spoil = std::ref(scribbler);
  world.open();
  Side a(world.a()), b(world.b());
  connect(a, b);
  must(a.send_cq->resize(512));
  fill(a.bytes(0, 9000), 1);
  b.receive(7, 0, 9000);
  const auto piece = a.piece(0, 9000);
  for (const auto opcode :
       {driver::SendOpcode::kSend, driver::SendOpcode::kRdmaWrite, driver::SendOpcode::kRdmaRead}) {
    ASSERT_EQ(a.qp->post_send({.id = 1,
                               .opcode = opcode,
                               .pieces = {&piece, 1},
                               .remote_address = b.address(20000),
                               .rkey = b.key->key()}),
              PostStatus::kOk);
    const auto done = wait(world, *a.send_cq);
    ASSERT_EQ(done.size(), 1u);
    EXPECT_EQ(done[0].status, WorkStatus::kSuccess);
  }
  expect_success(wait(world, *b.receive_cq), 7, CompletionOpcode::kReceive);
  EXPECT_TRUE(same(a.bytes(0, 9000), b.bytes(0, 9000)));
  EXPECT_TRUE(same(a.bytes(0, 9000), b.bytes(20000, 9000)));
  EXPECT_GT(scribbler.bits(), 2000u);
}

INSTANTIATE_TEST_SUITE_P(OnBothLinks, JingzhaoUnusedFields,
                         ::testing::Values(wire::Link::kEthernet, wire::Link::kInfiniband),
                         [](const auto& link) {
                           return link.param == wire::Link::kEthernet ? "Ethernet" : "Infiniband";
                         });

// JingZhao 3.4: C, S, E and the EE address of a next unit, and the bits that no unit names.
TEST(JingzhaoUnusedUnits, OfWqesAreIgnored) {
  using namespace spec::jingzhao;
  std::array<std::byte, 64> plain{};
  const auto unit = [&](auto layout, std::size_t at) {
    return util::MutableView<decltype(layout)>(std::span(plain).subspan(at));
  };
  unit(next_unit(), 0).set(next_unit::imm_data, 0x11223344);
  unit(raddr_unit(), 16).set(raddr_unit::raddr, 0x5566);
  unit(raddr_unit(), 16).set(raddr_unit::rkey, 0x77);
  unit(data_unit(), 32).set(data_unit::byte_cnt, 8);
  unit(data_unit(), 32).set(data_unit::lkey, 0x99);
  unit(data_unit(), 32).set(data_unit::addr, 0xAABB);
  auto spoiled = plain;
  const auto bytes = std::span(spoiled);
  auto count = scribble<raddr_unit>(bytes.subspan(16, 16), util::ByteOrder::kLittle);
  // The link fields of this next unit describe the following WQE, so they are left alone.
  count += scribble<next_unit>(bytes.first(16), util::ByteOrder::kLittle);
  ASSERT_GT(count, 60u);
  const SendWqe what{.opcode = static_cast<std::uint8_t>(wqe_opcode::RDMA_WRITE_IMM), .units = 3};
  rdma::SendRequest expected, seen;
  ASSERT_EQ(decode_send_wqe(std::span(plain).first(48), what, {}, expected), WqeFault::kNone);
  ASSERT_EQ(decode_send_wqe(bytes.first(48), what, {}, seen), WqeFault::kNone);
  EXPECT_EQ(seen.opcode, expected.opcode);
  EXPECT_EQ(seen.immediate, expected.immediate);
  EXPECT_EQ(seen.remote_address, expected.remote_address);
  EXPECT_EQ(seen.rkey, expected.rkey);
  EXPECT_EQ(seen.signaled, expected.signaled);
  EXPECT_EQ(seen.solicited, expected.solicited);
  EXPECT_EQ(seen.fence, expected.fence);
  ASSERT_EQ(seen.sges.size(), 1u);
  EXPECT_EQ(seen.sges[0].address, expected.sges[0].address);
  EXPECT_EQ(seen.sges[0].length, expected.sges[0].length);
}

}  // namespace
}  // namespace softhca::jingzhao::test
