// The habits of the author's driver that a card with profile=driver follows
// (docs/interface/jingzhao.md).
#include <gtest/gtest.h>

#include <array>

#include "jingzhao/authors_driver.h"
#include "jingzhao/world.h"

namespace softhca::jingzhao::test {
namespace {

using Wr = AuthorsDriver::Wr;

class JingzhaoAuthorsDriver : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NO_FATAL_FAILURE(d.probe()); }
  /// Two connected QPs that complete to `cq`. Their contexts have no addresses, so the card
  /// receives what it sends.
  void connect() {
    cq = d.create_cq(32);
    a = d.create_qp(*cq, *cq);
    b = d.create_qp(*cq, *cq);
    d.connect(*a, *b);
    d.connect(*b, *a);
  }
  /// Has `a` write one byte. True if it succeeds.
  bool write_byte(const AuthorsDriver::Piece& from, std::uint64_t to, std::uint32_t rkey) {
    const std::array list{
        Wr{.opcode = wqe_opcode::RDMA_WRITE, .pieces = {from}, .to = to, .rkey = rkey}};
    EXPECT_EQ(d.post_send(*a, list), 1u);
    const auto done = d.wait(*cq, 1);
    return done.size() == 1 && done[0].syndrome == 0;
  }

  AuthorsDriver d{kCardOfTheDriver};
  std::unique_ptr<AuthorsDriver::Cq> cq;
  std::unique_ptr<AuthorsDriver::Qp> a, b;
};

TEST_F(JingzhaoAuthorsDriver, RegistersARegionOfMorePagesThanAMailboxNames) {
  auto data = d.register_memory(600 * Icm::kPage);
  connect();
  for (const std::uint64_t page : {507u, 508u, 511u, 512u, 599u}) {
    const auto value = static_cast<std::byte>(page % 251);
    data.region.bytes[0] = value;
    EXPECT_TRUE(write_byte({.at = data.address(), .length = 1, .lkey = data.key},
                           data.address() + page * Icm::kPage, data.key));
    EXPECT_EQ(data.region.bytes[page * Icm::kPage], value) << page;
  }
}

TEST_F(JingzhaoAuthorsDriver, ReachesAllMemoryByItsBusAddresses) {
  auto data = d.register_memory(2 * Icm::kPage);
  const auto all = d.register_all_memory();
  connect();
  data.region.bytes[0] = std::byte{7};
  EXPECT_TRUE(write_byte({.at = data.address(), .length = 1, .lkey = all},
                         data.address() + Icm::kPage, all));
  EXPECT_EQ(data.region.bytes[Icm::kPage], std::byte{7});
}

// It reads the status once, so memory that earlier commands have left to be freed must not delay a
// command.
TEST_F(JingzhaoAuthorsDriver, FindsEachCommandDoneWhateverIsLeftToFree) {
  constexpr std::uint32_t kPages = 1 << 18;
  constexpr unsigned kTurns = 200;
  auto data = d.register_memory(2 * Icm::kPage);
  auto large = d.register_repeated(data.address(), kPages);
  connect();
  data.region.bytes[0] = std::byte{7};
  EXPECT_TRUE(
      write_byte({.at = 0, .length = 1, .lkey = large.key}, data.address() + Icm::kPage, data.key));
  EXPECT_EQ(data.region.bytes[Icm::kPage], std::byte{7});
  for (unsigned i = 0; i != kTurns; ++i) d.run();  // the rest of the region is loaded
  d.deregister(large);
  EXPECT_EQ(d.command(command_opcode::QUERY_ADAPTER, 0), OK);
  // And so for the objects of an HCA.
  d.remove();
  d.probe();
}

TEST_F(JingzhaoAuthorsDriver, FindsTheMsixTableWhereItIs) {
  // A vector is masked after reset: bit 0 of its entry's fourth dword.
  EXPECT_EQ(d.h.read(0x2000C), 1u);
  EXPECT_EQ(d.h.read(0x540C), 0u);
}

// Its first QP has the number 0, its second 1.
TEST_F(JingzhaoAuthorsDriver, UsesQueuePairs0And1AsAnyOther) {
  auto data = d.register_memory(2 * Icm::kPage);
  connect();
  ASSERT_EQ(a->qpn, 0u);
  ASSERT_EQ(b->qpn, 1u);
  data.region.bytes[0] = std::byte{7};
  EXPECT_TRUE(write_byte({.at = data.address(), .length = 1, .lkey = data.key},
                         data.address() + Icm::kPage, data.key));
  EXPECT_EQ(data.region.bytes[Icm::kPage], std::byte{7});
}

TEST_F(JingzhaoAuthorsDriver, CountsNumbersOnPastTheTables) {
  auto data = d.register_memory(2 * Icm::kPage);
  connect();
  d.destroy(*a);
  d.destroy(*b);
  d.destroy(*cq);
  connect();
  ASSERT_EQ(a->qpn, 0x20002u);
  ASSERT_EQ(cq->cqn, 0x10002u);
  EXPECT_EQ(d.query(*a), qp_state::RTS);
  data.region.bytes[0] = std::byte{7};
  EXPECT_TRUE(write_byte({.at = data.address(), .length = 1, .lkey = data.key},
                         data.address() + Icm::kPage, data.key));
  EXPECT_EQ(data.region.bytes[Icm::kPage], std::byte{7});
  // It compares the whole number when it removes the CQEs of a QP.
  const util::View<spec::jingzhao::cqe> last(cq->ring.region.bytes.first(32));
  EXPECT_EQ(last.get(spec::jingzhao::cqe::my_qpn), a->qpn);
  EXPECT_EQ(d.resize(*cq, 64), OK);
  EXPECT_EQ(d.modify(*a, qp_state::ERR), OK);
  d.destroy(*a);
  d.destroy(*b);
  d.destroy(*cq);
}

TEST_F(JingzhaoAuthorsDriver, SendsDatagramsToNumbersPastTheTable) {
  constexpr std::uint32_t kLength = 100;
  auto data = d.register_memory(2 * Icm::kPage);
  cq = d.create_cq(32);
  // The numbers of later QPs do not fit into the table.
  for (unsigned i = 0; i != 2; ++i) {
    a = d.create_qp(*cq, *cq, 8, qp_type::UD);
    b = d.create_qp(*cq, *cq, 8, qp_type::UD);
    for (auto* qp : {a.get(), b.get()}) {
      ASSERT_EQ(d.modify(*qp, qp_state::INIT, {.port = true}), OK);
      ASSERT_EQ(d.modify(*qp, qp_state::RTR), OK);
      ASSERT_EQ(d.modify(*qp, qp_state::RTS, {.psn = 1}), OK);
    }
    const auto value = static_cast<std::byte>(i + 7);
    std::ranges::fill(data.region.bytes.first(kLength), value);
    const std::array receive{
        Wr{.id = 1,
           .pieces = {{.at = data.address() + Icm::kPage, .length = kLength, .lkey = data.key}}}};
    EXPECT_EQ(d.post_receive(*b, receive), 1u);
    const std::array send{Wr{
        .pieces = {{data.address(), kLength, data.key}}, .remote_qpn = b->qpn, .remote_qkey = 0}};
    EXPECT_EQ(d.post_send(*a, send), 1u);
    EXPECT_EQ(d.wait(*cq, 2).size(), 2u) << i;
    EXPECT_EQ(data.region.bytes[Icm::kPage + kLength - 1], value) << i;
    d.destroy(*a);
    d.destroy(*b);
  }
}

// Its mask has the bits of mthca, where bit 6 is not the Q_Key.
TEST_F(JingzhaoAuthorsDriver, ChangesTheRnrTimerOfARunningQueuePair) {
  connect();
  ASSERT_EQ(d.modify(*a, qp_state::RTS, {.rnr_timer = 5}), OK);
  ASSERT_EQ(d.query(*a), qp_state::RTS);
  EXPECT_EQ(d.h.get32(0x84) >> 24, 5u);
}

TEST(JingzhaoAuthorsCard, OfTheDriverWorksWithTheDriverOfSofthca) {
  World world({.card = {.profile = Profile::kDriver}});
  world.open();
  Side from(world.a()), to(world.b());
  test::connect(from, to);
  fill(from.memory, 1);
  const auto piece = from.piece(0, 5000);
  const auto write = [&] {
    EXPECT_EQ(from.qp->post_send({.id = 7,
                                  .opcode = driver::SendOpcode::kRdmaWrite,
                                  .pieces = {&piece, 1},
                                  .remote_address = to.address(),
                                  .rkey = to.key->key()}),
              PostStatus::kOk);
    const auto done = test::wait(world, *from.send_cq);
    return done.empty() ? WorkStatus::kUnknown : done[0].status;
  };
  EXPECT_EQ(write(), WorkStatus::kSuccess);
  EXPECT_TRUE(same(from.bytes(0, 5000), to.bytes(0, 5000)));
  // Its masks have all bits.
  to.qp->change({.access = driver::RemoteAccess{.write = false}});
  must(to.qp->stay(qp_state::RTS));
  EXPECT_EQ(write(), WorkStatus::kRemoteInvalidRequest);
}

TEST(JingzhaoAuthorsCard, OfTheDocumentLeavesTheDriverWithoutAnswers) {
  RawHost h;
  EXPECT_EQ(driver::read_pci_id(h.host).device, 0x1011);
  h.start(static_cast<std::uint32_t>(command_opcode::NOP), {.in_modifier = 0x1F});
  EXPECT_NE(h.read(h.hcr_at + 0x18) & 1u << 23, 0u) << "it would not wait";
  EXPECT_EQ(h.finish(), OK);
}

}  // namespace
}  // namespace softhca::jingzhao::test
