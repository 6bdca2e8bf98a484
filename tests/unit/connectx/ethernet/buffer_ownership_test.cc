// The CQE of a send returns its buffers (PRM 7.4.3). If the driver overwrites them immediately,
// frames in flight do not change.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "connectx/ethernet/ethernet_host.h"

namespace softhca::connectx::test {
namespace {

using namespace spec::connectx;

/// Keeps the frames that arrive.
class Station final : public fabric::Receiver {
 public:
  void handle_frame(const wire::Frame& frame) override {
    frame.copy_to(frames.emplace_back(frame.size()));
  }
  void handle_loopback(const wire::Frame&, std::uint32_t) override {}

  std::vector<Bytes> frames;
};

class EthernetBufferOwnership : public ::testing::Test {
 protected:
  static constexpr std::size_t kPayload = 1000;

  EthernetBufferOwnership()
      : host_({.model = without_inline_headers(), .on_switch = true}),
        port_(host_.network.create_port("station")),
        cqn_(host_.create_cq()),
        sqn_(host_.create_sq(cqn_)),
        frame_(make_frame({.destination = 0x020000000077, .payload = kPayload})),
        buffer_(host_.allocate(frame_.size())) {
    port_->set_receiver(&station_);
    std::ranges::copy(frame_, host_.at(buffer_));
  }
  ~EthernetBufferOwnership() override { port_->set_receiver(nullptr); }

  void post(std::uint32_t key = EthernetHost::kKey) {
    const auto size = static_cast<std::uint32_t>(frame_.size());
    host_.write_wqe(sqn_, Wqe(wqe_opcode::SEND, sqn_, host_.posted(sqn_))
                              .eth({})
                              .pointer(key, buffer_, size)
                              .finish());
    host_.ring_send(sqn_);
  }
  void turn() { host_.device.run(host_.now); }
  cqe_opcode poll() {
    const auto cqe = host_.poll(cqn_);
    if (cqe.empty()) return cqe_opcode::INVALID;
    return cqe_opcode(util::View<cqe64_requester>(cqe).get(cqe64_requester::opcode));
  }

  EthernetHost host_;
  Station station_;
  std::unique_ptr<fabric::Port> port_;
  std::uint32_t cqn_;
  std::uint32_t sqn_;
  Bytes frame_;
  std::uint64_t buffer_;
};

TEST_F(EthernetBufferOwnership, ACompletionWaitsUntilTheFrameIsRead) {
  post();
  for (int i = 0; i < 3; ++i) {
    turn();
    EXPECT_EQ(poll(), cqe_opcode::INVALID);
  }
  host_.network.deliver(1000);
  turn();
  EXPECT_EQ(poll(), cqe_opcode::REQUESTER);
  std::memset(host_.at(buffer_), 'X', frame_.size());
  ASSERT_EQ(station_.frames.size(), 1u);
  EXPECT_EQ(station_.frames[0], frame_);
}

TEST_F(EthernetBufferOwnership, TheDeviceWantsToRunWhileACompletionWaits) {
  post();
  EXPECT_LE(host_.device.run(host_.now), host_.now);
}

TEST_F(EthernetBufferOwnership, AnErrorWaitsBehindIt) {
  post();
  post(EthernetHost::kKey ^ 0xFF);
  turn();
  EXPECT_EQ(poll(), cqe_opcode::INVALID);
  host_.network.deliver(1000);
  turn();
  EXPECT_EQ(poll(), cqe_opcode::REQUESTER);
  EXPECT_EQ(poll(), cqe_opcode::REQUESTER_ERROR);
  EXPECT_EQ(poll(), cqe_opcode::INVALID);
}

TEST_F(EthernetBufferOwnership, AQueueThatIsResetForgetsWhatWaits) {
  post();
  turn();
  ASSERT_TRUE(host_.modify_sq(sqn_, sq_state::RDY, sq_state::RST).ok());
  host_.network.deliver(1000);
  host_.run();
  EXPECT_EQ(poll(), cqe_opcode::INVALID);
}

TEST_F(EthernetBufferOwnership, ADestroyedQueueHasNoCompletionsLeft) {
  post();
  turn();
  const auto answer = host_.call<destroy_sq_out, destroy_sq_in>(
      Opcode::DESTROY_SQ, [&](auto in) { in.set(destroy_sq_in::sqn, sqn_); });
  ASSERT_TRUE(answer.ok()) << answer.reason();
  host_.run();
  EXPECT_EQ(poll(), cqe_opcode::INVALID);
}

TEST_F(EthernetBufferOwnership, MemoryThatGoesIsReadBefore) {
  post();
  turn();
  host_.device.dma().set_before_loss([this] { return host_.switch_port->settle(); });
  host_.unmap();
  std::memset(host_.at(buffer_), 'X', frame_.size());
  host_.network.deliver(1000);
  ASSERT_EQ(station_.frames.size(), 1u);
  EXPECT_EQ(station_.frames[0], frame_);
}

}  // namespace
}  // namespace softhca::connectx::test
