// A send's CQE returns its buffers (PRM 7.4.3). If the driver overwrites them immediately, packets
// in flight do not change.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "connectx/qp/rdma_test_host.h"
#include "connectx/qp/wqe_builder.h"

namespace softhca::connectx {
namespace {

using test::HostQp;
using test::kKey;
using test::RdmaTestHost;
using test::WqeBuilder;
using CqeCode = test::CqeOpcode;
using WqeOpcode = spec::connectx::wqe_opcode;

constexpr std::size_t kLength = 3000;  // three packets of a connected QP

class RdmaBufferOwnership : public ::testing::Test {
 protected:
  /// Simulates a guest whose other processor polls CQEs while the fabric still holds the frames. At
  /// each send CQE it overwrites the buffer. Then everything is delivered.
  void run_with_an_eager_guest(pcie::Iova buffer, std::size_t length) {
    for (int turn = 0; turn < 5; ++turn) {
      host_.device.run(host_.now);
      if (turn == 3) host_.network.deliver(1000);
      while (const auto cqe = host_.poll(host_.cq)) {
        if (cqe->opcode != CqeCode::REQUESTER && cqe->opcode != CqeCode::REQUESTER_ERROR) continue;
        ++sends_;
        std::memset(host_.at(buffer), 'X', length);
      }
    }
  }
  void post(HostQp& qp, const WqeBuilder& wqe) {
    host_.post_send(qp, wqe.bytes());
    host_.ring_send(qp);
  }
  WqeBuilder wqe(const HostQp& qp, WqeOpcode opcode) {
    return WqeBuilder(opcode, qp.send_producer, qp.qpn);
  }

  RdmaTestHost host_;
  pcie::Iova from_ = host_.put_text(std::string(kLength, 'm'));
  pcie::Iova to_ = host_.allocate(4096);
  int sends_ = 0;
};

TEST_F(RdmaBufferOwnership, UcSend) {
  auto [a, b] = host_.connected({.service = test::Service::UC});
  host_.post_receive(b, to_, 4096);
  post(a, wqe(a, WqeOpcode::SEND).data(from_, kLength, kKey));
  run_with_an_eager_guest(from_, kLength);
  EXPECT_EQ(sends_, 1);
  EXPECT_EQ(host_.text(to_, kLength), std::string(kLength, 'm'));
}

TEST_F(RdmaBufferOwnership, UcWrite) {
  auto [a, b] = host_.connected({.service = test::Service::UC});
  post(a, wqe(a, WqeOpcode::RDMA_WRITE).remote(to_, kKey).data(from_, kLength, kKey));
  run_with_an_eager_guest(from_, kLength);
  EXPECT_EQ(sends_, 1);
  EXPECT_EQ(host_.text(to_, kLength), std::string(kLength, 'm'));
}

TEST_F(RdmaBufferOwnership, Datagram) {
  auto a = host_.datagram_qp();
  auto b = host_.datagram_qp();
  host_.post_receive(b, to_, 4096);
  post(a, wqe(a, WqeOpcode::SEND)
              .datagram(b.qpn, RdmaTestHost::kQkey, host_.mac, host_.gid, 3)
              .data(from_, 1000, kKey));
  run_with_an_eager_guest(from_, 1000);
  EXPECT_EQ(sends_, 1);
  EXPECT_EQ(host_.text(to_ + 40, 1000), std::string(1000, 'm'));
}

TEST_F(RdmaBufferOwnership, ManagementDatagram) {
  auto gsi = host_.datagram_qp({.service = test::Service::QP1});
  auto peer = host_.datagram_qp();
  host_.post_receive(peer, to_, 4096);
  post(gsi, wqe(gsi, WqeOpcode::SEND)
                .datagram(peer.qpn, RdmaTestHost::kQkey, host_.mac, host_.gid, 3)
                .data(from_, 256, kKey));
  run_with_an_eager_guest(from_, 256);
  EXPECT_EQ(sends_, 1);
  EXPECT_EQ(host_.text(to_ + 40, 256), std::string(256, 'm'));
}

TEST_F(RdmaBufferOwnership, FlushedWrite) {
  auto [a, b] = host_.connected();
  post(a, wqe(a, WqeOpcode::RDMA_WRITE).remote(to_, kKey).data(from_, kLength, kKey));
  host_.device.run(host_.now);
  ASSERT_TRUE(host_.to_error(a));
  run_with_an_eager_guest(from_, kLength);
  EXPECT_EQ(sends_, 1);
  EXPECT_EQ(host_.text(to_, kLength), std::string(kLength, 'm'));
}

}  // namespace
}  // namespace softhca::connectx
