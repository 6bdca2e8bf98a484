// An InfiniBand link that goes down and up: events, port states, the subnet, requests.
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <vector>

#include "jingzhao/world.h"
#include "spec/infiniband/mad.h"
#include "subnet/mad.h"
#include "subnet/manager.h"

namespace softhca::jingzhao::test {
namespace {

using namespace std::chrono_literals;
using spec::infiniband::port_info;
using spec::infiniband::port_physical_state;
using spec::infiniband::port_state;
using spec::jingzhao::port_change_subtype;

class InfinibandLink : public World, public ::testing::Test {
 protected:
  InfinibandLink() : World({.card = {.link = wire::Link::kInfiniband}}) {
    open();
    (void)changes(a());
    (void)changes(b());
  }
  /// The port events of a device since the last call.
  static std::vector<port_change_subtype> changes(Node& node) {
    std::vector<port_change_subtype> found;
    while (const auto event = node.hca->poll_event()) {
      EXPECT_EQ(event->type, spec::jingzhao::event_type::PORT_CHANGE);
      found.push_back(port_change_subtype(event->subtype));
    }
    return found;
  }
  static port_state state(Node& node) { return port_state(must(node.hca->query_port()).state); }
  /// PortInfo, as software asks its own port.
  static subnet::Mad port_info_of(Node& node) {
    subnet::Mad mad{};
    const util::MutableView<subnet::Smp> smp(mad);
    smp.set(subnet::Smp::base_version, 1);
    smp.set(subnet::Smp::mgmt_class, static_cast<std::uint32_t>(subnet::MadClass::SUBN_LID_ROUTED));
    smp.set(subnet::Smp::class_version, 1);
    smp.set(subnet::Smp::method, static_cast<std::uint32_t>(subnet::Method::GET));
    smp.set(subnet::Smp::attribute_id,
            static_cast<std::uint32_t>(spec::infiniband::sm_attribute::PORT_INFO));
    must(node.hca->process_mad(mad));
    return mad;
  }
  void connect_sides(jz::Connection connection = {}) {
    left.emplace(a());
    right.emplace(b());
    connect(*left, *right, connection);
    fill(left->bytes(0, 4096), 1);
  }
  std::vector<Completion> write() {
    const auto piece = left->piece(0, 4096);
    EXPECT_EQ(left->qp->post_send({.id = 1,
                                   .opcode = driver::SendOpcode::kRdmaWrite,
                                   .pieces = {&piece, 1},
                                   .remote_address = right->address(),
                                   .rkey = right->key->key()}),
              PostStatus::kOk);
    return wait(*this, *left->send_cq);
  }

  std::optional<Side> left, right;
};

TEST_F(InfinibandLink, GoesDownWithARuleAndUpAgainByItself) {
  const wire::Lid lid(a().address.lid);
  ASSERT_NE(subnet()->manager().find(lid), nullptr);
  const auto& down = add_fault("port=jingzhao0,do=link-down");
  advance(1ms);
  EXPECT_EQ(changes(a()), std::vector{port_change_subtype::DOWN});
  EXPECT_EQ(state(a()), port_state::DOWN);
  EXPECT_EQ(subnet()->agent().state(1), port_state::DOWN) << "the switch's end";
  EXPECT_EQ(subnet()->manager().find(lid), nullptr);
  advance(30s);
  EXPECT_EQ(changes(a()), std::vector<port_change_subtype>{}) << "it stays down";
  EXPECT_EQ(down.fired, 1u);
  faults().clear();
  advance(100ms);
  EXPECT_EQ(changes(a()), std::vector{port_change_subtype::UP});
  EXPECT_EQ(state(a()), port_state::ACTIVE);
  EXPECT_EQ(must(a().hca->query_port()).lid, lid.value());
  EXPECT_NE(subnet()->manager().find(lid), nullptr);
  EXPECT_EQ(subnet()->manager().counters().refused, 0u);
  connect_sides();
  expect_success(write(), 1, CompletionOpcode::kRdmaWrite);
  EXPECT_TRUE(same(left->bytes(0, 4096), right->bytes(0, 4096)));
}

TEST_F(InfinibandLink, PortInfoHasTheStateOfTheLink) {
  const auto states = [&] {
    const auto mad = port_info_of(a());
    const util::View<port_info> info(util::View<subnet::Smp>(mad).get(subnet::Smp::data));
    return std::pair(port_state(info.get(port_info::port_state)),
                     port_physical_state(info.get(port_info::port_physical_state)));
  };
  EXPECT_EQ(states(), std::pair(port_state::ACTIVE, port_physical_state::LINK_UP));
  add_fault("port=jingzhao0,do=link-down");
  EXPECT_EQ(states(), std::pair(port_state::DOWN, port_physical_state::POLLING));
  faults().clear();
  advance(100ms);
  EXPECT_EQ(states(), std::pair(port_state::ACTIVE, port_physical_state::LINK_UP));
}

TEST_F(InfinibandLink, OnlyThePortOfTheRuleGoesDown) {
  add_fault("port=jingzhao1,do=link-down");
  advance(1ms);
  EXPECT_EQ(changes(b()), std::vector{port_change_subtype::DOWN});
  EXPECT_EQ(changes(a()), std::vector<port_change_subtype>{});
  EXPECT_EQ(state(a()), port_state::ACTIVE);
}

TEST_F(InfinibandLink, GoesUpWhenItsTimeIsOver) {
  add_fault("port=jingzhao0,do=link-down,time=300ms");
  advance(200ms);
  EXPECT_EQ(changes(a()), std::vector{port_change_subtype::DOWN});
  advance(200ms);
  EXPECT_EQ(changes(a()), std::vector{port_change_subtype::UP});
}

TEST_F(InfinibandLink, ThatFlapsIsReportedEachTime) {
  const auto& flaps = add_fault("port=jingzhao0,do=link-down,time=100ms,period=1s");
  advance(3500ms);
  using enum port_change_subtype;
  EXPECT_EQ(changes(a()), (std::vector{DOWN, UP, DOWN, UP, DOWN, UP, DOWN, UP}));
  EXPECT_EQ(flaps.fired, 4u);
}

TEST_F(InfinibandLink, ThatStaysDownEndsInRetriesExceeded) {
  connect_sides({.ack_timeout = 10, .retry_count = 2});
  expect_success(write(), 1, CompletionOpcode::kRdmaWrite);
  add_fault("port=jingzhao0,do=link-down");
  advance(1ms);
  expect_error(write(), 1, WorkStatus::kTransportRetryExceeded);
}

TEST_F(InfinibandLink, ThatIsDownShortlyEndsInARetry) {
  connect_sides({.ack_timeout = 14, .retry_count = 7});
  add_fault("port=jingzhao1,nth=1,opcode=ack,do=link-down,time=5ms");
  expect_success(write(), 1, CompletionOpcode::kRdmaWrite);
  EXPECT_EQ(changes(b()), (std::vector{port_change_subtype::DOWN, port_change_subtype::UP}));
}

TEST(InfinibandLinkAtStart, IsDownUntilTheRuleIsRemoved) {
  World world({.card = {.link = wire::Link::kInfiniband}});
  world.faults().add(fabric::parse_fault("port=jingzhao0,do=link-down").value());
  world.a().open();
  EXPECT_EQ(port_state(must(world.a().hca->query_port()).state), port_state::DOWN);
  world.faults().clear();
  world.advance(100ms);
  EXPECT_TRUE(must(world.a().hca->query_port()).up());
  const auto event = world.a().hca->poll_event();
  ASSERT_TRUE(event);
  EXPECT_EQ(port_change_subtype(event->subtype), port_change_subtype::UP);
}

}  // namespace
}  // namespace softhca::jingzhao::test
