// Fixture of tests that receive Ethernet frames: a receive queue that gets all of them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>

#include "connectx/ethernet/ethernet_host.h"

namespace softhca::connectx::test {

class EthernetReceive : public ::testing::Test {
 protected:
  using cqe64 = spec::connectx::cqe64;
  using cqe_opcode = spec::connectx::cqe_opcode;
  using cqe_syndrome = spec::connectx::cqe_syndrome;
  using modify_rq_in = spec::connectx::modify_rq_in;
  using modify_rq_out = spec::connectx::modify_rq_out;
  using rq_context = spec::connectx::rq_context;
  using RqState = spec::connectx::rq_state;

  EthernetReceive() : cqn(host.create_cq()), rqn(host.create_rq(cqn)) {
    host.steer_all_to(host.create_direct_tir(rqn));
  }

  /// The CQE of a successful receive.
  util::View<cqe64> completion() {
    last = host.poll(cqn);
    EXPECT_FALSE(last.empty());
    last.resize(64);
    const util::View<cqe64> view(last);
    EXPECT_EQ(view.get(cqe64::opcode), static_cast<unsigned>(cqe_opcode::RESPONDER_SEND));
    EXPECT_EQ(view.get(cqe64::srqn_user_index), 0x12345u);
    return view;
  }
  void expect_error(std::uint16_t counter, cqe_syndrome syndrome, rdma::Reason reason) {
    host.expect_error(cqn, cqe_opcode::RESPONDER_ERROR, counter, syndrome, reason);
  }
  Reply modify(RqState from, RqState to, std::uint64_t mask = 0, bool vsd = false) {
    return host.call<modify_rq_out, modify_rq_in>(Opcode::MODIFY_RQ, [&](auto in) {
      in.set(modify_rq_in::rqn, rqn);
      in.set(modify_rq_in::rq_state, static_cast<std::uint32_t>(from));
      in.set(modify_rq_in::modify_bitmask, mask);
      const auto context = in.sub(modify_rq_in::rq_context);
      context.set(rq_context::state, static_cast<std::uint32_t>(to));
      context.set(rq_context::vlan_strip_disable, vsd);
    });
  }

  EthernetHost host;
  std::uint32_t cqn;
  std::uint32_t rqn;
  Bytes last;
};

}  // namespace softhca::connectx::test
