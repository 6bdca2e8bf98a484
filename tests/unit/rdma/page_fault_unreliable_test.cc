// Missing pages and UC or UD: a packet that cannot be placed is dropped.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rdma/page_faults.h"
#include "rdma/requester.h"
#include "rdma/responder.h"

namespace softhca::rdma::test {
namespace {

using ::testing::ElementsAre;
using enum WorkStatus;

class UcPageFaults : public PageFaults {
 protected:
  UcPageFaults() : PageFaults(QpType::kUc, false) {}
};
class UdPageFaults : public PageFaults {
 protected:
  UdPageFaults() : PageFaults(QpType::kUd, false) {}
  SendRequest datagram(std::uint64_t offset) {
    auto request = send(offset, 500);
    static_cast<Path&>(request.ud) = pair.path_to(pair.b);
    request.ud.qpn = pair.qb->qpn();
    request.ud.qkey = pair.qb->attributes().qkey;
    return request;
  }
};

TEST_F(UcPageFaults, AMessageIsDroppedAndThePageComesForTheNext) {
  pair.a.post(*pair.qa, to_paged(write(0x40000, 0x2000, 0x2000)));
  pair.a.post(*pair.qa, to_paged(write(0x40000, 0x4000, 0x2000)));
  pair.drive();
  EXPECT_EQ(pair.b.hca.faults.size(), 1u);
  bring_all(pair.b);
  EXPECT_TRUE(pair.b.transport.resume(*pair.qb, FaultSide::kResponder, false));
  pair.a.post(*pair.qa, to_paged(write(0x40000, 0x2000, 0x2000)));
  pair.drive();
  expect_done(3);
  expect_same(0x40000, 0x2000, 0x2000);
  EXPECT_EQ(pair.qb->state(), QpState::kRts);
}

TEST_F(UdPageFaults, ADatagramIsDroppedAndItsReceiveRequestServesTheNext) {
  pair.b.post_receive(*pair.qb, {End::sge(0, 0x1000, kPaged)}, 9);
  pair.a.post(*pair.qa, datagram(0x40000));
  pair.drive();
  EXPECT_TRUE(pair.b.hca.receives.empty());
  ASSERT_EQ(pair.b.hca.faults.size(), 1u);
  EXPECT_EQ(pair.b.hca.faults[0].cookie, 9u);
  bring_all(pair.b);
  pair.b.transport.resume(*pair.qb, FaultSide::kResponder, false);
  pair.a.post(*pair.qa, datagram(0x40000));
  pair.drive();
  ASSERT_EQ(pair.b.hca.receives.size(), 1u);
  EXPECT_EQ(pair.b.hca.receives[0].completion.cookie, 9u);
  expect_same(0x40000, 40, 500);
}

TEST_F(UdPageFaults, AReceiveRequestWhosePageCannotBeBroughtEndsTheQp) {
  pair.b.post_receive(*pair.qb, {End::sge(0, 0x1000, kPaged)}, 9);
  pair.a.post(*pair.qa, datagram(0x40000));
  pair.drive();
  pair.b.transport.resume(*pair.qb, FaultSide::kResponder, true);
  pair.drive();
  EXPECT_THAT(pair.b.hca.receive_statuses(), ElementsAre(kLocalProtection));
  EXPECT_EQ(pair.qb->state(), QpState::kError);
}

TEST_F(UdPageFaults, ADatagramWaitsForItsPayload) {
  pair.b.post_receive(*pair.qb, {End::sge(0x40000, 0x1000)});
  pair.a.post(*pair.qa, from_paged(datagram(0x3000)));
  pair.drive();
  EXPECT_TRUE(pair.a.hca.sends.empty());
  bring_all(pair.a);
  pair.a.transport.resume(*pair.qa, FaultSide::kRequester, false);
  pair.drive();
  expect_done();
  expect_same(0x3000, 0x40000 + 40, 500);
}

}  // namespace
}  // namespace softhca::rdma::test
