// Bring-up and teardown of the device by our driver: PRM 8.2 and 8.3.
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

TEST(BringUp, TellsFirmwareVersionMacAndLink) {
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
  // The program died: nobody tore anything down. A reset is what vfio does then.
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
  // Just below what large pages are used for: 511 pages, 4 KiB of list.
  std::vector<std::byte> memory((2 << 20) - 4096);
  for (int i = 0; i < 20; ++i) {
    const auto key = must(connectx::MemoryKey::register_memory(*pd, memory, {}));
    EXPECT_NE(key->key() >> 8, 0u);
  }
}

TEST(BringUp, EventsOfTheDeviceArriveInTheEventQueue) {
  World world;
  world.open();
  auto& node = world.a();
  // Drain what the bring-up caused, such as the port's own events.
  while (must(node.hca->poll_event())) {
  }
  node.hca->events().arm();
  const auto before = node.host->interrupts(0);
  Endpoint a(world.a());
  Endpoint b(world.b());
  connect(a, b);
  // The first packet in RTR establishes communication on the other side (IBTA 9.9.2); here it comes
  // after RTS. What must come in any case is the CQ error of an overrun: see completion_queue_test.
  EXPECT_GE(node.host->interrupts(0), before);
}

}  // namespace
}  // namespace softhca::driver::test
