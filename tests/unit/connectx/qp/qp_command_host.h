// Common parts of the tests of QP, SRQ and RoCE address commands.
#pragma once

#include <gtest/gtest.h>

#include <functional>

#include "connectx/qp/rdma_test_host.h"

namespace softhca::connectx {

using namespace spec::connectx;  // only tests include this header
using test::HostQp;
using test::Opcode;
using test::RdmaTestHost;
using qpc = spec::connectx::qpc;
using ads = spec::connectx::ads;

class RdmaQpCommands : public ::testing::Test {
 protected:
  using Change = std::function<void(util::MutableView<create_qp_in>)>;

  /// CREATE_QP with a valid context that `change` spoils.
  Status create_status(const Change& change, std::size_t pages = 8) {
    auto qp = host_.allocate_qp({});
    const auto out = host_.call<create_qp_out, create_qp_in>(
        Opcode::CREATE_QP,
        [&](auto in) {
          host_.fill_create(in, qp);
          change(in);
        },
        host_.page_list(qp.ring, pages * 4096));
    return out.status();
  }
  Status context_status(const std::function<void(util::MutableView<qpc>)>& change) {
    return create_status([&](auto in) { change(in.sub(create_qp_in::qpc)); });
  }
  util::View<qpc> context(const HostQp& qp) {
    queried_ = host_.call<query_qp_out, query_qp_in>(
        Opcode::QUERY_QP, [&](auto in) { in.set(query_qp_in::qpn, qp.qpn); });
    return queried_.as<query_qp_out>().get(query_qp_out::qpc);
  }
  static Status status(const Reply& reply) { return reply.status(); }

  RdmaTestHost host_;
  Reply queried_;
};

}  // namespace softhca::connectx
