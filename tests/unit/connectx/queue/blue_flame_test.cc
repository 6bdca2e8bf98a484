// BlueFlame (PRM 7.2.2.1): the device executes a WQE directly if all of it is written to a doorbell
// page. In these tests the copy in the queue differs, as in the Linux driver's test for write
// combining.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "connectx/ethernet/ethernet_host.h"
#include "connectx/qp/data_path.h"
#include "spec/connectx/init_segment.h"

namespace softhca::connectx::test {
namespace {

using Send = spec::connectx::wqe_opcode;
using Page = spec::connectx::uar_page;
using Bytes = std::vector<std::byte>;

constexpr std::uint32_t kEven = Page::db_blueflame_buffer0_even.kOffset;
constexpr std::uint32_t kOdd = Page::db_blueflame_buffer0_odd.kOffset;
constexpr std::size_t kCombined = 64;

class BlueFlameTest : public RdmaDataPath {
 protected:
  BlueFlameTest() { std::tie(a_, b_) = host_.connected(); }

  Bytes write_of(HostQp& qp, std::string_view text) {
    return wqe(qp, Send::RDMA_WRITE).remote(to_, RdmaTestHost::kKey).inline_data(text).bytes();
  }
  /// Writes `wqe`, padded to a multiple of 64 bytes, to a BlueFlame buffer, `step` bytes at a time.
  void flame(Bytes wqe, std::uint32_t offset, std::size_t step = kCombined,
             std::uint32_t page = 0) {
    wqe.resize((wqe.size() + kCombined - 1) / kCombined * kCombined);
    for (std::size_t done = 0; done < wqe.size(); done += step) {
      const auto n = std::min(step, wqe.size() - done);
      host_.device.write_bar(0, (page == 0 ? host_.uar : page) * kUarPageSize + offset + done,
                             std::span(wqe).subspan(done, n));
    }
  }
  /// Puts different texts into the queue and the buffer. Returns the text that arrives.
  std::string arrives(std::string_view in_memory, std::string_view in_buffer,
                      std::size_t step = kCombined) {
    const auto flamed = write_of(a_, in_buffer);
    host_.post_send(a_, write_of(a_, in_memory));
    flame(flamed, kEven, step);
    host_.run();
    EXPECT_EQ(completions().size(), 1u);
    return std::string(host_.text(to_, in_buffer.size()));
  }

  HostQp a_;
  HostQp b_;
  pcie::Iova to_ = host_.allocate(4096, 64);
};

TEST_F(BlueFlameTest, AWqeThatIsWrittenWholeIsExecutedFromTheBuffer) {
  EXPECT_EQ(arrives("memory", "buffer"), "buffer");
  EXPECT_EQ(arrives("memory", "second"), "second");
}

TEST_F(BlueFlameTest, WritesThatAreNotCombinedAreADoorbell) {
  EXPECT_EQ(arrives("memory", "buffer", 8), "memory");
  EXPECT_EQ(arrives("MEMORY", "buffer", 4), "MEMORY");
}

TEST_F(BlueFlameTest, ALongWqeMayComeInSeveralCombinedWrites) {
  const std::string text(200 - 32, 'b');
  EXPECT_EQ(arrives(std::string(text.size(), 'm'), text), text);
  EXPECT_EQ(arrives(std::string(text.size(), 'm'), text, 256), text);
}

TEST_F(BlueFlameTest, BuffersAreWrittenInTurn) {
  for (int i = 0; i != 8; ++i) {
    const auto text = "text " + std::to_string(i);
    const auto flamed = write_of(a_, text);
    host_.post_send(a_, write_of(a_, "memory"));
    flame(flamed, i % 2 == 0 ? kEven : kOdd);
    host_.run();
    EXPECT_EQ(host_.text(to_, text.size()), text);
  }
  EXPECT_EQ(completions().size(), 8u);
}

TEST_F(BlueFlameTest, SeveralWqesInOneTurnAreExecutedInOrder) {
  for (int i = 0; i != 40; ++i) {
    const auto flamed = write_of(a_, "buffer " + std::to_string(i % 10));
    // If no buffer is left, the WQE is read from the queue.
    host_.post_send(a_, flamed);
    flame(flamed, i % 2 == 0 ? kEven : kOdd);
    if (i % 20 == 19) host_.run();
  }
  const auto cqes = completions();
  ASSERT_EQ(cqes.size(), 40u);
  for (std::size_t i = 0; i != cqes.size(); ++i) EXPECT_EQ(cqes[i].wqe_counter, i);
  EXPECT_EQ(host_.text(to_, 8), "buffer 9");
}

TEST_F(BlueFlameTest, DatagramsToo) {
  auto qp = host_.datagram_qp();
  auto peer = host_.datagram_qp();
  const auto datagram = [&](std::string_view text) {
    return wqe(qp, Send::SEND)
        .datagram(peer.qpn, RdmaTestHost::kQkey, host_.mac, host_.gid, 3)
        .inline_data(text)
        .bytes();
  };
  for (const std::string text : {"buffer", "second"}) {
    const auto at = host_.allocate(128, 64);
    host_.post_receive(peer, at, 128);
    const auto flamed = datagram(text);
    host_.post_send(qp, datagram("memory"));
    flame(flamed, kEven);
    host_.run();
    EXPECT_EQ(host_.text(at + 40, 6), text);
    EXPECT_EQ(completions().size(), 2u);
  }
}

// A process may write anything to its own page, but must not affect another queue.

TEST_F(BlueFlameTest, AWqeThatIsLongerThanWhatWasWrittenIsReadFromTheQueue) {
  const std::string text(100, 'm');
  auto flamed = write_of(a_, std::string(100, 'b'));
  host_.post_send(a_, write_of(a_, text));
  flamed.resize(kCombined);
  flame(flamed, kEven);
  host_.run();
  EXPECT_EQ(host_.text(to_, text.size()), text);
}

TEST_F(BlueFlameTest, AnotherIndexThanTheNextIsNotThisWqe) {
  auto flamed = WqeBuilder(Send::RDMA_WRITE, 7, a_.qpn)
                    .remote(to_, RdmaTestHost::kKey)
                    .inline_data("buffer")
                    .bytes();
  host_.post_send(a_, write_of(a_, "memory"));
  flame(flamed, kEven);
  host_.run();
  EXPECT_EQ(host_.text(to_, 6), "memory");
}

TEST_F(BlueFlameTest, AnotherPageIsIgnored) {
  const auto flamed = write_of(a_, "buffer");
  host_.post_send(a_, write_of(a_, "memory"));
  flame(flamed, kEven, kCombined, host_.allocate_uar());
  host_.device.run(host_.now);
  EXPECT_TRUE(completions().empty());
  host_.ring_send(a_);
  host_.run();
  EXPECT_EQ(host_.text(to_, 6), "memory");
}

TEST_F(BlueFlameTest, AWriteAcrossTheEndOfABufferIsADoorbellOnly) {
  auto flamed = write_of(a_, "buffer");
  flamed.resize(320);
  host_.post_send(a_, write_of(a_, "memory"));
  flame(flamed, kEven, 320);
  host_.run();
  EXPECT_EQ(host_.text(to_, 6), "memory");
}

TEST_F(BlueFlameTest, ABufferWithoutItsBeginningIsNothing) {
  flame(write_of(a_, "buffer"), kEven + kCombined);
  host_.run();
  EXPECT_TRUE(completions().empty());
}

TEST_F(BlueFlameTest, ABufferIsForgottenWithItsTurn) {
  flame(write_of(a_, "buffer"), kEven);  // nothing has been posted yet
  host_.run();
  EXPECT_TRUE(completions().empty());
  send(a_, wqe(a_, Send::RDMA_WRITE).remote(to_, RdmaTestHost::kKey).inline_data("memory"));
  host_.run();
  EXPECT_EQ(host_.text(to_, 6), "memory");
}

// Another queue may get the number afterwards.
TEST_F(BlueFlameTest, ABufferIsForgottenWithACommand) {
  const auto flamed = write_of(a_, "buffer");
  host_.post_send(a_, write_of(a_, "memory"));
  flame(flamed, kEven);
  host_.query_state(b_);
  host_.run();
  EXPECT_EQ(host_.text(to_, 6), "memory");
}

TEST_F(BlueFlameTest, AWqeOfNoSizeOrMoreThanIsPostedIsRefusedAsInTheQueue) {
  auto flamed = wqe(a_, Send::NOP).units(0).bytes();
  host_.post_send(a_, flamed);
  flame(flamed, kEven);
  host_.run();
  const auto cqes = completions();
  ASSERT_EQ(cqes.size(), 1u);
  EXPECT_EQ(cqes[0].syndrome, Syndrome::LOCAL_QP_OPERATION_ERROR);
}

// The test of the Linux driver: the WQEs in the queue request no CQE, and their BlueFlame copies
// do.
class SqBlueFlame : public ::testing::Test {
 protected:
  /// Posts `count` NOPs. Returns the numbers of those that complete.
  std::vector<std::uint16_t> completed(unsigned count, std::size_t step) {
    using Ctrl = spec::connectx::wqe_ctrl_segment;
    for (unsigned i = 0; i != count; ++i) {
      Bytes flamed(kCombined);
      const auto nop = test::Wqe(Send::NOP, sqn_, host_.posted(sqn_)).finish();
      std::ranges::copy(nop, flamed.begin());
      auto silent = nop;
      if (i + 1 != count) util::MutableView<Ctrl>(silent).set(Ctrl::ce, 0);
      host_.write_wqe(sqn_, silent);
      const auto at = host_.uar * kUarPageSize + (i % 2 == 0 ? kEven : kOdd);
      for (std::size_t done = 0; done != flamed.size(); done += step) {
        host_.device.write_bar(0, at + done, std::span(flamed).subspan(done, step));
      }
      host_.run();
    }
    std::vector<std::uint16_t> counters;
    using Cqe = spec::connectx::cqe64_requester;
    for (auto cqe = host_.poll(cqn_); !cqe.empty(); cqe = host_.poll(cqn_)) {
      counters.push_back(static_cast<std::uint16_t>(util::View<Cqe>(cqe).get(Cqe::wqe_counter)));
    }
    return counters;
  }

  test::EthernetHost host_;
  std::uint32_t cqn_ = host_.create_cq();
  std::uint32_t sqn_ = host_.create_sq(cqn_, 4, true, true, false);
};

TEST_F(SqBlueFlame, CombinedWritesAreFoundToBe) {
  EXPECT_EQ(completed(5, kCombined), (std::vector<std::uint16_t>{0, 1, 2, 3, 4}));
}

TEST_F(SqBlueFlame, WritesThatAreNotCombinedAreFoundNotToBe) {
  EXPECT_EQ(completed(5, 8), (std::vector<std::uint16_t>{4}));
}

}  // namespace
}  // namespace softhca::connectx::test
