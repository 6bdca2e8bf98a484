// `softhca serve --loss`: a link that loses frames.
#include <gmock/gmock.h>

#include "served_test.h"

namespace softhca::server {
namespace {

using namespace std::chrono_literals;
using driver::WorkStatus;
using ::testing::HasSubstr;

struct TwoGuests {
  explicit TwoGuests(const std::vector<std::string>& options)
      : server({"connectx,name=a", "connectx,name=b"}, options),
        a(server.socket(0), 1),
        b(server.socket(1), 2) {
    a.connect(b);
    b.connect(a);
  }
  std::uint64_t dropped_after_a_gap() const {
    return server.inspect()["b"]["rdma_drops"]["out of sequence"];
  }

  ServedProgram server;
  HcaClient a, b;
};

TEST(ServeLoss, AFewFramesLostCostTimeAndNoByte) {
  TwoGuests guests({"--loss=0.05", "--loss-seed=7"});
  auto bytes = guests.a.memory();
  for (std::size_t i = 0; i != bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(i * 7 + i / 251);
  for (int i = 0; i != 5; ++i) {
    std::ranges::fill(guests.b.memory(), std::byte{0});
    ASSERT_EQ(guests.a.write(guests.b, HcaClient::kMemory, 30s), WorkStatus::kSuccess);
    ASSERT_TRUE(std::ranges::equal(guests.a.memory(), guests.b.memory()));
  }
  EXPECT_GT(guests.dropped_after_a_gap(), 0u);
}

TEST(ServeLoss, AWireThatLosesAllEndsInRetriesExceeded) {
  TwoGuests guests({"--loss=1"});
  EXPECT_EQ(guests.a.write(guests.b, 1000, 30s), WorkStatus::kTransportRetryExceeded);
}

TEST(ServeLoss, IsRefusedWhereLinksAreMemory) {
  ServedProgram server({"connectx"}, {"--loss=0.1", "--isolate"});
  EXPECT_NE(server.wait_end(), 0);
  EXPECT_THAT(server.log(), HasSubstr("--loss: not with --isolate"));
}

}  // namespace
}  // namespace softhca::server
