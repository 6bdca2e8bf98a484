// XRC (IBTA Annex A14; mlx5 driver interface 7.5, 7.6): an initiator's WQE names the SRQ that takes
// its message. The target uses that SRQ's CQ, PD and user index.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "connectx/qp/data_path.h"
#include "spec/connectx/resources.h"
#include "spec/connectx/srq.h"
#include "util/endian.h"

namespace softhca::connectx {
namespace {

using namespace spec::connectx;
using namespace std::chrono_literals;
using test::EventType;
using test::HostQp;
using test::kKey;
using test::RdmaDataPath;
using test::RdmaTestHost;
using Command_ = command_opcode;
using Wqe = wqe_opcode;

using Status = command_status;

/// An XRC SRQ from its driver's view: WQEs of 64 bytes, each with a buffer of 64 bytes.
struct HostXrcSrq {
  std::uint32_t srqn = 0;
  pcie::Iova record = 0;
  pcie::Iova buffers = 0;
};

class RdmaXrc : public RdmaDataPath {
 protected:
  static constexpr unsigned kCount = 4;

  RdmaXrc() {
    domain_ = host_.allocate_xrcd();
    srq_cq_ = host_.create_cq(4);
    srq_ = create_srq(domain_);
    initiator_ = host_.create_qp({.service = test::Service::XRC, .srqn = srq_.srqn});
    target_ = create_target(domain_);
    for (auto [qp, peer] : {std::pair{&initiator_, &target_}, {&target_, &initiator_}}) {
      EXPECT_TRUE(host_.to_init(*qp));
      EXPECT_TRUE(host_.to_rtr(*qp, peer->qpn));
      EXPECT_TRUE(host_.to_rts(*qp));
    }
  }

  Status dealloc_domain(std::uint32_t domain) {
    return host_
        .call<dealloc_xrcd_out, dealloc_xrcd_in>(
            Command_::DEALLOC_XRCD, [&](auto in) { in.set(dealloc_xrcd_in::xrcd, domain); })
        .status();
  }
  HostXrcSrq create_srq(std::uint32_t domain, std::uint32_t user_index = kNoUserIndex) {
    using Context = xrc_srq_context;
    HostXrcSrq srq;
    const auto ring = host_.allocate(4096);
    srq.record = host_.allocate(8, 64);
    srq.buffers = host_.allocate(kCount * 64);
    const auto out = host_.call<create_xrc_srq_out, create_xrc_srq_in>(
        Command_::CREATE_XRC_SRQ,
        [&](auto in) {
          const auto context = in.sub(create_xrc_srq_in::xrc_srq_context_entry);
          context.set(Context::log_rq_stride, 2);
          context.set(Context::log_xrc_srq_size, 2);
          context.set(Context::pd, host_.pd);
          context.set(Context::cqn, srq_cq_.cqn);
          context.set(Context::xrcd, domain);
          context.set(Context::user_index, user_index);
          context.set(Context::dbr_addr, srq.record);
        },
        host_.page_list(ring, 4096));
    EXPECT_TRUE(out);
    srq.srqn = out.as<create_xrc_srq_out>().get(create_xrc_srq_out::xrc_srqn);
    for (unsigned i = 0; i < kCount; ++i) {
      auto* wqe = host_.at(ring + 64 * i);
      util::store_be32(wqe, (i + 1) % kCount);
      util::store_be32(wqe + 16, 64);
      util::store_be32(wqe + 20, kKey);
      util::store_be64(wqe + 24, srq.buffers + 64 * i);
      util::store_be32(wqe + 36, 0x100);
    }
    return srq;
  }
  void destroy_srq(const HostXrcSrq& srq) {
    EXPECT_TRUE((host_.call<destroy_xrc_srq_out, destroy_xrc_srq_in>(
        Command_::DESTROY_XRC_SRQ,
        [&](auto in) { in.set(destroy_xrc_srq_in::xrc_srqn, srq.srqn); })));
  }
  /// Returns the status of CREATE_QP in `status` if the command may be refused.
  HostQp create_target(std::uint32_t domain, Status* status = nullptr) {
    auto qp = host_.allocate_qp({.service = test::Service::XRC, .srqn = srq_.srqn});
    const auto out = host_.call<create_qp_out, create_qp_in>(
        Command_::CREATE_QP,
        [&](auto in) {
          host_.fill_create(in, qp);
          const auto context = in.sub(create_qp_in::qpc);
          context.set(qpc::no_sq, 1);
          context.set(qpc::xrcd, domain);
        },
        host_.page_list(qp.ring, 4096));
    if (status != nullptr) *status = out.status();
    if (out) qp.qpn = out.as<create_qp_out>().get(create_qp_out::qpn);
    return qp;
  }
  void post(const HostXrcSrq& srq, std::uint16_t producer) {
    util::store_be32(host_.at(srq.record), producer);
  }
  void send_to(std::uint32_t srqn, std::string_view text) {
    send(initiator_, wqe(initiator_, Wqe::SEND).xrc(srqn).inline_data(text));
    host_.run();
  }

  std::uint32_t domain_ = 0;
  HostCq srq_cq_;
  HostXrcSrq srq_;
  HostQp initiator_;
  HostQp target_;
};

TEST_F(RdmaXrc, ASendTakesAReceiveOfTheSrqThatItNames) {
  const auto other = create_srq(domain_, 0x77);
  post(srq_, 2);
  post(other, 2);
  send_to(srq_.srqn, "for the first");
  send_to(other.srqn, "for the second");

  const auto received = host_.poll_all(srq_cq_);
  ASSERT_EQ(received.size(), 2u);
  EXPECT_EQ(received[0].qpn, target_.qpn);
  EXPECT_EQ(received[0].user_index, srq_.srqn) << "version 0: drivers look for the SRQ";
  EXPECT_EQ(received[0].byte_count, 13u);
  EXPECT_EQ(received[0].wqe_counter, 0u);
  EXPECT_EQ(host_.text(srq_.buffers, 13), "for the first");
  EXPECT_EQ(received[1].user_index, 0x77u);
  EXPECT_EQ(host_.text(other.buffers, 14), "for the second");
  const auto sent = completions();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].opcode, cqe_opcode::REQUESTER);
  EXPECT_EQ(sent[0].qpn, initiator_.qpn);
}

TEST_F(RdmaXrc, WriteReadAndAtomicReachMemoryOfTheSrqsPd) {
  const auto memory = host_.allocate(4096);
  const auto local = host_.put_text("written by XRC..");
  send(initiator_,
       wqe(initiator_, Wqe::RDMA_WRITE).xrc(srq_.srqn).remote(memory, kKey).data(local, 16, kKey));
  const auto back = host_.allocate(64);
  send(initiator_,
       wqe(initiator_, Wqe::RDMA_READ).xrc(srq_.srqn).remote(memory, kKey).data(back, 16, kKey));
  send(initiator_, wqe(initiator_, Wqe::ATOMIC_FA)
                       .xrc(srq_.srqn)
                       .remote(memory + 64, kKey)
                       .atomic(5, 0)
                       .data(back + 32, 8, kKey));
  host_.run();
  const auto sent = completions();
  ASSERT_EQ(sent.size(), 3u);
  for (const auto& cqe : sent) EXPECT_EQ(cqe.opcode, cqe_opcode::REQUESTER);
  EXPECT_EQ(host_.text(back, 16), "written by XRC..");
  std::uint64_t counter = 0;  // in host order
  std::memcpy(&counter, host_.at(memory + 64), sizeof counter);
  EXPECT_EQ(counter, 5u);
}

TEST_F(RdmaXrc, AnEmptySrqIsAnsweredWithAnRnrNak) {
  send_to(srq_.srqn, "early");
  EXPECT_TRUE(completions().empty());
  post(srq_, 1);
  host_.run(10ms);
  EXPECT_EQ(completions().size(), 1u);
  EXPECT_EQ(host_.text(srq_.buffers, 5), "early");
}

TEST_F(RdmaXrc, AnSrqOfAnotherDomainIsAnInvalidRequest) {
  const auto foreign = create_srq(host_.allocate_xrcd());
  post(foreign, 1);
  send_to(foreign.srqn, "no");
  const auto sent = completions();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].syndrome, cqe_syndrome::REMOTE_INVALID_REQUEST_ERROR);
  EXPECT_EQ(host_.query_state(target_), state(qp_state::ERR));
  EXPECT_THAT(events(), ::testing::Contains(EventType::INVALID_REQUEST_LOCAL_WQ_ERROR));
  EXPECT_TRUE(host_.poll_all(srq_cq_).empty());
}

TEST_F(RdmaXrc, AnSrqThatIsDestroyedIsNoLongerNamed) {
  post(srq_, 2);
  send_to(srq_.srqn, "last");
  ASSERT_EQ(host_.poll_all(srq_cq_).size(), 1u);
  ASSERT_EQ(completions().size(), 1u);
  destroy_srq(srq_);
  send_to(srq_.srqn, "late");
  const auto sent = completions();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].syndrome, cqe_syndrome::REMOTE_INVALID_REQUEST_ERROR);
}

TEST_F(RdmaXrc, ATargetKeepsItsDomainAndAnUnknownOneIsRefused) {
  auto status = Status::OK;
  create_target(0x999, &status);
  EXPECT_EQ(status, Status::BAD_RESOURCE);

  const auto domain = host_.allocate_xrcd();
  auto target = create_target(domain);
  EXPECT_EQ(dealloc_domain(domain), Status::BAD_RES_STATE);
  host_.destroy(target);
  EXPECT_EQ(dealloc_domain(domain), Status::OK);
}

TEST_F(RdmaXrc, AReceiveQueueOfItsOwnMeansNothing) {
  // The context that drivers write for an initiator without an SRQ (mlx5 driver interface 7.5).
  auto qp = host_.allocate_qp({.service = test::Service::XRC, .srqn = srq_.srqn});
  const auto out = host_.call<create_qp_out, create_qp_in>(
      Command_::CREATE_QP,
      [&](auto in) {
        host_.fill_create(in, qp);
        const auto context = in.sub(create_qp_in::qpc);
        context.set(qpc::rq_type, static_cast<std::uint32_t>(qp_rq_type::NON_ZERO_RQ));
        context.set(qpc::log_rq_size, 15);
        context.set(qpc::cqn_rcv, 0x999);
      },
      host_.page_list(qp.ring, 4096));
  ASSERT_TRUE(out) << "pages are those of the send queue alone";
}

}  // namespace
}  // namespace softhca::connectx
