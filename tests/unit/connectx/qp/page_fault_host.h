// A host whose driver handles page faults as mlx5_ib does.
#pragma once

#include <chrono>
#include <optional>
#include <utility>

#include "connectx/memory/umr_host.h"
#include "spec/connectx/eq.h"
#include "spec/connectx/hca.h"

namespace softhca::connectx::test {

class PageFaultTest : public UmrTest {
 protected:
  using Subtype = spec::connectx::page_fault_subtype;
  using Type = spec::connectx::page_fault_type;
  using WqeData = spec::connectx::event_data_wqe_page_fault;
  using RdmaData = spec::connectx::event_data_rdma_page_fault;
  using WqeView = util::View<WqeData>;
  using RdmaView = util::View<RdmaData>;
  static constexpr std::uint64_t kPage = 4096;
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

}  // namespace softhca::connectx::test
