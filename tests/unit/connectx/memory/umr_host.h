// A data path host for UMR tests: it adds keys that UMRs may change, and the UMRs.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "connectx/memory/memory_keys.h"
#include "connectx/qp/data_path.h"
#include "connectx/queue/wqe_fault.h"

namespace softhca::connectx::test {

/// Bits of a translation entry: the page may be read and written.
inline constexpr std::uint64_t kPresent = 3;

class UmrTest : public RdmaDataPath {
 protected:
  using Mode = spec::connectx::mkey_access_mode;
  using Context = spec::connectx::mkey_context;
  using Control = spec::connectx::wqe_umr_ctrl_segment;
  using Mask = spec::connectx::umr_mkey_mask;
  using Send = spec::connectx::wqe_opcode;
  using ControlView = util::MutableView<Control>;
  using MaskView = util::MutableView<Mask>;
  using ContextView = util::MutableView<Context>;
  using Fill = std::function<void(ControlView, MaskView, ContextView)>;

  static constexpr std::uint32_t kKey = RdmaTestHost::kKey;  ///< all memory, every right
  static constexpr std::uint64_t kStart = 0x7000'0000'0000;
  static constexpr std::uint32_t kAnyQpn = 0xFFFFFF;

  /// A free key with room for `octwords` of translations, which UMRs may change.
  std::uint32_t free_key(Mode mode, std::uint32_t octwords,
                         const std::function<void(ContextView)>& fill = {}) {
    using In = spec::connectx::create_mkey_in;
    using Out = spec::connectx::create_mkey_out;
    const auto reply =
        host_.call<Out, In>(FakeHost::Opcode::CREATE_MKEY, [&](util::MutableView<In> in) {
          const auto context = in.sub(In::mkey_context);
          context.set(Context::free, 1);
          context.set(Context::umr_en, 1);
          context.set(Context::access_mode, static_cast<std::uint32_t>(mode));
          context.set(Context::lr, 1);
          context.set(Context::qpn, kAnyQpn);
          context.set(Context::mkey, 0x11);
          context.set(Context::pd, host_.pd);
          context.set(Context::log_page_size, 12);
          context.set(Context::translations_octword_size, octwords);
          if (fill) fill(context);
        });
    EXPECT_TRUE(reply) << reply.reason();
    return reply.as<Out>().get(Out::mkey_index) << 8 | 0x11;
  }
  /// A UMR without translations.
  WqeBuilder umr(const HostQp& qp, std::uint32_t key, const Fill& fill) {
    return wqe(qp, Send::UMR).immediate(key).umr([&](ControlView c, MaskView m, ContextView k) {
      c.set(Control::inline_, 1);
      fill(c, m, k);
    });
  }
  /// A UMR that takes a key into use; `octwords` of translations follow.
  WqeBuilder registration(const HostQp& qp, std::uint32_t key, std::uint64_t length,
                          std::uint32_t octwords, const Fill& fill = {}) {
    return umr(qp, key, [&](ControlView c, MaskView m, ContextView k) {
      c.set(Control::translation_octword_actual_size, octwords);
      m.set(Mask::free, 1);
      m.set(Mask::len, 1);
      m.set(Mask::start_addr, 1);
      m.set(Mask::lw, 1);
      m.set(Mask::rr, 1);
      m.set(Mask::rw, 1);
      m.set(Mask::a, 1);
      k.set(Context::start_addr, kStart);
      k.set(Context::len, length);
      k.set(Context::lw, 1);
      k.set(Context::rr, 1);
      k.set(Context::rw, 1);
      k.set(Context::a, 1);
      if (fill) fill(c, m, k);
    });
  }
  WqeBuilder invalidation(const HostQp& qp, std::uint32_t key) {
    return umr(qp, key, [](ControlView, MaskView m, ContextView k) {
      m.set(Mask::free, 1);
      k.set(Context::free, 1);
    });
  }
  /// Posts `builder` and returns its CQE.
  HostCqe run(HostQp& qp, const WqeBuilder& builder) {
    send(qp, builder);
    host_.run();
    const auto cqes = completions();
    EXPECT_FALSE(cqes.empty());
    return cqes.empty() ? HostCqe{} : cqes[0];
  }
  void expect_success(HostQp& qp, const WqeBuilder& builder) {
    const auto cqe = run(qp, builder);
    EXPECT_EQ(cqe.opcode, CqeOpcode::REQUESTER) << explain(cqe);
  }
  /// Posts the WQE on a new QP, which ends in ERR.
  void expect_refused(const std::function<WqeBuilder(const HostQp&)>& make, WqeFault fault,
                      const QpOptions& options = {.fre = true}) {
    auto [qp, peer] = host_.connected(options);
    const auto cqe = run(qp, make(qp));
    EXPECT_EQ(cqe.opcode, CqeOpcode::REQUESTER_ERROR) << describe(fault).text;
    EXPECT_EQ(cqe.syndrome, Syndrome::MEMORY_WINDOW_BIND_ERROR) << explain(cqe);
    EXPECT_EQ(cqe.reason, static_cast<int>(fault)) << explain(cqe);
  }
  static std::string explain(const HostCqe& cqe) {
    const auto why = explain_reason(cqe.reason);
    return why ? std::string(why->text) : std::string();
  }
  /// Performs an RDMA WRITE of `text` to `address` of the key.
  HostCqe write(HostQp& qp, std::uint32_t rkey, std::uint64_t address, std::string_view text) {
    return run(qp, wqe(qp, Send::RDMA_WRITE)
                       .remote(address, rkey)
                       .data(host_.put_text(text), static_cast<std::uint32_t>(text.size()), kKey));
  }
  void expect_written(HostQp& qp, std::uint32_t rkey, std::uint64_t address,
                      std::string_view text) {
    const auto cqe = write(qp, rkey, address, text);
    EXPECT_EQ(cqe.opcode, CqeOpcode::REQUESTER) << explain(cqe);
  }
  /// Uses a new QP.
  void expect_no_access(std::uint32_t rkey, std::uint64_t address) {
    auto [qp, peer] = host_.connected();
    EXPECT_EQ(write(qp, rkey, address, "never").syndrome, Syndrome::REMOTE_ACCESS_ERROR);
  }
  pcie::Iova page() {
    const auto address = host_.allocate(4096);
    std::memset(host_.at(address), '.', 4096);
    return address;
  }
};

}  // namespace softhca::connectx::test
