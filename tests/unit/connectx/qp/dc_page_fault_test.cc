// On-demand paging on both sides of a dynamic connection.
#include <cstring>

#include "connectx/qp/page_fault_host.h"
#include "spec/connectx/dct.h"

namespace softhca::connectx::test {
namespace {

using Code = spec::connectx::command_status;

class DcPageFaultTest : public PageFaultTest {
 protected:
  static constexpr std::uint64_t kDcKey = 0x55;

  DcPageFaultTest() {
    using In = spec::connectx::create_dct_in;
    using Out = spec::connectx::create_dct_out;
    using Dctc = spec::connectx::dctc;
    const auto out = host_.call<Out, In>(Opcode::CREATE_DCT, [&](auto in) {
      const auto context = in.sub(In::dct_context_entry);
      context.set(Dctc::pd, host_.pd);
      context.set(Dctc::cqn, host_.cq.cqn);
      context.set(Dctc::srqn_xrqn, rmp_.rmpn);
      context.set(Dctc::dc_access_key, kDcKey);
      context.set(Dctc::rre, 1);
      context.set(Dctc::rwe, 1);
      context.set(Dctc::rae, 1);
      context.set(Dctc::atomic_mode,
                  static_cast<std::uint32_t>(spec::connectx::qp_atomic_mode::IB_SPEC));
      context.set(Dctc::min_rnr_nak, 1);
      context.set(Dctc::mtu, static_cast<std::uint32_t>(spec::connectx::qp_mtu::BYTES_1K));
      context.set(Dctc::hop_limit, 64);
    });
    EXPECT_TRUE(out) << out.reason();
    dctn_ = out.as<Out>().get(Out::dctn);
  }
  HostQp initiator() {
    auto dci = host_.create_qp({.service = Service::DCI});
    EXPECT_TRUE(host_.to_init(dci));
    EXPECT_TRUE(host_.to_rtr(dci, 0));
    EXPECT_TRUE(host_.to_rts(dci));
    return dci;
  }
  WqeBuilder to_target(const HostQp& dci, Send opcode) {
    return wqe(dci, opcode).dc(dctn_, kDcKey, host_.mac, host_.gid, 3);
  }
  WqeBuilder write_to_target(const HostQp& dci, std::uint32_t rkey, std::uint64_t address) {
    return to_target(dci, Send::RDMA_WRITE)
        .remote(address, rkey)
        .data(host_.put_text("hello"), 5, kKey);
  }

  HostRmp rmp_ = host_.create_rmp(3);
  std::uint32_t dctn_ = 0;
};

TEST_F(DcPageFaultTest, ASendWqeOfADciIsReportedByItsQueue) {
  const auto key = paged_key();
  auto dci = initiator();
  const auto to = page();
  send(dci, to_target(dci, Send::RDMA_WRITE).remote(to, kKey).data(kStart, 5, key));
  const auto event = fault();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->subtype, Subtype::WQE);
  EXPECT_EQ(event->wqe().get(WqeData::wq_number), dci.qpn);
  const auto memory = bring(key);
  std::memcpy(host_.at(memory), "paged", 5);
  resume(*event);
  expect_completed();
  EXPECT_EQ(host_.text(to, 5), "paged");
}

TEST_F(DcPageFaultTest, AFaultOfAnInitiatorsAccessNamesTheTarget) {
  const auto key = paged_key();
  auto dci = initiator();
  send(dci, write_to_target(dci, key, kStart + 0x2010));
  const auto event = fault();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->subtype, Subtype::RDMA);
  EXPECT_EQ(event->rdma().get(RdmaData::token), dctn_);
  EXPECT_EQ(event->rdma().get(RdmaData::r_key), key);
  EXPECT_TRUE(completions().empty());
  const auto memory = bring(key);
  resume(*event);
  expect_completed();
  EXPECT_EQ(host_.text(memory + 0x2010, 5), "hello");
}

TEST_F(DcPageFaultTest, AReceiveOfATargetIsReportedByItsSharedQueue) {
  const auto key = paged_key();
  auto* bytes = host_.at(rmp_.ring);
  util::store_be32(bytes + 16, 64);
  util::store_be32(bytes + 20, key);
  util::store_be64(bytes + 24, kStart);
  util::store_be32(bytes + 36, 0x100);
  util::store_be32(host_.at(rmp_.record), 1);
  auto dci = initiator();
  send(dci, to_target(dci, Send::SEND).inline_data("abc"));
  const auto event = fault();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->wqe().get(WqeData::page_fault_type), static_cast<unsigned>(Type::RMP));
  EXPECT_EQ(event->wqe().get(WqeData::wq_number), rmp_.rmpn);
  EXPECT_EQ(event->wqe().get(WqeData::token), dctn_);
  const auto memory = bring(key);
  resume(*event);
  expect_completed(2);
  EXPECT_EQ(host_.text(memory, 3), "abc");
}

// The token belongs to the target. With two open faults the driver could not tell which connection
// waits.
TEST_F(DcPageFaultTest, ATargetReportsOneFaultAfterTheOther) {
  const auto first = paged_key();
  const auto second = paged_key();
  auto a = initiator();
  auto b = initiator();
  send(a, write_to_target(a, first, kStart));
  send(b, write_to_target(b, second, kStart));
  const auto event = fault();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->rdma().get(RdmaData::r_key), first);
  host_.run(std::chrono::milliseconds(10));
  EXPECT_FALSE(fault()) << "while that one is open";
  bring(first);
  resume(*event);
  expect_completed();
  const auto next = fault();
  ASSERT_TRUE(next);
  EXPECT_EQ(next->rdma().get(RdmaData::r_key), second);
  bring(second);
  resume(*next);
  expect_completed();
}

TEST_F(DcPageFaultTest, ResumeWithErrorIsTheInitiatorsAccessError) {
  const auto key = paged_key();
  auto dci = initiator();
  send(dci, write_to_target(dci, key, kStart));
  const auto event = fault();
  ASSERT_TRUE(event);
  resume(*event, true);
  const auto cqes = completions();
  ASSERT_EQ(cqes.size(), 1u);
  EXPECT_EQ(cqes[0].syndrome, Syndrome::REMOTE_ACCESS_ERROR);
}

TEST_F(DcPageFaultTest, AConnectionThatEndsWaitsForNoPage) {
  const auto key = paged_key();
  auto dci = initiator();
  send(dci, write_to_target(dci, key, kStart));
  ASSERT_TRUE(fault());
  ASSERT_TRUE(host_.to_reset(dci));  // it sends the target a disconnect
  host_.run(std::chrono::milliseconds(1));
  auto other = initiator();
  send(other, write_to_target(other, key, kStart + kPage));
  const auto event = fault();
  ASSERT_TRUE(event) << "the target has no fault open";
  bring(key);
  resume(*event);
  expect_completed();
}

TEST_F(DcPageFaultTest, AResumeOfTheRequestersSideIsNotATargets) {
  const auto key = paged_key();
  auto dci = initiator();
  send(dci, write_to_target(dci, key, kStart));
  ASSERT_TRUE(fault());
  EXPECT_TRUE(resume(Type::REQ_SEND_OR_WRITE, dctn_, dctn_, true));
  host_.run(std::chrono::milliseconds(10));
  EXPECT_TRUE(completions().empty()) << "it still waits";
  EXPECT_EQ(resume(Type::RDMA_WRITE, dctn_ + 0x1000, dctn_ + 0x1000).status(), Code::BAD_RESOURCE);
}

}  // namespace
}  // namespace softhca::connectx::test
