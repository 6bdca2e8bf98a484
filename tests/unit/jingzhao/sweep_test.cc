// An independent subnet manager on the switch sweeps a JingZhao. Its port answers, over the wire,
// every MAD that opensm sends to an HCA (IBTA 14.2.5, 14.4).
#include <gtest/gtest.h>

#include <array>
#include <deque>

#include "jingzhao/mad_status.h"
#include "jingzhao/world.h"
#include "spec/infiniband/mad.h"
#include "subnet/mad.h"
#include "util/endian.h"

namespace softhca::jingzhao::test {
namespace {

using spec::infiniband::port_info;
using spec::infiniband::sm_attribute;
using subnet::Mad;
using subnet::MadStatus;
using subnet::Method;
using subnet::Smp;

/// Sends SMPs by directed route and keeps the responses.
class Sweeper final : public fabric::Receiver {
 public:
  explicit Sweeper(World& world) : world_(world), port_(world.network().create_port("opensm")) {
    port_->set_receiver(this);
  }
  ~Sweeper() override { port_->set_receiver(nullptr); }
  void handle_frame(const wire::Frame& frame) override {
    const auto arrived = subnet::read_mad(frame);
    if (arrived && util::View<Smp>(arrived->mad).get(Smp::direction) == 1) {
      answers_.push_back(arrived->mad);
    }
  }
  void handle_loopback(const wire::Frame&, std::uint32_t) override {}

  /// Asks the node behind `port` of the switch. Empty if no response comes.
  std::optional<Mad> ask(std::uint8_t port, Method method, sm_attribute attribute,
                         std::uint32_t modifier, std::span<const std::byte> data = {}) {
    Mad mad{};
    const util::MutableView<Smp> smp(mad);
    smp.set(Smp::base_version, 1);
    smp.set(Smp::mgmt_class, static_cast<std::uint32_t>(subnet::MadClass::SUBN_DIRECTED_ROUTE));
    smp.set(Smp::class_version, 1);
    smp.set(Smp::method, static_cast<std::uint32_t>(method));
    smp.set(Smp::transaction_id, ++transactions_);
    smp.set(Smp::attribute_id, static_cast<std::uint32_t>(attribute));
    smp.set(Smp::attribute_modifier, modifier);
    smp.set(Smp::dr_slid, spec::infiniband::kPermissiveLid);
    smp.set(Smp::dr_dlid, spec::infiniband::kPermissiveLid);
    // The route: out of its own port to the switch, then out of `port`. The first hop is done.
    smp.set(Smp::hop_count, 2);
    smp.set(Smp::hop_pointer, 1);
    smp.sub(Smp::initial_path)[1] = std::byte{1};
    smp.sub(Smp::initial_path)[2] = std::byte{port};
    std::ranges::copy(data, smp.sub(Smp::data).begin());
    wire::Frame frame;
    subnet::write_mad(
        mad, {subnet::kPermissive, subnet::kPermissive, subnet::kSmiQpn, subnet::kSmiQpn}, frame);
    port_->transmit(frame);
    world_.advance(std::chrono::milliseconds(1));
    if (answers_.empty()) return std::nullopt;
    const auto answer = answers_.front();
    answers_.pop_front();
    EXPECT_EQ(util::View<Smp>(answer).get(Smp::transaction_id), transactions_);
    EXPECT_EQ(Method(util::View<Smp>(answer).get(Smp::method)), Method::GET_RESP);
    return answer;
  }

 private:
  World& world_;
  std::unique_ptr<fabric::Port> port_;
  std::deque<Mad> answers_;
  std::uint64_t transactions_ = 0;
};

TEST(JingzhaoSweep, EveryMadThatOpensmAsksAnHcaIsAnswered) {
  World world({.card = {.link = wire::Link::kInfiniband}});
  world.open();
  Sweeper opensm(world);
  struct Row {
    sm_attribute attribute;
    std::uint32_t modifier;
    bool is_set;  ///< opensm also sets it
  };
  using enum sm_attribute;
  for (const std::uint8_t port : {1, 2}) {
    for (const auto& row :
         {Row{NODE_INFO, 0, false}, Row{NODE_DESCRIPTION, 0, false}, Row{PORT_INFO, 1, true},
          Row{GUID_INFO, 0, true}, Row{P_KEY_TABLE, 0, true}, Row{SL_TO_VL_TABLE, 0, true},
          Row{VL_ARBITRATION, 0x10000, true}, Row{VL_ARBITRATION, 0x30000, true},
          Row{NOTICE, 0, true}}) {
      const auto what = static_cast<unsigned>(row.attribute);
      const auto got = opensm.ask(port, Method::GET, row.attribute, row.modifier);
      ASSERT_TRUE(got) << what;
      EXPECT_EQ(status_of(*got), MadStatus::OK) << what;
      if (!row.is_set) continue;
      auto data = *got;
      const auto body = util::MutableView<Smp>(data).sub(Smp::data);
      if (row.attribute == PORT_INFO) {
        util::MutableView<port_info>(body).set(port_info::port_state, 0);  // no change
      }
      const auto set = opensm.ask(port, Method::SET, row.attribute, row.modifier, body);
      ASSERT_TRUE(set) << what;
      EXPECT_EQ(status_of(*set), MadStatus::OK) << what;
      const auto again = opensm.ask(port, Method::GET, row.attribute, row.modifier);
      ASSERT_TRUE(again) << what;
      EXPECT_TRUE(
          same(util::View<Smp>(*again).get(Smp::data), util::View<Smp>(*got).get(Smp::data)))
          << what << ": it was set to what it was";
    }
    // An HCA does not answer attributes of a switch or of a manager.
    for (const auto attribute :
         {SWITCH_INFO, LINEAR_FORWARDING, RANDOM_FORWARDING, MULTICAST_FORWARDING, SM_INFO}) {
      const auto refused = opensm.ask(port, Method::GET, attribute, 0);
      ASSERT_TRUE(refused);
      EXPECT_EQ(status_of(*refused), MadStatus::UNSUPPORTED_ATTRIBUTE);
    }
  }
  // The sweep has not disturbed the link.
  Side a(world.a()), b(world.b());
  connect(a, b);
  b.receive(1, 0, 100);
  const auto piece = a.piece(0, 100);
  ASSERT_EQ(a.qp->post_send({.id = 2, .opcode = driver::SendOpcode::kSend, .pieces = {&piece, 1}}),
            PostStatus::kOk);
  expect_success(wait(world, *b.receive_cq), 1, CompletionOpcode::kReceive);
}

// IBTA 10.9.2: the manager rewrites the table, and running queue pairs use the new entries.
TEST(JingzhaoSweep, ATableOfPkeysThatIsRewrittenCountsForRunningQueuePairs) {
  World world({.card = {.link = wire::Link::kInfiniband}});
  world.open();
  Sweeper opensm(world);
  Side a(world.a()), b(world.b());
  connect(a, b, {.ack_timeout = 10, .retry_count = 2});
  const auto write = [&](std::uint64_t id) {
    const auto piece = a.piece(0, 100);
    EXPECT_EQ(a.qp->post_send({.id = id,
                               .opcode = driver::SendOpcode::kRdmaWrite,
                               .pieces = {&piece, 1},
                               .remote_address = b.address(),
                               .rkey = b.key->key()}),
              PostStatus::kOk);
    return wait(world, *a.send_cq);
  };
  const auto set = [&](std::uint8_t port, std::uint16_t pkey) {
    std::array<std::byte, 64> table{};
    util::store_be16(table.data(), pkey);
    const auto answer = opensm.ask(port, Method::SET, sm_attribute::P_KEY_TABLE, 0, table);
    ASSERT_TRUE(answer);
    EXPECT_EQ(status_of(*answer), MadStatus::OK);
  };
  expect_success(write(1), 1, CompletionOpcode::kRdmaWrite);
  set(1, 0x0005);
  set(2, 0x8005);
  expect_success(write(2), 2, CompletionOpcode::kRdmaWrite);
  set(2, 0x8006);
  expect_error(write(3), 3, WorkStatus::kTransportRetryExceeded);
}

}  // namespace
}  // namespace softhca::jingzhao::test
