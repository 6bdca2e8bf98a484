// Dynamic connections (mlx5 driver interface 7.10): DCTs and their commands, DCIs whose WQEs name
// target and key, completions of both.
#include "spec/connectx/dct.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>

#include "connectx/command/user_context_host.h"
#include "connectx/qp/data_path.h"
#include "spec/connectx/hca.h"
#include "spec/connectx/resources.h"
#include "util/endian.h"

namespace softhca::connectx {
namespace {

using namespace spec::connectx;
using namespace std::chrono_literals;
using test::EventType;
using test::HostQp;
using test::HostRmp;
using test::kKey;
using test::RdmaDataPath;
using test::RdmaTestHost;
using Command_ = command_opcode;
using Wqe = wqe_opcode;
using Status = command_status;

constexpr std::uint64_t kDcKey = 0x1122'3344'5566'7788;

class RdmaDct : public RdmaDataPath {
 protected:
  static constexpr unsigned kCount = 8;
  using Fill = std::function<void(util::MutableView<dctc>)>;

  RdmaDct() {
    receive_cq_ = host_.create_cq(4);
    srq_ = host_.create_rmp(3);
    buffers_ = host_.allocate(kCount * 64);
    for (unsigned i = 0; i < kCount; ++i) {
      auto* wqe = host_.at(srq_.ring + 64 * i);
      util::store_be32(wqe, (i + 1) % kCount);
      util::store_be32(wqe + 16, 64);
      util::store_be32(wqe + 20, kKey);
      util::store_be64(wqe + 24, buffers_ + 64 * i);
      util::store_be32(wqe + 36, 0x100);
    }
    dctn_ = create_dct();
    dci_ = host_.create_qp({.service = test::Service::DCI});
    EXPECT_TRUE(host_.to_init(dci_));
    EXPECT_TRUE(host_.to_rtr(dci_, 0));
    EXPECT_TRUE(host_.to_rts(dci_));
  }

  Reply try_create_dct(const Fill& change = {}) {
    return host_.call<create_dct_out, create_dct_in>(Command_::CREATE_DCT, [&](auto in) {
      const auto context = in.sub(create_dct_in::dct_context_entry);
      context.set(dctc::pd, host_.pd);
      context.set(dctc::cqn, receive_cq_.cqn);
      context.set(dctc::srqn_xrqn, srq_.rmpn);
      context.set(dctc::dc_access_key, kDcKey);
      context.set(dctc::user_index, 0x77);
      context.set(dctc::rre, 1);
      context.set(dctc::rwe, 1);
      context.set(dctc::rae, 1);
      context.set(dctc::atomic_mode, static_cast<std::uint32_t>(qp_atomic_mode::UP_TO_8B));
      context.set(dctc::min_rnr_nak, 1);
      context.set(dctc::mtu, static_cast<std::uint32_t>(qp_mtu::BYTES_1K));
      context.set(dctc::port, 1);
      context.set(dctc::hop_limit, 64);
      if (change) change(context);
    });
  }
  std::uint32_t create_dct(const Fill& change = {}) {
    const auto out = try_create_dct(change);
    EXPECT_TRUE(out) << out.reason();
    return out ? out.as<create_dct_out>().get(create_dct_out::dctn) : 0;
  }
  Status drain(std::uint32_t dctn) {
    return host_
        .call<drain_dct_out, drain_dct_in>(Command_::DRAIN_DCT,
                                           [&](auto in) { in.set(drain_dct_in::dctn, dctn); })
        .status();
  }
  Status destroy(std::uint32_t dctn) {
    return host_
        .call<destroy_dct_out, destroy_dct_in>(Command_::DESTROY_DCT,
                                               [&](auto in) { in.set(destroy_dct_in::dctn, dctn); })
        .status();
  }
  Status arm(std::uint32_t dctn) {
    using In = arm_dct_for_key_violation_in;
    return host_
        .call<arm_dct_for_key_violation_out, In>(Command_::ARM_DCT_FOR_KEY_VIOLATION,
                                                 [&](auto in) { in.set(In::dct_number, dctn); })
        .status();
  }
  Reply query(std::uint32_t dctn) {
    return host_.call<query_dct_out, query_dct_in>(
        Command_::QUERY_DCT, [&](auto in) { in.set(query_dct_in::dctn, dctn); });
  }
  /// A field of the context as QUERY_DCT returns it.
  template <class Field>
  std::uint64_t queried(Field field) {
    const auto out = query(dctn_);
    EXPECT_TRUE(out) << out.reason();
    return out.as<query_dct_out>().get(query_dct_out::dct_context_entry).get(field);
  }
  void post_receives(std::uint16_t producer) { util::store_be32(host_.at(srq_.record), producer); }
  test::WqeBuilder to(std::uint32_t dctn, Wqe opcode, std::uint64_t key = kDcKey) {
    return wqe(dci_, opcode).dc(dctn, key, host_.mac, host_.gid, 3);
  }
  /// The DCT numbers of all events of a type.
  std::vector<std::uint32_t> events_of(EventType type) {
    std::vector<std::uint32_t> numbers;
    while (const auto event = host_.poll_event()) {
      if (event->type == type) numbers.push_back(event->number);
    }
    return numbers;
  }

  HostCq receive_cq_;
  HostRmp srq_;
  pcie::Iova buffers_ = 0;
  std::uint32_t dctn_ = 0;
  HostQp dci_;
};

TEST_F(RdmaDct, ASendTakesAReceiveOfTheDctsSrqAndCompletesInItsCq) {
  post_receives(2);
  send(dci_, to(dctn_, Wqe::SEND).inline_data("dynamically"));
  send(dci_, to(dctn_, Wqe::SEND_IMM).immediate(0x1234).inline_data("connected"));
  host_.run();
  const auto received = host_.poll_all(receive_cq_);
  ASSERT_EQ(received.size(), 2u);
  EXPECT_EQ(received[0].opcode, cqe_opcode::RESPONDER_SEND);
  EXPECT_EQ(received[0].qpn, dctn_);
  EXPECT_EQ(received[0].user_index, 0x77u);
  EXPECT_EQ(received[0].byte_count, 11u);
  EXPECT_EQ(host_.text(buffers_, 11), "dynamically");
  EXPECT_EQ(received[1].opcode, cqe_opcode::RESPONDER_SEND_WITH_IMMEDIATE);
  EXPECT_EQ(received[1].immediate, 0x1234u);
  EXPECT_EQ(received[1].wqe_counter, 1u);
  const auto sent = completions();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].opcode, cqe_opcode::REQUESTER);
  EXPECT_EQ(sent[0].qpn, dci_.qpn);
}

TEST_F(RdmaDct, DriversOfCqeVersion0FindTheSrqInTheCqe) {
  const auto dctn = create_dct([](auto c) { c.set(dctc::user_index, kNoUserIndex); });
  post_receives(1);
  send(dci_, to(dctn, Wqe::SEND).inline_data("x"));
  host_.run();
  const auto received = host_.poll_all(receive_cq_);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].user_index, srq_.rmpn);
}

TEST_F(RdmaDct, WriteReadAndAtomicReachTheMemoryOfItsPd) {
  const auto memory = host_.allocate(4096);
  const auto local = host_.put_text("written by a DCI");
  const auto back = host_.allocate(64);
  send(dci_, to(dctn_, Wqe::RDMA_WRITE).remote(memory, kKey).data(local, 16, kKey));
  send(dci_, to(dctn_, Wqe::RDMA_READ).remote(memory, kKey).data(back, 16, kKey));
  send(dci_,
       to(dctn_, Wqe::ATOMIC_FA).remote(memory + 64, kKey).atomic(5, 0).data(back + 32, 8, kKey));
  host_.run();
  const auto sent = completions();
  ASSERT_EQ(sent.size(), 3u);
  for (const auto& cqe : sent) EXPECT_EQ(cqe.opcode, cqe_opcode::REQUESTER);
  EXPECT_EQ(host_.text(back, 16), "written by a DCI");
  std::uint64_t counter = 0;  // in host order
  std::memcpy(&counter, host_.at(memory + 64), sizeof counter);
  EXPECT_EQ(counter, 5u);
}

TEST_F(RdmaDct, TakesNoAtomicsWithoutAnAtomicMode) {
  const auto target = create_dct([](auto context) { context.set(dctc::atomic_mode, 0); });
  const auto memory = host_.allocate(64);
  send(dci_, to(target, Wqe::ATOMIC_FA).remote(memory, kKey).atomic(5, 0).data(memory, 8, kKey));
  host_.run();
  EXPECT_EQ(completions().at(0).syndrome, cqe_syndrome::REMOTE_INVALID_REQUEST_ERROR);
}

TEST_F(RdmaDct, TakesNoMaskedAtomicsInTheModeOfInfiniBand) {
  const auto target = create_dct([](auto context) {
    context.set(dctc::atomic_mode, static_cast<std::uint32_t>(qp_atomic_mode::IB_SPEC));
  });
  const auto memory = host_.allocate(64);
  const auto masked = [&](std::uint32_t dctn) {
    send(dci_, to(dctn, Wqe::ATOMIC_MASKED_FA)
                   .remote(memory, kKey)
                   .masked(8, {5, 0})
                   .data(memory + 8, 8, kKey));
    host_.run();
    return completions().at(0);
  };
  EXPECT_EQ(masked(dctn_).opcode, cqe_opcode::REQUESTER);
  EXPECT_EQ(masked(target).syndrome, cqe_syndrome::REMOTE_INVALID_REQUEST_ERROR);
}

TEST_F(RdmaDct, EachWqeNamesItsTarget) {
  const auto second = create_dct([](auto c) {
    c.set(dctc::user_index, 0x88);
    c.set(dctc::dc_access_key, kDcKey + 1);
  });
  post_receives(3);
  send(dci_, to(dctn_, Wqe::SEND).inline_data("a"));
  send(dci_, to(second, Wqe::SEND, kDcKey + 1).inline_data("b"));
  send(dci_, to(dctn_, Wqe::SEND).inline_data("c"));
  host_.run();
  std::vector<std::uint32_t> users;
  for (const auto& cqe : host_.poll_all(receive_cq_)) users.push_back(cqe.user_index);
  EXPECT_THAT(users, ::testing::ElementsAre(0x77, 0x88, 0x77));
  EXPECT_EQ(host_.text(buffers_ + 128, 1), "c");
}

TEST_F(RdmaDct, AWrongKeyIsCountedAndReportedOnceWhenTheDctIsArmed) {
  send(dci_, to(dctn_, Wqe::SEND, kDcKey ^ 1).inline_data("no"));
  host_.run(2s);
  auto sent = completions();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].syndrome, cqe_syndrome::TRANSPORT_RETRY_COUNTER_EXCEEDED);
  EXPECT_EQ(host_.query_state(dci_), state(qp_state::ERR));
  const auto before = queried(dctc::dc_access_key_violation_count);
  EXPECT_GE(before, 8u) << "seven retries";
  EXPECT_TRUE(events_of(EventType::DCT_ACCESS_KEY_VIOLATION).empty()) << "not armed yet";

  EXPECT_EQ(arm(dctn_), Status::OK);
  EXPECT_TRUE(host_.to_reset(dci_));
  EXPECT_TRUE(host_.to_init(dci_));
  EXPECT_TRUE(host_.to_rtr(dci_, 0));
  EXPECT_TRUE(host_.to_rts(dci_));
  send(dci_, to(dctn_, Wqe::SEND, kDcKey ^ std::uint64_t{1} << 63).inline_data("no"));
  host_.run(2s);
  EXPECT_THAT(events_of(EventType::DCT_ACCESS_KEY_VIOLATION), ::testing::ElementsAre(dctn_));
  EXPECT_GT(queried(dctc::dc_access_key_violation_count), before);
}

// UCX cancels the operations of a DevX DCI this way. The record keeps its old counter until the
// next post, and the ring is zeroed.
TEST_F(RdmaDct, ADciThatIsUsedAgainTakesNothingFromItsOldRecord) {
  for (int life = 0; life != 3; ++life) {
    post_receives(static_cast<std::uint16_t>(3 * life + 3));
    for (std::uint16_t i = 0; i != 3; ++i) {
      const auto index = dci_.send_producer;
      send(dci_, to(dctn_, Wqe::SEND).inline_data("hello"));
      host_.run();
      const auto sent = completions();
      ASSERT_EQ(sent.size(), 1u) << life;
      EXPECT_EQ(sent[0].opcode, cqe_opcode::REQUESTER);
      EXPECT_EQ(sent[0].wqe_counter, index);
    }
    ASSERT_TRUE(host_.to_error(dci_));
    send(dci_, to(dctn_, Wqe::NOP));
    host_.run();
    const auto flushed = completions();
    ASSERT_EQ(flushed.size(), 1u) << life;
    EXPECT_EQ(flushed[0].syndrome, cqe_syndrome::WORK_REQUEST_FLUSHED_ERROR);
    ASSERT_TRUE(host_.to_reset(dci_));
    std::memset(host_.at(dci_.ring + dci_.send_offset()), 0, std::size_t{64} << 5);
    ASSERT_TRUE(host_.to_init(dci_) && host_.to_rtr(dci_, 0) && host_.to_rts(dci_));
    host_.run(2ms);
    EXPECT_TRUE(completions().empty());
    EXPECT_EQ(host_.query_state(dci_), state(qp_state::RTS));
  }
  // In ERR, too, nothing completes before a new post.
  ASSERT_TRUE(host_.to_error(dci_));
  host_.run(2ms);
  EXPECT_TRUE(completions().empty());
}

TEST_F(RdmaDct, AWqeWithoutAnAddressVectorIsMalformed) {
  send(dci_, wqe(dci_, Wqe::SEND));
  host_.run();
  const auto sent = completions();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].syndrome, cqe_syndrome::LOCAL_QP_OPERATION_ERROR);
}

TEST_F(RdmaDct, ReportsItsContext) {
  EXPECT_EQ(queried(dctc::state), static_cast<std::uint32_t>(dct_state::ACTIVE));
  EXPECT_EQ(queried(dctc::dc_access_key), kDcKey);
  EXPECT_EQ(queried(dctc::mtu), static_cast<std::uint32_t>(qp_mtu::BYTES_1K));
  EXPECT_EQ(queried(dctc::min_rnr_nak), 1u);
  EXPECT_EQ(queried(dctc::hop_limit), 64u);
  EXPECT_EQ(queried(dctc::port), 1u);
}

// Drivers drain, wait for the event, and destroy.
TEST_F(RdmaDct, IsDestroyedWhenItIsDrainedAndNotBefore) {
  post_receives(1);
  send(dci_, to(dctn_, Wqe::SEND).inline_data("x"));
  host_.run();
  EXPECT_EQ(destroy(dctn_), Status::BAD_RES_STATE);
  EXPECT_EQ(drain(dctn_), Status::OK);
  EXPECT_THAT(events_of(EventType::DCT_DRAINED), ::testing::ElementsAre(dctn_));
  EXPECT_EQ(queried(dctc::state), static_cast<std::uint32_t>(dct_state::DRAINED));
  EXPECT_EQ(drain(dctn_), Status::OK);
  EXPECT_THAT(events_of(EventType::DCT_DRAINED), ::testing::ElementsAre(dctn_))
      << "whoever drains waits for it";
  EXPECT_EQ(destroy(dctn_), Status::OK);
  EXPECT_EQ(destroy(dctn_), Status::BAD_RESOURCE);
  EXPECT_EQ(drain(dctn_), Status::BAD_RESOURCE);
  EXPECT_EQ(arm(dctn_), Status::BAD_RESOURCE);
  EXPECT_EQ(query(dctn_).status(), Status::BAD_RESOURCE);
}

TEST_F(RdmaDct, ObjectsThatItRefersToMustExistAndStayInUse) {
  const std::pair<Fill, Status> cases[] = {
      {[](auto c) { c.set(dctc::pd, 0xFFFF); }, Status::BAD_RESOURCE},
      {[](auto c) { c.set(dctc::cqn, 0xFFFF); }, Status::BAD_RESOURCE},
      {[](auto c) { c.set(dctc::srqn_xrqn, 0xFFFF); }, Status::BAD_RESOURCE},
      {[](auto c) { c.set(dctc::mtu, 0); }, Status::BAD_PARAM},
      {[](auto c) { c.set(dctc::mtu, 6); }, Status::BAD_PARAM},
      {[](auto c) { c.set(dctc::port, 2); }, Status::BAD_PARAM},
      {[](auto c) { c.set(dctc::pkey_index, 128); }, Status::BAD_INDEX},
  };
  for (const auto& [change, status] : cases) EXPECT_EQ(try_create_dct(change).status(), status);
  const auto destroy_srq = [&] {
    return host_
        .call<destroy_rmp_out, destroy_rmp_in>(
            Command_::DESTROY_RMP, [&](auto in) { in.set(destroy_rmp_in::rmpn, srq_.rmpn); })
        .status();
  };
  EXPECT_EQ(destroy_srq(), Status::BAD_RES_STATE);
  EXPECT_EQ(drain(dctn_), Status::OK);
  EXPECT_EQ(destroy(dctn_), Status::OK);
  EXPECT_EQ(destroy_srq(), Status::OK);
}

// Only entry 0 of the table of P_Keys has one.
TEST_F(RdmaDct, ATargetWithAnEmptyPkeyIsOfNoPartition) {
  const auto dctn = create_dct([](auto context) { context.set(dctc::pkey_index, 127); });
  post_receives(1);
  send(dci_, to(dctn, Wqe::SEND).inline_data("x"));
  host_.run();
  EXPECT_EQ(host_.device.driver().rdma().counters().dropped_for(rdma::Drop::kPkey), 1u);
  EXPECT_TRUE(host_.poll_all(receive_cq_).empty());
}

TEST_F(RdmaDct, BelongsToTheContextThatMadeIt) {
  const auto user = create_uctx(host_);
  const auto other = create_uctx(host_);
  {
    const As as(host_, user);
    EXPECT_EQ(try_create_dct().status(), Status::BAD_RESOURCE) << "of PD, CQ and SRQ of the kernel";
    EXPECT_EQ(query(dctn_).status(), Status::BAD_RESOURCE);
    EXPECT_EQ(drain(dctn_), Status::BAD_RESOURCE);
  }
  const As as(host_, other);
  EXPECT_EQ(arm(dctn_), Status::BAD_RESOURCE);
  EXPECT_EQ(destroy(dctn_), Status::BAD_RESOURCE);
}

TEST_F(RdmaDct, CountsInNoSetOfAnotherContext) {
  const auto user = create_uctx(host_);
  const auto own = allocate_q_counter(host_, user);
  const auto foreign = allocate_q_counter(host_, create_uctx(host_));
  const As as(host_, user);
  host_.pd = host_.allocate_pd();
  receive_cq_ = host_.create_cq(4);
  srq_ = host_.create_rmp(3);
  for (const auto set : {foreign, own}) {
    const auto reply =
        try_create_dct([set](auto context) { context.set(dctc::counter_set_id, set); });
    EXPECT_EQ(reply.status(), set == foreign ? Status::BAD_RESOURCE : Status::OK);
  }
}

TEST_F(RdmaDct, GoesWithTheDriver) {
  post_receives(1);
  send(dci_, to(dctn_, Wqe::SEND).inline_data("x"));
  host_.run();
  EXPECT_EQ(host_.device.driver().rdma().dcts().all().count(), 1u);
  Input<teardown_hca_in> in(Command_::TEARDOWN_HCA);
  ASSERT_TRUE((host_.execute<teardown_hca_out>(in)));
  host_.run(1ms);
  EXPECT_FALSE(host_.device.driver().has_remains());
  EXPECT_EQ(host_.device.driver().rdma().dcts().all().count(), 0u);
}

}  // namespace
}  // namespace softhca::connectx
