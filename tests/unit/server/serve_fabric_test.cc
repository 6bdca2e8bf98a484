// `softhca serve --port fabric:NAME`: devices on the network of `softhca run --fabric NAME`.
#include <gmock/gmock.h>
#include <unistd.h>

#include "served_test.h"

namespace softhca::server {
namespace {

using namespace std::chrono_literals;
using driver::WorkStatus;
using ::testing::HasSubstr;

const std::string kPort = "--port=fabric:test-" + std::to_string(::getpid());

TEST(ServeFabric, TwoServersOfAFabricAreOnOneNetwork) {
  ServedProgram one({"connectx,mac=02:00:00:00:00:01"}, {kPort});
  ServedProgram two({"connectx,mac=02:00:00:00:00:02"}, {kPort});
  HcaClient a(one.socket(0), 1), b(two.socket(0), 2);
  a.connect(b);
  b.connect(a);
  auto bytes = a.memory();
  for (std::size_t i = 0; i != bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(i * 7 + i / 251);
  std::ranges::fill(b.memory(), std::byte{0});
  ASSERT_EQ(a.write(b, HcaClient::kMemory, 30s), WorkStatus::kSuccess);
  EXPECT_TRUE(std::ranges::equal(a.memory(), b.memory()));
}

TEST(ServeFabric, AServerGoesOnWhereTheOtherHasGone) {
  ServedProgram one(
      {"connectx,name=a,mac=02:00:00:00:00:01", "connectx,name=b,mac=02:00:00:00:00:02"}, {kPort});
  {
    ServedProgram two({"connectx,mac=02:00:00:00:00:03"}, {kPort});
    HcaClient a(one.socket(0), 1), c(two.socket(0), 3);
    a.connect(c);
    c.connect(a);
    ASSERT_EQ(a.write(c, 1000, 30s), WorkStatus::kSuccess);
    two.stop();
  }
  HcaClient a(one.socket(0), 1), b(one.socket(1), 2);
  a.connect(b);
  b.connect(a);
  EXPECT_EQ(a.write(b, 1000, 30s), WorkStatus::kSuccess);
}

TEST(ServeFabric, IsRefusedWhereItCannotBe) {
  ServedProgram isolated({"connectx"}, {kPort, "--isolate"});
  EXPECT_NE(isolated.wait_end(), 0);
  EXPECT_THAT(isolated.log(), HasSubstr("not with --isolate"));
  ServedProgram infiniband({"jingzhao,link=infiniband"}, {kPort});
  EXPECT_NE(infiniband.wait_end(), 0);
  EXPECT_THAT(infiniband.log(), HasSubstr("an InfiniBand subnet is within one server"));
  ServedProgram nameless({"connectx"}, {"--port=fabric:"});
  EXPECT_NE(nameless.wait_end(), 0);
  EXPECT_THAT(nameless.log(), HasSubstr("want a name"));
}

}  // namespace
}  // namespace softhca::server
