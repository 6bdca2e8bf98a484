// Commands with megabytes of input or output, and commands that destroy many objects, take many
// turns. Each turn does its share, and no other work of the device waits longer.
#include <gtest/gtest.h>

#include "connectx/base/resources.h"
#include "connectx/command/user_context_host.h"
#include "connectx/memory/memory_keys.h"
#include "connectx/qp/rdma_test_host.h"
#include "pcie/bus_master.h"
#include "rdma/extent_list.h"
#include "spec/connectx/hca.h"
#include "spec/connectx/mkey.h"
#include "spec/connectx/resources.h"
#include "util/inspected.h"

namespace softhca::connectx::test {
namespace {

namespace s = spec::connectx;
using Code = s::command_status;
using Create = s::create_mkey_in;
using MkeyContext = s::mkey_context;
using CommandEntry = FakeHost::Entry;

/// Work that a step may do beyond the budget of a turn.
constexpr std::int64_t kCommandBeyond = 20'000;

class LongCommand : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kStart = 0x7F00'0000'0000;
  static constexpr unsigned kPages = 1u << 18;

  /// Rings slot 0 and runs the device until it returns the slot. Checks that no turn far exceeds
  /// its budget. Returns the number of turns.
  unsigned turns(std::span<const std::byte> in, std::size_t out_size) {
    const auto blocks = host_.prepare(0, in, out_size);
    host_.ring_commands(1);
    unsigned turns = 0;
    for (; host_.slot(0).get(CommandEntry::ownership) != 0 && turns < 10'000; ++turns) {
      const auto before = host_.device.work_done();
      host_.device.run(host_.now, kTurn);
      EXPECT_LE(host_.device.work_done() - before, kTurn + kCommandBeyond);
    }
    reply_ = host_.collect(0, out_size, blocks);
    return turns;
  }
  /// A key of 1 GiB whose pages are swapped in pairs.
  Input<Create> large_key() {
    Input<Create> in(Opcode::CREATE_MKEY, 0, 8 * kPages);
    in->set(Create::translations_octword_actual_size, kPages / 2);
    const auto context = (*in).sub(Create::mkey_context);
    context.set(MkeyContext::access_mode, static_cast<std::uint32_t>(s::mkey_access_mode::MTT));
    context.set(MkeyContext::lw, 1);
    context.set(MkeyContext::qpn, 0xFFFFFF);
    context.set(MkeyContext::mkey, 0x42);
    context.set(MkeyContext::pd, host_.pd);
    context.set(MkeyContext::translations_octword_size, kPages / 2);
    context.set(MkeyContext::start_addr, kStart);
    context.set(MkeyContext::len, std::uint64_t{kPages} * 4096);
    context.set(MkeyContext::log_page_size, 12);
    const auto memory = host_.allocate(2 * 4096);
    for (unsigned i = 0; i != kPages; ++i) in.set_address(i, memory + (i % 2 == 0 ? 4096 : 0));
    return in;
  }
  rdma::KeyCheck check(std::uint64_t offset) {
    return host_.device.driver().memory_keys().table().check(
        rdma::MKey(index() << 8 | 0x42), {.pd = rdma::Pd(host_.pd), .qpn = rdma::Qpn(5)},
        kStart + offset, 8, rdma::kLocalWrite);
  }
  std::uint32_t index() const {
    return created_.as<s::create_mkey_out>().get(s::create_mkey_out::mkey_index);
  }

  RdmaTestHost host_{{.memory_size = 64u << 20}};
  Reply reply_;
  Reply created_;
};

TEST_F(LongCommand, UserMemoryOfVeryManyPagesIsMadeAndDestroyedTurnByTurn) {
  host_.uid = create_uctx(host_);
  using In = s::create_umem_in;
  Input<In> in(Opcode::CREATE_UMEM, 0, 8 * kPages);
  util::MutableView<s::command_input_header>(in.bytes())
      .set(s::command_input_header::uid, host_.uid);
  (*in).sub(In::umem).set(s::umem::num_of_mtt, kPages);
  EXPECT_GE(turns(in.bytes(), s::create_umem_out::kSize), 20u);
  ASSERT_TRUE(reply_.ok()) << reply_.reason();
  const auto left = host_.device.driver().resources().translations().left();
  Input<s::destroy_umem_in> destroy(Opcode::DESTROY_UMEM);
  destroy->set(s::destroy_umem_in::uid, host_.uid);
  destroy->set(s::destroy_umem_in::umem_id,
               reply_.as<s::create_umem_out>().get(s::create_umem_out::umem_id));
  EXPECT_GE(turns(destroy.bytes(), s::destroy_umem_out::kSize), 10u);
  ASSERT_TRUE(reply_.ok()) << reply_.reason();
  EXPECT_EQ(host_.device.driver().resources().translations().left(), left + kPages);
}

TEST_F(LongCommand, UserMemoryOfVeryManyPagesGoesTurnByTurnWithItsDriver) {
  host_.uid = create_uctx(host_);
  using In = s::create_umem_in;
  Input<In> in(Opcode::CREATE_UMEM, 0, 8 * kPages);
  (*in).sub(In::umem).set(s::umem::num_of_mtt, kPages);
  ASSERT_TRUE(host_.execute<s::create_umem_out>(in).ok());
  host_.uid = 0;
  Input<s::teardown_hca_in> teardown(Opcode::TEARDOWN_HCA);
  turns(teardown.bytes(), s::teardown_hca_out::kSize);
  ASSERT_TRUE(reply_.ok()) << reply_.reason();
  EXPECT_TRUE(host_.device.driver().has_remains());
  unsigned count = 0;
  for (; host_.device.driver().has_remains() && count < 10'000; ++count) {
    const auto before = host_.device.work_done();
    host_.device.run(host_.now, kTurn);
    host_.ring_commands(0);
    EXPECT_LE(host_.device.work_done() - before, kTurn + kCommandBeyond);
  }
  EXPECT_GE(count, 10u);
}

TEST_F(LongCommand, AKeyOfVeryManyPagesIsMadeAndDestroyedTurnByTurn) {
  auto in = large_key();
  EXPECT_GE(turns(in.bytes(), s::create_mkey_out::kSize), 20u);
  ASSERT_TRUE(reply_.ok()) << reply_.reason();
  created_ = reply_;
  const auto last = std::uint64_t{kPages} * 4096 - 8;
  for (const auto offset : {std::uint64_t{0}, std::uint64_t{0x1FFF'FFF8}, last}) {
    const auto found = check(offset);
    ASSERT_TRUE(found) << offset;
    const std::array<std::byte, 8> bytes{std::byte{7}};
    EXPECT_TRUE(
        host_.device.driver().memory_keys().table().write(*found.key, kStart + offset, bytes));
  }
  EXPECT_FALSE(check(last + 1));

  Input<s::destroy_mkey_in> destroy(Opcode::DESTROY_MKEY);
  destroy->set(s::destroy_mkey_in::mkey_index, index());
  EXPECT_GE(turns(destroy.bytes(), s::destroy_mkey_out::kSize), 5u);
  EXPECT_TRUE(reply_.ok());
  EXPECT_FALSE(check(0));
}

TEST_F(LongCommand, AKeyThatIsBeingDestroyedGivesNoAccess) {
  auto in = large_key();
  turns(in.bytes(), s::create_mkey_out::kSize);
  created_ = reply_;
  Input<s::destroy_mkey_in> destroy(Opcode::DESTROY_MKEY);
  destroy->set(s::destroy_mkey_in::mkey_index, index());
  (void)host_.prepare(0, destroy.bytes(), s::destroy_mkey_out::kSize);
  host_.ring_commands(1);
  // The device first frees the input of the previous command.
  for (int i = 0; i < 10 && check(0); ++i) host_.device.run(host_.now, kTurn);
  ASSERT_EQ(host_.slot(0).get(CommandEntry::ownership), 1u) << "it takes longer";
  EXPECT_FALSE(check(0));
  (void)softhca::test::inspected(host_.device);
  host_.run();
}

TEST_F(LongCommand, HalfAMegabyteOfOutputTakesManyTurns) {
  Input<s::nop_in> nop(Opcode::NOP);
  EXPECT_GE(turns(nop.bytes(), 512u << 10), 10u);
  ASSERT_TRUE(reply_.ok());
  EXPECT_EQ(reply_.out.back(), std::byte{0}) << "all of it is written";
}

TEST_F(LongCommand, AResetEndsItAndTheNextDriverFindsADeviceAsNew) {
  auto in = large_key();
  (void)host_.prepare(0, in.bytes(), s::create_mkey_out::kSize);
  host_.ring_commands(1);
  for (int i = 0; i < 50; ++i) host_.device.run(host_.now, kTurn);
  ASSERT_EQ(host_.slot(0).get(CommandEntry::ownership), 1u) << "it takes longer";
  host_.device.reset();
  pcie::set_bus_master(host_.device, true);
  host_.run();
  EXPECT_EQ(host_.slot(0).get(CommandEntry::ownership), 1u)
      << "the driver that is gone gets no event";
  host_.initialize();
  EXPECT_NE(host_.allocate_pd(), 0u);
  EXPECT_EQ(host_.device.driver().memory_keys().count(), 0u);
}

TEST_F(LongCommand, AQpThatIsInManyGroupsLeavesThemTurnByTurn) {
  const auto qp = host_.datagram_qp();
  auto& transport = host_.device.driver().rdma().transport();
  for (std::uint32_t i = 0; i != 600; ++i) {
    ASSERT_TRUE(transport.groups().attach(rdma::Qpn(qp.qpn), rdma::Gid::from_ipv4(0xE1000000 + i)));
  }
  Input<s::destroy_qp_in> destroy(Opcode::DESTROY_QP);
  destroy->set(s::destroy_qp_in::qpn, qp.qpn);
  EXPECT_GE(turns(destroy.bytes(), s::destroy_qp_out::kSize), 5u);
  EXPECT_TRUE(reply_.ok());
  EXPECT_EQ(transport.groups().count(), 0u);
}

}  // namespace
}  // namespace softhca::connectx::test
