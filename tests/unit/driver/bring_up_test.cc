// Bring-up and teardown of the device by driver/connectx: PRM 8.2 and 8.3.
#include "connectx/function/pages.h"
#include "driver/pci.h"
#include "driver/world.h"

namespace softhca::driver::test {
namespace {

TEST(BringUp, FindsAConnectX4) {
  World world;
  const auto id = read_pci_id(*world.a().host);
  EXPECT_EQ(id.vendor, 0x15b3);
  EXPECT_EQ(id.device, 0x1013);
}

TEST(BringUp, ReportsFirmwareVersionMacAndLink) {
  World world;
  world.open();
  EXPECT_EQ(world.a().hca->firmware_version().substr(0, 3), "12.");
  EXPECT_EQ(world.a().hca->mac(), world.a().mac);
  EXPECT_EQ(world.b().hca->mac(), world.b().mac);
  EXPECT_TRUE(must(world.a().hca->link_is_up()));
  EXPECT_TRUE(world.a().hca->atomics_in_host_order());
}

TEST(BringUp, TeardownTakesEverythingBackAndCanBeFollowedByBringUp) {
  World world;
  auto& node = world.a();
  for (int round = 0; round < 5; ++round) {
    node.open();
    {
      const Endpoint endpoint(node);
    }
    must(node.hca->close());
    EXPECT_EQ(node.hca->pages_given(), 0u);
    node.hca = nullptr;
    EXPECT_EQ(node.host->allocated(), 0u);
    EXPECT_EQ(node.host->mapped(), 0u);
  }
}

TEST(BringUp, DestructionClosesToo) {
  World world;
  auto& node = world.a();
  node.open();
  node.hca = nullptr;
  EXPECT_EQ(node.host->allocated(), 0u);
  node.open();
}

TEST(BringUp, ANewDriverAfterOneThatVanishedWithoutTeardown) {
  World world;
  auto& node = world.a();
  node.open();
  const auto cq = must(connectx::CompletionQueue::create(*node.hca));
  // A program that died tears nothing down. vfio resets the device then.
  node.device->reset();
  EXPECT_FALSE(cq->destroy());
  EXPECT_FALSE(node.hca->close());
  node.hca = nullptr;
  node.open();
  const Endpoint endpoint(node);
}

TEST(BringUp, SaysWhichCommandFailedWithStatusAndSyndrome) {
  World world;
  world.open();
  auto& commands = world.a().hca->commands();
  connectx::Request<connectx::spec::destroy_cq_in> in(connectx::spec::command_opcode::DESTROY_CQ);
  in.set(connectx::spec::destroy_cq_in::cqn, 0x1234);
  const auto done = commands.run(in);
  ASSERT_FALSE(done);
  EXPECT_NE(done.error().message.find("DESTROY_CQ"), std::string::npos) << done.error().message;
  EXPECT_NE(done.error().message.find("BAD_RESOURCE"), std::string::npos) << done.error().message;
  EXPECT_NE(done.error().message.find("syndrome 0x"), std::string::npos) << done.error().message;
}

TEST(BringUp, AnUnknownCommandIsRefusedAndTheQueueGoesOn) {
  World world;
  world.open();
  auto& hca = *world.a().hca;
  const auto unknown = static_cast<connectx::spec::command_opcode>(0xfff);
  EXPECT_FALSE(hca.commands().run(connectx::Request<connectx::spec::nop_in>(unknown)));
  EXPECT_TRUE(hca.link_is_up());
}

TEST(BringUp, FailsWhereThereAreNotEnoughInterruptVectors) {
  World world;
  auto& node = world.a();
  const auto hca = connectx::Hca::open(*node.host, {.completion_vectors = 100});
  ASSERT_FALSE(hca);
  EXPECT_NE(hca.error().message.find("vectors"), std::string::npos) << hca.error().message;
  EXPECT_EQ(node.host->allocated(), 0u);
  node.open();
}

TEST(BringUp, ALargeMemoryKeyTravelsInManyMailboxes) {
  World world;
  world.open();
  auto& node = world.a();
  const auto pd = must(connectx::ProtectionDomain::create(*node.hca));
  // Just below the threshold for large pages: 511 pages, so a 4 KiB list.
  std::vector<std::byte> memory((2 << 20) - 4096);
  for (int i = 0; i < 20; ++i) {
    const auto key = must(connectx::MemoryKey::register_memory(*pd, memory, {}));
    EXPECT_NE(key->key() >> 8, 0u);
  }
}

TEST(BringUp, PagesAreGivenWhenAskedForAndByEventAndTakenBack) {
  World world;
  auto& node = world.a();
  node.open();
  const auto at_boot = node.hca->pages_given();
  EXPECT_GT(at_boot, 0u);
  // The device requests more pages by event, and returns some of them.
  for (int i = 0; i < 10; ++i) {
    world.advance(std::chrono::milliseconds(10));
    // The driver serves page requests itself. Only port events come out here.
    while (const auto event = must(node.hca->poll_event())) {
      EXPECT_EQ(event->type, connectx::spec::event_type::PORT_STATE_CHANGE);
    }
  }
  using softhca::connectx::PageManager;
  EXPECT_EQ(node.hca->pages_given(),
            at_boot + PageManager::kRegularPages - PageManager::kSparePages);
  EXPECT_GT(node.host->interrupts(0), 0u);
  must(node.hca->close());
  EXPECT_EQ(node.hca->pages_given(), 0u);
}

TEST(BringUp, TheFirstPacketInRtrEstablishesCommunication) {
  World world;
  world.open();
  auto& hca = *world.b().hca;
  while (must(hca.poll_event())) {
  }
  Endpoint a(world.a());
  Endpoint b(world.b());
  using connectx::QpState;
  must(b.qp->modify(QpState::kReset, QpState::kInit, {}));
  must(b.qp->modify(QpState::kInit, QpState::kRtr,
                    {.path = verbs::Path{.gid = a.node.gid, .mac = a.node.mac},
                     .receive_psn = 1,
                     .destination_qpn = a.qp->qpn()}));
  must(a.qp->connect(b.as_remote(2), {.psn = 1}));
  b.receive(1, 0, 64);
  ASSERT_EQ(a.qp->post_send({.id = 1}), PostStatus::kOk);
  expect_success(wait(world, *a.send_cq), 1, CompletionOpcode::kSend);

  hca.events().arm();
  const auto event = must(hca.poll_event());
  ASSERT_NE(event, std::nullopt);
  using connectx::spec::event_data_qp_srq;
  EXPECT_EQ(event->type, connectx::spec::event_type::COMMUNICATION_ESTABLISHED);
  EXPECT_EQ(event->as<event_data_qp_srq>().get(event_data_qp_srq::qp_srq_n), b.qp->qpn());
}

}  // namespace
}  // namespace softhca::driver::test
