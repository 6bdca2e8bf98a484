// On-demand paging as mlx5_ib uses it: events, PAGE_FAULT_RESUME, and indirect keys with absent
// pieces.
#include "connectx/command/user_context_host.h"
#include "connectx/qp/page_fault_host.h"
#include "spec/connectx/hca.h"

namespace softhca::connectx::test {
namespace {

using Code = spec::connectx::command_status;

// struct mlx5_eqe_page_fault, rdma.
TEST_F(PageFaultTest, AFaultOfAPeersAccessNamesKeyAndAddress) {
  const auto key = paged_key();
  auto [a, b] = host_.connected();
  send(a, write_to(a, key, kStart + 0x2010));
  const auto event = fault();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->subtype, Subtype::RDMA);
  const auto data = event->rdma();
  EXPECT_EQ(data.get(RdmaData::r_key), key);
  EXPECT_EQ(data.get(RdmaData::rdma_va), kStart + 0x2010);
  EXPECT_EQ(data.get(RdmaData::rdma_op_len), 5u);
  EXPECT_EQ(data.get(RdmaData::packet_length), 5u);
  EXPECT_EQ(data.get(RdmaData::bytes_committed), 0u);
  EXPECT_EQ(data.get(RdmaData::page_fault_type), static_cast<unsigned>(Type::RDMA_WRITE));
  EXPECT_EQ(data.get(RdmaData::token), b.qpn);
  EXPECT_FALSE(fault()) << "told once";
  const auto memory = bring(key);
  resume(*event);
  expect_completed();
  EXPECT_EQ(host_.text(memory + 0x2010, 5), "hello");
}

TEST_F(PageFaultTest, AReadIsOfItsOwnType) {
  const auto key = paged_key();
  auto [a, b] = host_.connected();
  send(a, wqe(a, Send::RDMA_READ).remote(kStart, key).data(page(), 64, kKey));
  const auto event = fault();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->rdma().get(RdmaData::page_fault_type), static_cast<unsigned>(Type::RDMA_READ));
  bring(key);
  resume(*event);
  expect_completed();
}

// struct mlx5_eqe_page_fault, wqe.
TEST_F(PageFaultTest, ASendWqeIsReportedByItsQueueAndIndex) {
  const auto key = paged_key();
  auto [a, b] = host_.connected();
  send(a, write_to(a, kKey, page()));
  send(a, wqe(a, Send::RDMA_WRITE).remote(page(), kKey).data(kStart, 64, key));
  const auto event = fault();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->subtype, Subtype::WQE);
  const auto data = event->wqe();
  EXPECT_EQ(data.get(WqeData::page_fault_type), static_cast<unsigned>(Type::REQ_SEND_OR_WRITE));
  EXPECT_EQ(data.get(WqeData::wq_number), a.qpn);
  EXPECT_EQ(data.get(WqeData::wqe_index), 1u);
  EXPECT_EQ(data.get(WqeData::bytes_committed), 0u);
  EXPECT_EQ(completions().size(), 1u);
  bring(key);
  resume(*event);
  expect_completed();
  send(a, wqe(a, Send::RDMA_READ).remote(page(), kKey).data(kStart + 8 * kPage - 64, 64, key));
  EXPECT_FALSE(fault()) << "the page is there";
  expect_completed();
}

TEST_F(PageFaultTest, TheResultOfAReadIsOfItsOwnType) {
  const auto key = paged_key();
  auto [a, b] = host_.connected();
  send(a, wqe(a, Send::RDMA_READ).remote(page(), kKey).data(kStart, 64, key));
  const auto event = fault();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->wqe().get(WqeData::page_fault_type),
            static_cast<unsigned>(Type::REQ_READ_OR_ATOMIC));
  bring(key);
  resume(*event);
  expect_completed();
}

TEST_F(PageFaultTest, AReceiveWqeIsReportedByItsQueueAndIndex) {
  const auto key = paged_key();
  auto [a, b] = host_.connected();
  host_.post_receive(b, page(), 64);
  host_.post_receive(b, kStart, 64);
  util::store_be32(host_.at(b.ring + 64 + 4), key);
  for (int i = 0; i != 2; ++i) send(a, wqe(a, Send::SEND).inline_data("abc"));
  const auto event = fault();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->subtype, Subtype::WQE);
  const auto data = event->wqe();
  EXPECT_EQ(data.get(WqeData::page_fault_type), static_cast<unsigned>(Type::RESP));
  EXPECT_EQ(data.get(WqeData::wq_number), b.qpn);
  EXPECT_EQ(data.get(WqeData::wqe_index), 1u);
  EXPECT_EQ(data.get(WqeData::packet_length), 3u);
  EXPECT_EQ(completions().size(), 2u);
  const auto memory = bring(key);
  resume(*event);
  expect_completed(2);
  EXPECT_EQ(host_.text(memory, 3), "abc");
}

TEST_F(PageFaultTest, AWqeOfASharedQueueIsReportedByThatQueue) {
  const auto key = paged_key();
  const auto rmp = host_.create_rmp(3);
  auto [a, b] = host_.connected({.srqn = rmp.rmpn});
  auto* bytes = host_.at(rmp.ring);
  util::store_be32(bytes + 16, 64);
  util::store_be32(bytes + 20, key);
  util::store_be64(bytes + 24, kStart);
  util::store_be32(bytes + 36, 0x100);
  util::store_be32(host_.at(rmp.record), 1);
  send(a, wqe(a, Send::SEND).inline_data("abc"));
  const auto event = fault();
  ASSERT_TRUE(event);
  const auto data = event->wqe();
  EXPECT_EQ(data.get(WqeData::page_fault_type), static_cast<unsigned>(Type::RMP));
  EXPECT_EQ(data.get(WqeData::wq_number), rmp.rmpn);
  EXPECT_EQ(data.get(WqeData::wqe_index), 0u);
  EXPECT_EQ(data.get(WqeData::token), b.qpn);
  const auto memory = bring(key);
  resume(*event);
  expect_completed(2);
  EXPECT_EQ(host_.text(memory, 3), "abc");
}

TEST_F(PageFaultTest, ResumeWithErrorEndsTheRequest) {
  const auto key = paged_key();
  auto [a, b] = host_.connected();
  send(a, wqe(a, Send::RDMA_WRITE).remote(page(), kKey).data(kStart, 64, key));
  auto event = fault();
  ASSERT_TRUE(event);
  resume(*event, true);
  auto cqes = completions();
  ASSERT_EQ(cqes.size(), 1u);
  EXPECT_EQ(cqes[0].syndrome, Syndrome::LOCAL_PROTECTION_ERROR);
  auto [c, d] = host_.connected();
  send(c, write_to(c, key, kStart));
  event = fault();
  ASSERT_TRUE(event);
  resume(*event, true);
  cqes = completions();
  ASSERT_EQ(cqes.size(), 1u);
  EXPECT_EQ(cqes[0].syndrome, Syndrome::REMOTE_ACCESS_ERROR);
}

TEST_F(PageFaultTest, AKeyMayGoWhileQpsWaitForItsPages) {
  const auto key = paged_key();
  auto [a, b] = host_.connected();
  auto [c, d] = host_.connected();
  send(a, wqe(a, Send::RDMA_WRITE).remote(page(), kKey).data(kStart, 64, key));
  send(c, write_to(c, key, kStart));
  const auto first = fault();
  const auto second = fault();
  ASSERT_TRUE(first && second);
  using In = spec::connectx::destroy_mkey_in;
  EXPECT_TRUE((host_.call<spec::connectx::destroy_mkey_out, In>(
      Opcode::DESTROY_MKEY, [&](auto in) { in.set(In::mkey_index, key >> 8); })));
  resume(*first);
  resume(*second);
  const auto cqes = completions();
  ASSERT_EQ(cqes.size(), 2u);
  EXPECT_EQ(cqes[0].syndrome, Syndrome::LOCAL_PROTECTION_ERROR);
  EXPECT_EQ(cqes[1].syndrome, Syndrome::REMOTE_ACCESS_ERROR);
}

TEST_F(PageFaultTest, ResumeNamesAnOpenFaultOrNothing) {
  auto [a, b] = host_.connected();
  EXPECT_EQ(resume(Type(5), a.qpn, a.qpn).status(), Code::BAD_PARAM);
  EXPECT_EQ(resume(Type(7), a.qpn, a.qpn).status(), Code::BAD_PARAM);
  EXPECT_EQ(resume(Type::RESP, a.qpn, 0xFFFFFF).status(), Code::BAD_RESOURCE);
  EXPECT_EQ(resume(Type::RESP, b.qpn, a.qpn).status(), Code::BAD_RESOURCE);
  EXPECT_EQ(resume(Type::RMP, a.qpn, a.qpn).status(), Code::BAD_RESOURCE);
  // A driver may resume after it has changed the QP's state.
  const auto key = paged_key();
  send(a, write_to(a, key, kStart));
  const auto event = fault();
  ASSERT_TRUE(event);
  EXPECT_TRUE(host_.to_reset(b));
  resume(*event, true);
  EXPECT_EQ(host_.query_state(b), state(spec::connectx::qp_state::RST));
}

TEST_F(PageFaultTest, AProcessResumesNothing) {
  host_.uid = create_uctx(host_);
  Input<spec::connectx::page_fault_resume_in> in(Opcode::PAGE_FAULT_RESUME);
  EXPECT_FALSE(host_.execute<spec::connectx::page_fault_resume_out>(in));
  host_.uid = 0;
}

// A key that no UMR can change has no pages that could arrive later.
TEST_F(PageFaultTest, AKeyWithoutUmrHasNoPagesToComeYet) {
  using In = spec::connectx::create_mkey_in;
  using Out = spec::connectx::create_mkey_out;
  std::vector<std::byte> list(16);
  util::store_be64(list.data(), page() | 1);
  const auto reply = host_.call<Out, In>(
      Opcode::CREATE_MKEY,
      [&](auto in) {
        in.set(In::pg_access, 1);
        in.set(In::translations_octword_actual_size, 1);
        const auto context = in.sub(In::mkey_context);
        context.set(Context::access_mode, static_cast<std::uint32_t>(Mode::MTT));
        context.set(Context::lr, 1);
        context.set(Context::rw, 1);
        context.set(Context::lw, 1);
        context.set(Context::qpn, kAnyQpn);
        context.set(Context::pd, host_.pd);
        context.set(Context::len, kPage);
        context.set(Context::log_page_size, 12);
        context.set(Context::translations_octword_size, 1);
      },
      list);
  ASSERT_TRUE(reply) << reply.reason();
  expect_no_access(reply.as<Out>().get(Out::mkey_index) << 8, 0);
  EXPECT_FALSE(fault());
}

// mlx5_ib_alloc_implicit_mr(): a list of children. A child with the null key has not been made yet.
TEST_F(PageFaultTest, AnImplicitKeyHasItsChildrenWhenTheyAreNeeded) {
  using In = spec::connectx::query_special_contexts_in;
  using Out = spec::connectx::query_special_contexts_out;
  Input<In> in(Opcode::QUERY_SPECIAL_CONTEXTS);
  const auto null_key = host_.execute<Out>(in).as<Out>().get(Out::null_mkey);
  EXPECT_EQ(null_key, MemoryKeys::kNullKey);
  const auto whole_space = [](ControlView, MaskView m, ContextView k) {
    m.set(Mask::log_page_size, 1);
    k.set(Context::length64, 1);
    k.set(Context::lr, 1);
  };
  constexpr unsigned kLogChild = 30;
  const auto key = free_key(Mode::KSM, 8);
  auto list = registration(driver_, key, 0, 4, [&](ControlView c, MaskView m, ContextView k) {
    whole_space(c, m, k);
    k.set(Context::start_addr, 0);
    k.set(Context::log_page_size, kLogChild);
  });
  for (int i = 0; i != 4; ++i) list.klm(0, null_key, 0);
  expect_success(driver_, list);
  auto [a, b] = host_.connected();
  constexpr auto kAddress = (std::uint64_t{2} << kLogChild) + 0x3010;
  send(a, write_to(a, key, kAddress));
  auto event = fault();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->rdma().get(RdmaData::r_key), key);
  EXPECT_EQ(event->rdma().get(RdmaData::rdma_va), kAddress);
  const auto child = free_key(Mode::MTT, 4);
  constexpr auto kChild = std::uint64_t{2} << kLogChild;
  expect_success(driver_,
                 registration(driver_, child, 0, 4, [&](ControlView c, MaskView m, ContextView k) {
                   whole_space(c, m, k);
                   k.set(Context::start_addr, kChild);
                   k.set(Context::log_page_size, 12);
                 }).octwords_of_zero(4));
  const auto memory = bring(child);
  auto link = umr(driver_, key, [](ControlView c, MaskView, ContextView) {
    c.set(Control::translation_octword_actual_size, 4);
  });
  for (std::uint64_t i = 0; i != 4; ++i) {
    link.klm(0, i == 2 ? child : null_key, i == 2 ? kChild : 0);
  }
  expect_success(driver_, link);
  resume(*event);
  expect_completed();
  EXPECT_EQ(host_.text(memory + 0x3010, 5), "hello");
  // An address after the child's pages.
  send(a, write_to(a, key, kChild + 8 * kPage));
  event = fault();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->rdma().get(RdmaData::rdma_va), kChild + 8 * kPage);
  resume(*event, true);
  EXPECT_EQ(completions().at(0).syndrome, Syndrome::REMOTE_ACCESS_ERROR);
}

TEST_F(PageFaultTest, TheNullKeyItselfGivesNoAccess) {
  expect_no_access(MemoryKeys::kNullKey, 0);
  EXPECT_FALSE(fault());
}

class FewPageFaults : public PageFaultTest {
 protected:
  FewPageFaults() : PageFaultTest(1) {}
};

// An event lost to a full EQ would never be answered, so it is reported later.
TEST_F(FewPageFaults, ThoseThatFindTheEqFullAreReportedLater) {
  const auto key = paged_key();
  std::vector<std::pair<HostQp, HostQp>> pairs;
  for (int i = 0; i != 5; ++i) pairs.push_back(host_.connected());
  for (auto& [a, b] : pairs) {
    send(a, wqe(a, Send::RDMA_WRITE).remote(page(), kKey).data(kStart, 64, key));
  }
  std::vector<Fault> faults;
  for (int i = 0; i != 20; ++i) {
    host_.run(std::chrono::milliseconds(5));
    if (auto event = fault()) faults.push_back(*event);
  }
  EXPECT_EQ(faults.size(), 5u);
  EXPECT_FALSE(host_.poll_event()) << "nothing was lost";
  bring(key);
  for (const auto& event : faults) resume(event);
  expect_completed(5);
}

}  // namespace
}  // namespace softhca::connectx::test
