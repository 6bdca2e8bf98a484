// Doorbell pages that a guest maps. The device must find every store, for any queue of the page,
// even if later stores overwrite it before the device polls.
#include "connectx/queue/shared_doorbells.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "connectx/command/user_context_host.h"
#include "connectx/ethernet/ethernet_host.h"
#include "connectx/ethernet/wqe.h"
#include "connectx/qp/rdma_test_host.h"
#include "connectx/qp/wqe_builder.h"
#include "spec/connectx/cq.h"
#include "spec/connectx/eq.h"

namespace softhca::connectx::test {
namespace {

using Page = spec::connectx::uar_page;
using Code = spec::connectx::command_status;

/// A guest's mapping of the BAR as memory.
class MappedBar {
 public:
  explicit MappedBar(const Device& device)
      : memory_(static_cast<std::byte*>(::mmap(nullptr, kBarSize, PROT_READ | PROT_WRITE,
                                               MAP_SHARED, device.shared_memory(0)->fd, 0))) {}
  MappedBar(const MappedBar&) = delete;
  MappedBar& operator=(const MappedBar&) = delete;
  ~MappedBar() { ::munmap(memory_, kBarSize); }

  std::byte* page(std::uint32_t uar) const { return memory_ + uar * kUarPageSize; }
  void ring_send(std::uint32_t uar, std::uint32_t number, unsigned blue_flame_register = 0) const {
    auto* at = page(uar) + Page::db_blueflame_buffer0_even.kOffset + 512 * blue_flame_register;
    util::store_be32(at, 0x100);
    util::store_be32(at + 4, number << 8 | 1);
  }
  void ring_cq(std::uint32_t uar, std::uint32_t arm, std::uint32_t cqn) {
    util::store_be32(page(uar) + Page::cq_cmd.kOffset, arm);
    util::store_be32(page(uar) + Page::cq_n.kOffset, cqn);
  }

 private:
  std::byte* memory_;
};

class SharedDoorbellPage : public ::testing::Test {
 protected:
  SharedDoorbellPage() : host_({.share_doorbells = true}), bar_(host_.device) {
    kernel_uar_ = host_.uar;
    // Makes a process's page as mlx5_ib does; the kernel makes the objects on it.
    const As process(host_, create_uctx(host_));
    host_.uar = host_.allocate_uar();
    uid_ = host_.uid;
  }

  HostQp queue() {
    auto [qp, peer] = host_.connected();
    host_.run();  // entering RTS, a QP looks for WQEs without a doorbell
    return qp;
  }
  void post_nop(HostQp& qp) {
    host_.post_send(qp, WqeBuilder(WqeBuilder::Opcode::NOP, qp.send_producer, qp.qpn).bytes());
  }
  std::size_t completions() {
    // Longer than the maximum poll interval.
    host_.run(SharedDoorbells::kLongestWait * 2);
    return host_.poll_all(host_.cq).size();
  }
  /// Writes the arm record, as software does before it rings.
  void arm(const HostCq& cq, std::uint32_t sequence) {
    util::store_be32(host_.at(cq.record + 4), sequence << 28 | cq.consumer);
  }
  unsigned events() {
    unsigned count = 0;
    while (host_.poll_event()) ++count;
    return count;
  }

  RdmaTestHost host_;
  MappedBar bar_;
  std::uint32_t kernel_uar_;
  std::uint16_t uid_;
};

TEST_F(SharedDoorbellPage, IsThatOfAProcessAndNoneOfTheKernels) {
  const auto memory = *host_.device.shared_memory(0);
  ASSERT_EQ(memory.areas.size(), 1u);
  const auto& area = memory.areas[0];
  EXPECT_LT(kernel_uar_ * kUarPageSize, area.offset);
  EXPECT_GE(host_.uar * kUarPageSize, area.offset);
  EXPECT_LT(host_.uar * kUarPageSize, area.offset + area.size);
  EXPECT_LE(area.offset + area.size, kMsixOffset);
  EXPECT_FALSE(host_.device.shared_memory(2));
}

TEST_F(SharedDoorbellPage, IsOneOfTheKernelsIfThereIsNoOther) {
  const As process(host_, uid_);
  for (std::uint32_t i = 1; i != kSharedUars; ++i) {
    EXPECT_TRUE(SharedDoorbells::contains(UarPage(host_.allocate_uar())));
  }
  EXPECT_FALSE(SharedDoorbells::contains(UarPage(host_.allocate_uar())));
}

TEST_F(SharedDoorbellPage, IsNoticedWithoutAMessage) {
  auto qp = queue();
  for (unsigned i = 0; i != 8; ++i) {
    post_nop(qp);
    bar_.ring_send(host_.uar, qp.qpn, i % 4);
    EXPECT_EQ(completions(), 1u) << i;
  }
}

TEST_F(SharedDoorbellPage, SaysNothingOfAQueueWhoseRecordHasNothingNew) {
  auto qp = queue();
  bar_.ring_send(host_.uar, qp.qpn);
  EXPECT_EQ(completions(), 0u);
}

TEST_F(SharedDoorbellPage, LosesNoDoorbellThatAnotherTakesThePlaceOf) {
  auto first = queue();
  auto second = queue();
  post_nop(first);
  bar_.ring_send(host_.uar, first.qpn);
  post_nop(second);
  bar_.ring_send(host_.uar, second.qpn);
  EXPECT_EQ(completions(), 2u);
}

TEST_F(SharedDoorbellPage, StillTakesDoorbellsThatAreMessages) {
  auto qp = queue();
  post_nop(qp);
  host_.ring_send(qp);
  EXPECT_EQ(completions(), 1u);
}

TEST_F(SharedDoorbellPage, RingsNoQueueOfAnotherPage) {
  auto qp = queue();
  const auto own = host_.uar;
  {
    const As process(host_, uid_);
    host_.uar = host_.allocate_uar();
  }
  auto other = queue();
  post_nop(qp);
  bar_.ring_send(host_.uar, qp.qpn);
  EXPECT_EQ(completions(), 0u);
  bar_.ring_send(own, other.qpn);  // finds the WQEs posted on its own page
  EXPECT_EQ(completions(), 1u);
}

TEST_F(SharedDoorbellPage, ArmsACq) {
  auto cq = host_.create_cq(4);
  host_.cq = cq;
  auto qp = queue();
  arm(cq, 1);
  bar_.ring_cq(host_.uar, 1u << 28, cq.cqn);
  host_.run(SharedDoorbells::kLongestWait * 2);
  EXPECT_EQ(events(), 0u);
  post_nop(qp);
  bar_.ring_send(host_.uar, qp.qpn);
  EXPECT_EQ(completions(), 1u);
  EXPECT_EQ(events(), 1u);
}

// The first arming of a CQ is a zero dword: sequence number, command and index are 0.
TEST_F(SharedDoorbellPage, ArmsTheCqWhoseDoorbellAnotherTookThePlaceOf) {
  auto first = host_.create_cq(4);
  auto second = host_.create_cq(4);
  arm(first, 0);
  bar_.ring_cq(host_.uar, 0, first.cqn);
  arm(second, 0);
  bar_.ring_cq(host_.uar, 0, second.cqn);
  host_.run(SharedDoorbells::kLongestWait * 2);
  host_.cq = first;
  auto qp = queue();
  post_nop(qp);
  bar_.ring_send(host_.uar, qp.qpn);
  EXPECT_EQ(completions(), 1u);
  EXPECT_EQ(events(), 1u);
}

// A record of zeros may be an arming, so the first doorbell also arms the CQs that were never
// armed.
TEST_F(SharedDoorbellPage, ArmsAnUnarmedCqOnceAtMost) {
  auto quiet = host_.create_cq(4);
  auto loud = host_.create_cq(4);
  host_.cq = quiet;
  auto qp = queue();
  for (unsigned sequence = 0; sequence != 3; ++sequence) {
    arm(loud, sequence);
    bar_.ring_cq(host_.uar, sequence << 28, loud.cqn);
    host_.run(SharedDoorbells::kLongestWait * 2);
    post_nop(qp);
    bar_.ring_send(host_.uar, qp.qpn);
    EXPECT_EQ(completions(), 1u);
    EXPECT_EQ(events(), sequence == 0 ? 1u : 0u) << sequence;
  }
}

// Linux pins the page of a record for reading only: a process may name a file that it may not
// write. Behind a vIOMMU such a page is read-only for the device.
TEST_F(SharedDoorbellPage, WritesToNoDoorbellRecord) {
  const auto dword = [&](std::uint64_t record) { return util::load_be32(host_.at(record + 4)); };
  auto cq = host_.create_cq(4);
  EXPECT_EQ(dword(cq.record), 0u);
  arm(cq, 1);
  bar_.ring_cq(host_.uar, 1u << 28, cq.cqn);
  auto [qp, peer] = host_.connected();
  post_nop(qp);
  bar_.ring_send(host_.uar, qp.qpn);
  EXPECT_EQ(completions(), 1u);
  EXPECT_EQ(dword(cq.record), 1u << 28);
  ASSERT_TRUE(host_.to_reset(qp));
  ASSERT_TRUE(host_.to_init(qp) && host_.to_rtr(qp, peer.qpn) && host_.to_rts(qp));
  EXPECT_EQ(dword(qp.record), 1u);
}

TEST_F(SharedDoorbellPage, IsEmptyWhenItBecomesAnothersPage) {
  const auto next = host_.uar + 1;
  bar_.ring_send(next, 0x40);
  const As process(host_, uid_);
  ASSERT_EQ(host_.allocate_uar(), next);
  EXPECT_EQ(util::load_be64(bar_.page(next) + Page::db_blueflame_buffer0_even.kOffset), 0u);
}

TEST_F(SharedDoorbellPage, IsEmptyAfterAReset) {
  bar_.ring_send(host_.uar, 0x40);
  host_.device.reset();
  EXPECT_EQ(util::load_be64(bar_.page(host_.uar) + Page::db_blueflame_buffer0_even.kOffset), 0u);
}

// The record announces posted WQEs, so a record of the queue's earlier life must not count. Another
// queue's store may also have overwritten the store to the page.
TEST_F(SharedDoorbellPage, FindsWhatIsPostedToAQpThatIsUsedAgain) {
  auto other = queue();
  auto [qp, peer] = host_.connected();
  for (unsigned life = 0; life != 3; ++life) {
    for (unsigned i = 0; i <= life; ++i) post_nop(qp);
    bar_.ring_send(host_.uar, qp.qpn);
    bar_.ring_send(host_.uar, other.qpn);
    EXPECT_EQ(completions(), life + 1) << life;
    ASSERT_TRUE(host_.to_reset(qp));
    ASSERT_TRUE(host_.to_init(qp) && host_.to_rtr(qp, peer.qpn) && host_.to_rts(qp));
    bar_.ring_send(host_.uar, other.qpn);
    EXPECT_EQ(completions(), 0u) << life;
    EXPECT_EQ(host_.query_state(qp), static_cast<unsigned>(spec::connectx::qp_state::RTS));
  }
}

TEST_F(SharedDoorbellPage, FindsAFirstPostThatLeavesTheOldCounterByItsOwnDoorbell) {
  auto [qp, peer] = host_.connected();
  for (unsigned life = 0; life != 3; ++life) {
    post_nop(qp);
    bar_.ring_send(host_.uar, qp.qpn);
    EXPECT_EQ(completions(), 1u) << life;
    ASSERT_TRUE(host_.to_reset(qp));
    ASSERT_TRUE(host_.to_init(qp) && host_.to_rtr(qp, peer.qpn) && host_.to_rts(qp));
  }
}

TEST_F(SharedDoorbellPage, FindsNothingOldInAnSqThatIsUsedAgain) {
  using State = spec::connectx::sq_state;
  test::EthernetHost host({.share_doorbells = true});
  {
    const As process(host, create_uctx(host));
    host.uar = host.allocate_uar();
  }
  const MappedBar bar(host.device);
  const auto cqn = host.create_cq();
  const auto sqn = host.create_sq(cqn);
  host.post_send(sqn, test::Wqe(spec::connectx::wqe_opcode::NOP, sqn, 0).finish());
  EXPECT_FALSE(host.poll(cqn).empty());
  EXPECT_TRUE(host.modify_sq(sqn, State::RDY, State::RST).ok());
  EXPECT_TRUE(host.modify_sq(sqn, State::RST, State::RDY).ok());
  bar.ring_send(host.uar, 0x1234);  // another queue on the same page
  host.run(SharedDoorbells::kLongestWait * 2);
  EXPECT_TRUE(host.poll(cqn).empty());
}

TEST_F(SharedDoorbellPage, IsNotLookedAtWithoutQueues) {
  auto& doorbells = *host_.device.driver().shared_doorbells();
  const auto none = doorbells.pages();
  auto qp = host_.create_qp();
  EXPECT_EQ(doorbells.pages(), none + (none == 0 ? 1 : 0));
  host_.destroy(qp);
  EXPECT_EQ(doorbells.pages(), none);
}

TEST_F(SharedDoorbellPage, IsNoneForAnEqWhichHasNoDoorbellRecord) {
  using In = spec::connectx::create_eq_in;
  using Context = spec::connectx::eq_context;
  const auto reply = host_.call<spec::connectx::create_eq_out, In>(Opcode::CREATE_EQ, [&](auto in) {
    const auto context = in.sub(In::eq_context_entry);
    context.set(Context::uar_page, host_.uar);
  });
  EXPECT_EQ(reply.status(), Code::BAD_RESOURCE);
}

TEST_F(SharedDoorbellPage, IsLookedAtLessOftenTheLongerNothingComes) {
  auto made = SharedDoorbells::create();
  ASSERT_TRUE(made);
  auto& doorbells = **made;
  const util::Time start{std::chrono::hours(1)};
  const auto wait = [&](util::Duration silence) {
    (void)doorbells.next_poll(start, true);
    return doorbells.next_poll(start + silence, false) - (start + silence);
  };
  using std::chrono::microseconds;
  EXPECT_LE(wait(microseconds(20)), microseconds(10));
  EXPECT_EQ(wait(microseconds(8'000)), microseconds(8'000) / SharedDoorbells::kPatience);
  EXPECT_EQ(wait(std::chrono::seconds(10)), SharedDoorbells::kLongestWait);
}

}  // namespace
}  // namespace softhca::connectx::test
