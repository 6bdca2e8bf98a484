// Common parts of RDMA data path tests: two QPs of one device that communicate through the fabric;
// WQEs in, CQEs and events out.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "connectx/qp/rdma_test_host.h"
#include "connectx/qp/wqe_builder.h"

namespace softhca::connectx::test {

class RdmaDataPath : public ::testing::Test {
 protected:
  WqeBuilder wqe(const HostQp& qp, WqeBuilder::Opcode opcode) {
    return WqeBuilder(opcode, qp.send_producer, qp.qpn);
  }
  void send(HostQp& qp, const WqeBuilder& builder) {
    host_.post_send(qp, builder.bytes());
    host_.ring_send(qp);
  }
  std::vector<HostCqe> completions() { return host_.poll_all(host_.cq); }
  std::vector<EventType> events() {
    std::vector<EventType> types;
    while (const auto event = host_.poll_event()) types.push_back(event->type);
    return types;
  }
  static std::uint32_t state(spec::connectx::qp_state value) {
    return static_cast<std::uint32_t>(value);
  }

  RdmaTestHost host_;
};

}  // namespace softhca::connectx::test
