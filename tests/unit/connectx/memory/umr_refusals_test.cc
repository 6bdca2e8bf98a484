// Refused UMR WQEs and their errors (PRM 10.1.1.1: "If some of the checks failed, completion with
// error is reported").

#include "connectx/memory/umr_host.h"
#include "spec/connectx/resources.h"

namespace softhca::connectx::test {
namespace {

using UmrRefusals = UmrTest;

// PRM 7.4.4.1.3: faults that do not depend on the key.
TEST_F(UmrRefusals, AMalformedWqeIsAQpOperationError) {
  const auto key = free_key(Mode::KLM, 4);
  const auto expect = [&](WqeFault fault, const auto& make) {
    auto [qp, peer] = host_.connected();
    const auto cqe = run(qp, make(qp));
    EXPECT_EQ(cqe.syndrome, Syndrome::LOCAL_QP_OPERATION_ERROR) << describe(fault).text;
    EXPECT_EQ(cqe.reason, static_cast<int>(fault)) << explain(cqe);
  };
  expect(WqeFault::kUmrShort, [&](HostQp& qp) { return invalidation(qp, key).units(7); });
  expect(WqeFault::kUmrCheckReserved, [&](HostQp& qp) {
    return umr(qp, key,
               [](ControlView c, MaskView, ContextView) { c.set(Control::check_free, 3); });
  });
  expect(WqeFault::kUmrListUnaligned,
         [&](HostQp& qp) { return registration(qp, key, 8, 3).octwords_of_zero(4); });
  expect(WqeFault::kUmrListUnaligned, [&](HostQp& qp) {
    return registration(qp, key, 8, 4,
                        [](ControlView c, MaskView, ContextView) {
                          c.set(Control::translation_offset_en, 1);
                          c.set(Control::translation_offset, 2);
                        })
        .octwords_of_zero(4);
  });
  expect(WqeFault::kUmrListMissing,
         [&](HostQp& qp) { return registration(qp, key, 8, 4).octwords_of_zero(3); });
  const auto pointed = [](ControlView c, MaskView, ContextView) { c.set(Control::inline_, 0); };
  expect(WqeFault::kUmrListMissing,
         [&](HostQp& qp) { return registration(qp, key, 8, 4, pointed); });
  // PRM 7.4.4.1.3: "the address of the UMR pointer must be aligned to 2KB".
  expect(WqeFault::kUmrPointerUnaligned, [&](HostQp& qp) {
    return registration(qp, key, 8, 4, pointed).data(page() + 1024, 64, kKey);
  });
}

TEST_F(UmrRefusals, TheKeyMustExistTakeUmrsAndHaveThePdOfTheQueue) {
  const auto key = free_key(Mode::KLM, 4);
  expect_refused([&](const HostQp& qp) { return invalidation(qp, 0x77777700); },
                 WqeFault::kUmrKeyUnknown);
  const auto fixed =
      free_key(Mode::KLM, 4, [](ContextView context) { context.set(Context::umr_en, 0); });
  expect_refused([&](const HostQp& qp) { return invalidation(qp, fixed); },
                 WqeFault::kUmrNotEnabled);
  const auto other = host_.allocate_pd();
  expect_refused([&](const HostQp& qp) { return invalidation(qp, key); }, WqeFault::kUmrOtherPd,
                 {.pd = other});
}

TEST_F(UmrRefusals, CheckFreeIsHeldToTheStateOfTheKey) {
  const auto key = free_key(Mode::KLM, 4);
  const auto check = [&](std::uint32_t value) {
    return [this, key, value](const HostQp& qp) {
      return umr(qp, key, [value](ControlView c, MaskView, ContextView) {
        c.set(Control::check_free, value);
      });
    };
  };
  expect_refused(check(2), WqeFault::kUmrFree);
  auto [a, b] = host_.connected();
  expect_success(a, check(1)(a));
  expect_success(a, registration(a, key, 8, 4).klm(8, kKey, page()).octwords_of_zero(3));
  expect_success(a, check(2)(a));
  expect_refused(check(1), WqeFault::kUmrNotFree);
}

// PRM Table 10, translations_octword_size: "Must be a multiple of 4". Linux makes keys of two pages
// with 1, and loads them with the padding that Table 33 requires.
TEST_F(UmrRefusals, RoomForTranslationsIsRoundedUp) {
  const auto key = free_key(Mode::MTT, 1);
  const auto to = page();
  auto [a, b] = host_.connected({.fre = true});
  expect_success(a, registration(a, key, 4096, 4).mtts(to | 3, 0).octwords_of_zero(3));
  expect_written(a, key, kStart, "here");
  EXPECT_EQ(host_.text(to, 4), "here");
  expect_refused(
      [&](const HostQp& qp) { return registration(qp, key, 4096, 8).octwords_of_zero(8); },
      WqeFault::kUmrListTooLong);
}

// PRM 10.1.1: "HW will block changing fields that should not be changed."
TEST_F(UmrRefusals, OnlyFieldsThatUmrMayChangeAreNamed) {
  const auto key = free_key(Mode::KLM, 4);
  const auto naming = [&](auto field) {
    return [this, key, field](const HostQp& qp) {
      return umr(qp, key, [field](ControlView, MaskView m, ContextView) { m.set(field, 1); });
    };
  };
  expect_refused(naming(Mask::bsf_en), WqeFault::kUmrMask);
  expect_refused(naming(Mask::sigerr), WqeFault::kUmrMask);
  expect_refused(naming(Mask::page_size_5), WqeFault::kUmrMask);
  // The PD decides who may use a key, so only the kernel's own queue can change it.
  expect_refused(naming(Mask::pd), WqeFault::kUmrMask);
  auto [a, b] = host_.connected({.service = Service::REG_UMR});
  expect_success(a, naming(Mask::pd)(a));
}

TEST_F(UmrRefusals, AListEndsWithTheRoomOfTheKey) {
  const auto key = free_key(Mode::KLM, 4);
  const auto at = [&](std::uint32_t offset, std::uint32_t extended, std::uint32_t octwords) {
    return [this, key, offset, extended, octwords](const HostQp& qp) {
      return umr(qp, key,
                 [&](ControlView c, MaskView, ContextView) {
                   c.set(Control::translation_octword_actual_size, octwords);
                   c.set(Control::translation_offset_en, 1);
                   c.set(Control::translation_offset, offset);
                   c.set(Control::translation_offset_47_16, extended);
                 })
          .octwords_of_zero(octwords);
    };
  };
  expect_refused(at(0, 0, 8), WqeFault::kUmrListTooLong);
  expect_refused(at(4, 0, 4), WqeFault::kUmrListTooLong);
  expect_refused(at(0, 0xFFFFFFFF, 4), WqeFault::kUmrListTooLong);
  auto [a, b] = host_.connected();
  expect_success(a, at(0, 0, 4)(a));
}

TEST_F(UmrRefusals, RangeAndPagesMustBeWhatTheAccessModeAllows) {
  const auto key = free_key(Mode::MTT, 4);
  const auto with = [&](auto bit, auto field, std::uint64_t value) {
    return [this, key, bit, field, value](const HostQp& qp) {
      return umr(qp, key, [=](ControlView, MaskView m, ContextView k) {
        m.set(bit, 1);
        using Word = decltype(k.get(field));
        k.set(field, static_cast<Word>(value));
      });
    };
  };
  expect_refused(with(Mask::log_page_size, Context::log_page_size, 11), WqeFault::kUmrPageSize);
  expect_refused(with(Mask::log_page_size, Context::log_page_size, 49), WqeFault::kUmrPageSize);
  auto [a, b] = host_.connected({.fre = true});
  expect_success(a, with(Mask::start_addr, Context::start_addr, UINT64_MAX)(a));
  expect_refused(with(Mask::len, Context::len, 2), WqeFault::kUmrRange);
  const auto pieces = free_key(Mode::KSM, 4);
  expect_refused(
      [&](const HostQp& qp) {
        return umr(qp, pieces, [](ControlView, MaskView m, ContextView k) {
          m.set(Mask::log_page_size, 1);
          k.set(Context::log_page_size, 32);
        });
      },
      WqeFault::kUmrPageSize);
}

// Page lists hold bus addresses, so a queue that may load them reaches all of the host's memory.
TEST_F(UmrRefusals, PagesAreReportedByQueuesOfTheKernelAlone) {
  const auto key = free_key(Mode::MTT, 4);
  const auto make = [&](const HostQp& qp) {
    return registration(qp, key, 64, 4).mtts(page() | 3, 0).octwords_of_zero(3);
  };
  expect_refused(make, WqeFault::kUmrPhysical, {.fre = false});
  expect_refused([&](const HostQp& qp) { return invalidation(qp, key); }, WqeFault::kUmrPhysical,
                 {.fre = false});
  auto [a, b] = host_.connected({.service = Service::REG_UMR});
  expect_success(a, make(a));
  // `fre` has no effect on a QP that a process made with its own command.
  auto [c, d] = host_.connected({.fre = true});
  auto& contexts = host_.device.driver().resources().user_contexts();
  contexts.set_owner(Owned::QP, c.qpn, *contexts.create(0));
  const auto cqe = run(c, make(c));
  EXPECT_EQ(cqe.reason, static_cast<int>(WqeFault::kUmrPhysical));
}

TEST_F(UmrRefusals, AKeyInUseHasAPd) {
  const auto key = free_key(Mode::KLM, 4);
  const auto with_pd = [&](const HostQp& qp, std::uint32_t pd) {
    return registration(qp, key, 64, 4,
                        [pd](ControlView, MaskView m, ContextView k) {
                          m.set(Mask::pd, 1);
                          k.set(Context::pd, pd);
                        })
        .klm(64, kKey, page())
        .octwords_of_zero(3);
  };
  expect_refused([&](const HostQp& qp) { return with_pd(qp, 0xABCDE); }, WqeFault::kUmrUnknownPd,
                 {.service = Service::REG_UMR});
  const auto pd = host_.allocate_pd();
  auto [a, b] = host_.connected({.service = Service::REG_UMR});
  expect_success(a, with_pd(a, pd));
  using In = spec::connectx::dealloc_pd_in;
  const auto free_pd = [&] {
    return static_cast<bool>(host_.call<spec::connectx::dealloc_pd_out, In>(
        FakeHost::Opcode::DEALLOC_PD, [&](auto in) { in.set(In::pd, pd); }));
  };
  EXPECT_FALSE(free_pd()) << "the key uses it";
  expect_success(a, invalidation(a, key));
  EXPECT_TRUE(free_pd());
}

// All keys of a function share a bounded number of translations (hardware: ICM).
TEST_F(UmrRefusals, TranslationsThatAreAllInUseEndTheUmr) {
  const auto key = free_key(Mode::KLM, 8);
  auto [a, b] = host_.connected();
  const auto load = [&](const HostQp& qp, std::uint32_t octwords) {
    return umr(qp, key,
               [&](ControlView c, MaskView, ContextView) {
                 c.set(Control::translation_octword_actual_size, octwords);
               })
        .octwords_of_zero(octwords);
  };
  auto& budget = host_.device.driver().resources().translations();
  expect_success(a, load(a, 4));
  {
    const auto rest = budget.reserve(budget.left());
    expect_success(a, load(a, 4));
    const auto cqe = run(a, load(a, 8));
    EXPECT_EQ(cqe.reason, static_cast<int>(WqeFault::kUmrNoTranslations));
  }
  auto [c, d] = host_.connected();
  expect_success(c, load(c, 8));
}

// PRM 12.5.2: QUERY_MKEY returns the current state of the key.
TEST_F(UmrRefusals, AQueryReportsWhatTheUmrHasMadeOfTheKey) {
  auto [a, b] = host_.connected();
  const auto key = free_key(Mode::KLM, 4);
  expect_success(a, registration(a, key, 0x123, 4,
                                 [](ControlView, MaskView m, ContextView k) {
                                   m.set(Mask::mkey, 1);
                                   k.set(Context::mkey, 0x22);
                                 })
                        .klm(0x123, kKey, 0xABC)
                        .octwords_of_zero(3));
  using In = spec::connectx::query_mkey_in;
  using Out = spec::connectx::query_mkey_out;
  const auto reply = host_.call<Out, In>(FakeHost::Opcode::QUERY_MKEY,
                                         [&](auto in) { in.set(In::mkey_index, key >> 8); });
  const auto context = reply.as<Out>().get(Out::mkey_context);
  EXPECT_EQ(context.get(Context::free), 0u);
  EXPECT_EQ(context.get(Context::len), 0x123u);
  EXPECT_EQ(context.get(Context::mkey), 0x22u);
  EXPECT_EQ(context.get(Context::rw), 1u);
  const util::View<spec::connectx::klm_entry> klm(reply.as<Out>().get(Out::bsf0_klm0_pas_mtt0_1));
  EXPECT_EQ(klm.get(spec::connectx::klm_entry::address), 0xABCu);
}

}  // namespace
}  // namespace softhca::connectx::test
