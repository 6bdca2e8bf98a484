// Connections in the output of `softhca inspect`.
#include <gmock/gmock.h>

#include "rdma_cm/own_host.h"

namespace softhca::rdma_cm {
namespace {

using testing::HasSubstr;
using testing::Not;

class RdmaCmInspect : public RdmaCm {
 protected:
  std::string inspect() { return inspect(manager_.get(), "rdma_cm"); }
  /// "unknown" if nothing has this name.
  static std::string inspect(const Manager* manager, std::string_view function) {
    util::Inspection inspection(function, {});
    util::WorkBudget work(1'000'000);
    bool known = false;
    EXPECT_TRUE(inspection.go_on(
        work, [&](util::Inspection& out) { known = rdma_cm::inspect(manager, function, out); }));
    return known ? inspection.finish() : "unknown";
  }
};

TEST_F(RdmaCmInspect, AProgramWithoutLibrdmacmHasNoIdentifiers) {
  EXPECT_THAT(inspect(nullptr, "rdma_cm"), HasSubstr("identifiers_count: 0\n"));
  EXPECT_THAT(inspect(nullptr, ""), Not(HasSubstr("identifiers")));
  EXPECT_EQ(inspect(nullptr, "mlx5_0"), "unknown");
  EXPECT_EQ(inspect(manager_.get(), "mlx5_0"), "unknown");
}

TEST_F(RdmaCmInspect, AnIdentifierListensFromItsCallOn) {
  const auto id = create(1);
  ASSERT_EQ(bind(id, 7471), 0);
  EXPECT_THAT(inspect(), HasSubstr("state: idle\n      source: 198.18.0.1:7471\n"));
  ASSERT_EQ(command(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{.id = id, .backlog = 1}), 0);
  EXPECT_THAT(inspect(), HasSubstr("state: listening\n      source: 198.18.0.1:7471\n"));
}

TEST_F(RdmaCmInspect, AnIpv6AddressIsInBrackets) {
  const auto id = create(1);
  EXPECT_THAT(inspect(), HasSubstr("source: none\n"));
  ASSERT_EQ(bind(id, 7471, driver::Gid{}), 0);
  EXPECT_THAT(inspect(), HasSubstr("source: [::]:7471\n"));
}

TEST_F(RdmaCmInspect, BothEndsOfAConnectionAreShown) {
  listen(1, 7471);
  establish(7471);
  const auto text = inspect();
  EXPECT_THAT(text, HasSubstr("destination: 198.18.0.1:7471\n"));
  EXPECT_THAT(text, HasSubstr("qpn: 0x100\n      remote_qpn: 0x200\n"));
  EXPECT_THAT(text, HasSubstr("qpn: 0x200\n      remote_qpn: 0x100\n"));
  EXPECT_THAT(text, Not(HasSubstr("resolved")));
}

}  // namespace
}  // namespace softhca::rdma_cm
