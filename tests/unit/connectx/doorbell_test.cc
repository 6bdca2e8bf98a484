// Which queues hear their send doorbells (PRM 7.2, 7.4.4): all of them, whatever was before.
#include <gtest/gtest.h>

#include <array>

#include "connectx/base/resources.h"
#include "connectx/rdma_test_host.h"
#include "connectx/rdma_wqe_builder.h"
#include "util/endian.h"

namespace softhca::connectx::testing {
namespace {

class SendDoorbell : public ::testing::Test {
 protected:
  /// As software does: in the QP's page of BAR0.
  void ring(const HostQp& qp) {
    constexpr std::uint32_t kPageSize = 4096;
    constexpr std::uint32_t kSendDoorbell = 0x800;
    std::array<std::byte, 8> doorbell{};
    util::store_be32(doorbell.data() + 4, qp.qpn << 8);
    host_.device.write_bar(0, std::uint64_t{host_.uar} * kPageSize + kSendDoorbell, doorbell);
  }
  void post_nop(HostQp& qp) {
    host_.post_send(qp, WqeBuilder(WqeBuilder::Opcode::NOP, qp.send_producer, qp.qpn).bytes());
  }
  /// Whether a doorbell brings a NOP to its completion.
  bool is_heard(HostQp& qp) {
    host_.run();  // a QP that comes to RTS looks for WQEs by itself
    post_nop(qp);
    ring(qp);
    host_.device.run(host_.now);
    return host_.poll_all(host_.cq).size() == 1;
  }

  RdmaTestHost host_;
};

TEST_F(SendDoorbell, OfTheHighestNumberIsHeard) {
  const auto end = Resources::queue_numbers_end(Limits{});
  auto& numbers = host_.device.resources().queue_numbers();
  for (std::uint32_t last = 0; last != end - 3;) last = *numbers.allocate();
  auto [before, highest] = host_.connected();
  ASSERT_EQ(highest.qpn, end - 1);
  EXPECT_TRUE(is_heard(before));
  EXPECT_TRUE(is_heard(highest));
}

// A driver that crashes may leave a doorbell that nobody has looked at.
TEST_F(SendDoorbell, OfADriverThatIsGoneDoesNotSilenceTheNextDriversQueue) {
  auto [left, peer] = host_.connected();
  ring(left);
  host_.device.drop_objects();
  host_.pd = host_.device.resources().pds().allocate()->value();
  host_.uar = host_.device.resources().uars().allocate()->value();
  host_.cq = host_.create_cq(8);
  auto [qp, other] = host_.connected();
  ASSERT_EQ(qp.qpn, left.qpn);
  EXPECT_TRUE(is_heard(qp));
}

}  // namespace
}  // namespace softhca::connectx::testing
