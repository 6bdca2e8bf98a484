// Multicast groups of QPs (kernel interface 4.11).
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "uverbs/queue_pair_program.h"

namespace softhca::uverbs {
namespace {

/// Attaches a QP to a multicast group, or detaches it.
Errno change_group(Program& program, std::uint32_t command, std::uint32_t qp) {
  ib_uverbs_attach_mcast in{};
  in.qp_handle = qp;
  const auto group = driver::Gid::from_ipv4(239, 1, 1, 1);
  std::memcpy(in.gid, group.bytes.data(), sizeof in.gid);
  std::array<std::byte, 8> out{};
  return write_command(program.context(), command, in, out);
}

// ib_attach_mcast: a QP attached to a multicast group is in use.
TEST_F(UverbsQueuePair, AQpOfAGroupIsNotDestroyed) {
  std::uint32_t datagrams = 0;
  ASSERT_EQ(make_qp(pd_, cq_, IB_UVERBS_QPT_UD, 0, datagrams), 0);
  const auto change = [&](std::uint32_t command) {
    return change_group(program_, command, datagrams);
  };
  const auto destroy = [&] {
    ib_uverbs_destroy_qp_resp out{};
    return Call(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY)
        .number(UVERBS_ATTR_DESTROY_QP_HANDLE, datagrams)
        .out(UVERBS_ATTR_DESTROY_QP_RESP, out)
        .on(program_.context());
  };
  EXPECT_EQ(change(IB_USER_VERBS_CMD_DETACH_MCAST), EINVAL) << "it is in none";
  ASSERT_EQ(change(IB_USER_VERBS_CMD_ATTACH_MCAST), 0);
  EXPECT_EQ(change(IB_USER_VERBS_CMD_ATTACH_MCAST), 0) << "once is enough";
  EXPECT_EQ(destroy(), EBUSY);
  EXPECT_EQ(change(IB_USER_VERBS_CMD_DETACH_MCAST), 0);
  EXPECT_EQ(destroy(), 0);
}

using Members = std::vector<std::pair<driver::Gid, bool>>;
const driver::Gid kReported = driver::Gid::from_ipv4(239, 1, 1, 1);

// The door joins the group on the network.
TEST_F(UverbsQueuePair, EachMembershipIsReportedOnceAndSoIsItsEnd) {
  std::uint32_t datagrams = 0, stays = 0;
  ASSERT_EQ(make_qp(pd_, cq_, IB_UVERBS_QPT_UD, 0, datagrams), 0);
  ASSERT_EQ(make_qp(pd_, cq_, IB_UVERBS_QPT_UD, 0, stays), 0);
  ASSERT_EQ(change_group(program_, IB_USER_VERBS_CMD_ATTACH_MCAST, datagrams), 0);
  ASSERT_EQ(change_group(program_, IB_USER_VERBS_CMD_ATTACH_MCAST, datagrams), 0);
  ASSERT_EQ(change_group(program_, IB_USER_VERBS_CMD_ATTACH_MCAST, stays), 0);
  EXPECT_EQ(program_.members, (Members{{kReported, true}, {kReported, true}}));
  program_.members.clear();
  ASSERT_EQ(change_group(program_, IB_USER_VERBS_CMD_DETACH_MCAST, datagrams), 0);
  EXPECT_EQ(change_group(program_, IB_USER_VERBS_CMD_DETACH_MCAST, datagrams), EINVAL);
  EXPECT_EQ(program_.members, (Members{{kReported, false}}));
  program_.members.clear();
  program_.close();
  EXPECT_EQ(program_.members, (Members{{kReported, false}})) << "of the QP that was still in it";
}

// The call is ENOMEM, and the QP is in no group.
TEST_F(UverbsQueuePair, AQpWhoseMembershipFindsNoMemoryIsNotAttached) {
  std::uint32_t datagrams = 0;
  ASSERT_EQ(make_qp(pd_, cq_, IB_UVERBS_QPT_UD, 0, datagrams), 0);
  const auto change = [&](std::uint32_t command) {
    return change_group(program_, command, datagrams);
  };
  program_.has_memory_for_members = false;
  EXPECT_THROW(change(IB_USER_VERBS_CMD_ATTACH_MCAST), std::bad_alloc);
  EXPECT_EQ(change(IB_USER_VERBS_CMD_DETACH_MCAST), EINVAL) << "it is in none";
  EXPECT_THROW(change(IB_USER_VERBS_CMD_ATTACH_MCAST), std::bad_alloc);
  program_.has_memory_for_members = true;
  EXPECT_EQ(change(IB_USER_VERBS_CMD_ATTACH_MCAST), 0);
  EXPECT_EQ(change(IB_USER_VERBS_CMD_DETACH_MCAST), 0) << "the device attached it only now";
  EXPECT_EQ(program_.members, (Members{{kReported, true}, {kReported, false}}));
}

// cmd_status_to_err() of Linux: EXCEED_LIM, here of max_qp_mcg.
TEST_F(UverbsQueuePair, AGroupThatIsFullTakesNoOther) {
  constexpr unsigned kMembers = 240;
  std::uint32_t member = 0;
  for (unsigned i = 0; i != kMembers; ++i) {
    ASSERT_EQ(make_qp(pd_, cq_, IB_UVERBS_QPT_UD, 0, member), 0);
    ASSERT_EQ(change_group(program_, IB_USER_VERBS_CMD_ATTACH_MCAST, member), 0) << i;
  }
  ASSERT_EQ(make_qp(pd_, cq_, IB_UVERBS_QPT_UD, 0, member), 0);
  program_.members.clear();
  EXPECT_EQ(change_group(program_, IB_USER_VERBS_CMD_ATTACH_MCAST, member), ENOMEM);
  EXPECT_EQ(program_.members, (Members{{kReported, true}, {kReported, false}}));
}

}  // namespace
}  // namespace softhca::uverbs
