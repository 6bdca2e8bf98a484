// On-demand paging as mlx5_ib uses it: events, PAGE_FAULT_RESUME, and indirect keys with absent
// pieces.

#include <cstring>
#include <optional>

#include "connectx/umr_host.h"
#include "connectx/user_context_host.h"
#include "spec/connectx/dct.h"
#include "spec/connectx/eq.h"
#include "spec/connectx/hca.h"

namespace softhca::connectx::test {
namespace {

using Code = spec::connectx::command_status;
using Subtype = spec::connectx::page_fault_subtype;
using Type = spec::connectx::page_fault_type;
using WqeData = spec::connectx::event_data_wqe_page_fault;
using RdmaData = spec::connectx::event_data_rdma_page_fault;
using WqeView = util::View<WqeData>;
using RdmaView = util::View<RdmaData>;

constexpr std::uint64_t kPage = 4096;

class PageFaultTest : public UmrTest {
 protected:
  static constexpr auto kFaultBit = std::uint64_t{1}
                                    << static_cast<unsigned>(EventType::PAGE_FAULT);

  explicit PageFaultTest(unsigned log_events = 4) : log_events_(log_events) {
    eqn_ = host_.create_eq(log_events, kFaultBit, 1);
    events_ = host_.last_buffer;
  }
  struct Fault {
    Subtype subtype;
    EventData data;
    WqeView wqe() const { return WqeView(data); }
    RdmaView rdma() const { return RdmaView(data); }
  };
  /// The next event. The device may overwrite it later.
  std::optional<Fault> fault() {
    using Eqe = spec::connectx::eqe;
    host_.run();
    const auto index = consumed_ & ((1u << log_events_) - 1);
    const util::View<Eqe> event(std::span(host_.at(events_ + kEqeSize * index), kEqeSize));
    if (event.get(Eqe::owner) != (consumed_ >> log_events_ & 1)) return std::nullopt;
    EXPECT_EQ(event.get(Eqe::event_type), static_cast<unsigned>(EventType::PAGE_FAULT));
    Fault found{static_cast<Subtype>(event.get(Eqe::event_sub_type)), {}};
    std::ranges::copy(event.get(Eqe::event_data), found.data.begin());
    ++consumed_;
    host_.write32(std::uint64_t{host_.uar} * 4096 + 0x48, eqn_ << 24 | consumed_);
    return found;
  }
  Reply resume(Type type, std::uint32_t number, std::uint32_t token, bool error = false) {
    using In = spec::connectx::page_fault_resume_in;
    using Out = spec::connectx::page_fault_resume_out;
    return host_.call<Out, In>(Opcode::PAGE_FAULT_RESUME, [&](auto in) {
      in.set(In::error, error);
      in.set(In::page_fault_type, static_cast<std::uint32_t>(type));
      in.set(In::wq_number, number);
      in.set(In::token, token);
    });
  }
  /// Resumes as mlx5_ib_page_fault_resume() does.
  void resume(const Fault& fault, bool error = false) {
    const auto wqe = fault.wqe();
    const auto rdma = fault.rdma();
    const auto reply = fault.subtype == Subtype::WQE
                           ? resume(Type(wqe.get(WqeData::page_fault_type)),
                                    wqe.get(WqeData::wq_number), wqe.get(WqeData::token), error)
                           : resume(Type(rdma.get(RdmaData::page_fault_type)),
                                    rdma.get(RdmaData::token), rdma.get(RdmaData::token), error);
    EXPECT_TRUE(reply) << reply.reason();
    host_.run(std::chrono::milliseconds(10));
  }
  /// A key of 8 absent pages from kStart on.
  std::uint32_t paged_key() {
    const auto key = free_key(Mode::MTT, 4);
    expect_success(driver_, registration(driver_, key, 8 * kPage, 4).octwords_of_zero(4));
    return key;
  }
  /// Makes all of those pages present.
  pcie::Iova bring(std::uint32_t key) {
    const auto memory = host_.allocate(8 * kPage);
    auto builder = umr(driver_, key, [](ControlView c, MaskView, ContextView) {
      c.set(Control::translation_octword_actual_size, 4);
    });
    for (std::uint64_t i = 0; i != 8; i += 2) {
      builder.mtts((memory + i * kPage) | kPresent, (memory + (i + 1) * kPage) | kPresent);
    }
    expect_success(driver_, builder);
    return memory;
  }
  WqeBuilder write_to(const HostQp& qp, std::uint32_t rkey, std::uint64_t address) {
    return wqe(qp, Send::RDMA_WRITE).remote(address, rkey).data(host_.put_text("hello"), 5, kKey);
  }
  void expect_completed(std::size_t count = 1) {
    const auto cqes = completions();
    EXPECT_EQ(cqes.size(), count);
    for (const auto& cqe : cqes) {
      EXPECT_TRUE(cqe.opcode != CqeOpcode::REQUESTER_ERROR) << explain(cqe);
    }
  }

  unsigned log_events_;
  std::uint32_t eqn_ = 0;
  pcie::Iova events_ = 0;
  std::uint32_t consumed_ = 0;
  std::pair<HostQp, HostQp> driver_pair_ = host_.connected({.fre = true});
  HostQp& driver_ = driver_pair_.first;  ///< posts the driver's UMRs
};

// struct mlx5_eqe_page_fault, rdma.
TEST_F(PageFaultTest, WhatAPeerAccessesIsToldByKeyAndAddress) {
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
TEST_F(PageFaultTest, ASendWqeIsToldByItsQueueAndIndex) {
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

TEST_F(PageFaultTest, AReceiveWqeIsToldByItsQueueAndIndex) {
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

TEST_F(PageFaultTest, AWqeOfASharedQueueIsToldByThatQueue) {
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
TEST_F(FewPageFaults, ThoseThatFindTheEqFullAreToldLater) {
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

// Dynamic connections --------------------------------------------------------------------------

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

TEST_F(DcPageFaultTest, ASendWqeOfADciIsToldByItsQueue) {
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

TEST_F(DcPageFaultTest, WhatAnInitiatorAccessesIsToldByTheTarget) {
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

TEST_F(DcPageFaultTest, AReceiveOfATargetIsToldByItsSharedQueue) {
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
TEST_F(DcPageFaultTest, ATargetTellsOfOneFaultAfterTheOther) {
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
