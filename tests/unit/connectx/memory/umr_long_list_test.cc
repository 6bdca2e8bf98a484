// UMRs with long lists (PRM 7.4.4.1.3) take many turns. Each turn does its share, and no other work
// waits longer.

#include <string>

#include "connectx/memory/umr_host.h"
#include "spec/connectx/opcodes.h"

namespace softhca::connectx::test {
namespace {

/// Work that a step may do beyond the budget of a turn.
constexpr std::int64_t kListBeyond = 25'000;
/// The longest list of a UMR, apart from alignment.
constexpr std::uint32_t kOctwordsMax = 65532;

class LongUmr : public UmrTest {
 protected:
  /// Runs the device until it completes something, and returns the number of turns. Checks that
  /// each ends in time.
  unsigned turns() {
    unsigned turns = 0;
    for (ended_.clear(); ended_.empty() && turns < 10'000; ++turns) {
      turn();
      ended_ = completions();
    }
    return turns;
  }
  void turn() {
    const auto before = host_.device.work_done();
    host_.device.run(host_.now, kTurn);
    EXPECT_LE(host_.device.work_done() - before, kTurn + kListBeyond);
  }
  void expect_end(WqeFault fault) {
    ASSERT_EQ(ended_.size(), 1u);
    EXPECT_EQ(ended_[0].opcode, CqeOpcode::REQUESTER_ERROR);
    EXPECT_EQ(ended_[0].reason, static_cast<int>(fault)) << explain(ended_[0]);
  }
  void expect_success() {
    ASSERT_EQ(ended_.size(), 1u);
    EXPECT_EQ(ended_[0].opcode, CqeOpcode::REQUESTER) << explain(ended_[0]);
  }
  WqeBuilder by_pointer(const HostQp& qp, std::uint32_t key, std::uint64_t length, pcie::Iova list,
                        std::uint32_t octwords = kOctwordsMax, const Fill& fill = {}) {
    return registration(qp, key, length, octwords,
                        [&](ControlView c, MaskView m, ContextView k) {
                          c.set(Control::inline_, 0);
                          if (fill) fill(c, m, k);
                        })
        .data(list, octwords * 16, kKey);
  }
  /// Fills in a UMR of the last `octwords` that the key has room for.
  static Fill at_end_of_key(std::uint32_t octwords) {
    return [octwords](ControlView c, MaskView, ContextView) {
      c.set(Control::translation_offset_en, 1);
      c.set(Control::translation_offset, kOctwordsMax - octwords);
    };
  }
  /// A page list that points to `one`, and in its last entry to `two`.
  pcie::Iova pages(pcie::Iova one, pcie::Iova two) {
    const auto list = host_.allocate(std::size_t{kOctwordsMax} * 16, 4096);
    for (std::uint32_t i = 0; i != 2 * kOctwordsMax; ++i) {
      const auto last = i == 2 * kOctwordsMax - 1;
      util::store_be64(host_.at(list + 8 * i), (last ? two : one) | kPresent);
    }
    return list;
  }
  /// A list of one-byte keys, all at `one`.
  pcie::Iova keys(pcie::Iova one) {
    using Klm = spec::connectx::klm_entry;
    const auto list = host_.allocate(std::size_t{kOctwordsMax} * 16, 4096);
    for (std::uint32_t i = 0; i != kOctwordsMax; ++i) {
      const util::MutableView<Klm> klm(std::span(host_.at(list + 16 * i), Klm::kSize));
      klm.set(Klm::byte_count, 1);
      klm.set(Klm::mkey, kKey);
      klm.set(Klm::address, one + i % 16);
    }
    return list;
  }
  /// A list of pieces of one size, all at `one`.
  pcie::Iova pieces(pcie::Iova one) {
    using Ksm = spec::connectx::ksm_entry;
    const auto list = host_.allocate(std::size_t{kOctwordsMax} * 16, 4096);
    for (std::uint32_t i = 0; i != kOctwordsMax; ++i) {
      const util::MutableView<Ksm> entry(std::span(host_.at(list + 16 * i), Ksm::kSize));
      entry.set(Ksm::mkey, kKey);
      entry.set(Ksm::address, one);
    }
    return list;
  }
  void post(HostQp& qp, const WqeBuilder& wqe) {
    host_.post_send(qp, wqe.bytes());
    host_.ring_send(qp);
  }

  std::vector<HostCqe> ended_;
};

constexpr std::uint64_t kLastPage = 4096 * (2 * std::uint64_t{kOctwordsMax} - 1);
constexpr std::uint64_t kLastPiece = 4096 * (std::uint64_t{kOctwordsMax} - 1);

TEST_F(LongUmr, AListOfPagesIsLoadedTurnByTurn) {
  auto [a, b] = host_.connected({.fre = true});
  const auto key = free_key(Mode::MTT, kOctwordsMax);
  const auto one = page();
  const auto two = page();
  post(a, by_pointer(a, key, kLastPage + 4096, pages(one, two)));
  EXPECT_GT(turns(), 20u);
  expect_success();
  expect_written(a, key, kStart + kLastPage - 2, "abcd");
  EXPECT_EQ(host_.text(one + 4094, 2), "ab");
  EXPECT_EQ(host_.text(two, 2), "cd");
}

// After each UMR, the rights of all pages of the key are compared.
TEST_F(LongUmr, AShortUmrOfAKeyWithALongListPaysForTheList) {
  auto [a, b] = host_.connected({.fre = true});
  const auto cost = [&](std::uint32_t key) {
    const auto before = host_.device.work_done();
    post(a, umr(a, key, [](ControlView, MaskView m, ContextView k) {
           m.set(Mask::rr, 1);
           k.set(Context::rr, 1);
         }));
    (void)turns();
    expect_success();
    return host_.device.work_done() - before;
  };
  const auto of_short = cost(free_key(Mode::MTT, 4));
  const auto key = free_key(Mode::MTT, kOctwordsMax);
  post(a, by_pointer(a, key, kLastPage + 4096, pages(page(), page())));
  EXPECT_GT(turns(), 20u);
  constexpr std::int64_t kChunks = 2 * std::int64_t{kOctwordsMax} / 1024;
  EXPECT_GE(cost(key), of_short + 2 * kChunks);
}

TEST_F(LongUmr, AListOfPiecesOfOneSizeIsLoadedTurnByTurn) {
  auto [a, b] = host_.connected({.fre = true});
  const auto key = free_key(Mode::KSM, kOctwordsMax);
  const auto one = page();
  post(a, by_pointer(a, key, 4096 * std::uint64_t{kOctwordsMax}, pieces(one)));
  EXPECT_GT(turns(), 20u);
  expect_success();
  expect_written(a, key, kStart + kLastPiece + 5, "last");
  EXPECT_EQ(host_.text(one + 5, 4), "last");
}

TEST_F(LongUmr, PiecesOfOneSizeFarBehindTheOthersAreLoadedTurnByTurn) {
  auto [a, b] = host_.connected({.fre = true});
  const auto one = page();
  const auto list = pieces(one);
  for (const std::uint32_t octwords : {4u, 1024u}) {
    SCOPED_TRACE(octwords);
    const auto key = free_key(Mode::KSM, kOctwordsMax);
    post(a, by_pointer(a, key, 4096 * std::uint64_t{kOctwordsMax}, list, octwords,
                       at_end_of_key(octwords)));
    EXPECT_GT(turns(), 8u);
    expect_success();
    const auto text = "last " + std::to_string(octwords);
    expect_written(a, key, kStart + kLastPiece + 5, text);
    EXPECT_EQ(host_.text(one + 5, text.size()), text);
    expect_no_access(key, kStart);
  }
}

// If one piece of a list changes its length, all later pieces move.
TEST_F(LongUmr, AListOfKeysIsReadTurnByTurnWhateverChangesInIt) {
  auto [a, b] = host_.connected();
  const auto key = free_key(Mode::KLM, kOctwordsMax);
  const auto one = page();
  const auto two = page();
  post(a, by_pointer(a, key, kOctwordsMax, keys(one)));
  EXPECT_GT(turns(), 20u);
  expect_success();
  expect_written(a, key, kStart + kOctwordsMax - 4, "last");
  EXPECT_EQ(host_.text(one + 8, 4), "last");

  auto part = umr(a, key, [](ControlView c, MaskView, ContextView) {
    c.set(Control::translation_octword_actual_size, 4);
    c.set(Control::translation_offset_en, 1);
    c.set(Control::translation_offset, 4);
  });
  for (std::uint64_t i = 0; i != 4; ++i) part.klm(1, kKey, two + 16 * i);
  post(a, part);
  EXPECT_GT(turns(), 10u);
  expect_success();
  expect_written(a, key, kStart + 3, "abcdef");
  EXPECT_EQ(host_.text(one + 3, 1), "a");
  EXPECT_EQ(host_.text(two, 1), "b");
  EXPECT_EQ(host_.text(two + 48, 1), "e");
  EXPECT_EQ(host_.text(one + 8, 1), "f");
}

// The list is decoded up to the end of the part, however short the part is.
TEST_F(LongUmr, KeysFarBehindTheListAreLoadedTurnByTurn) {
  auto [a, b] = host_.connected();
  const auto key = free_key(Mode::KLM, kOctwordsMax);
  const auto one = page();
  auto part = registration(a, key, 4, 4, at_end_of_key(4));
  for (std::uint64_t i = 0; i != 4; ++i) part.klm(1, kKey, one + 16 * i);
  post(a, part);
  EXPECT_GT(turns(), 10u);
  expect_success();
  expect_written(a, key, kStart, "abcd");
  EXPECT_EQ(host_.text(one, 1), "a");
  EXPECT_EQ(host_.text(one + 48, 1), "d");
}

TEST_F(LongUmr, WithoutTranslationsAKeyOfALongListChangesAtOnce) {
  auto [a, b] = host_.connected();
  const auto key = free_key(Mode::KLM, kOctwordsMax);
  post(a, by_pointer(a, key, kOctwordsMax, keys(page())));
  turns();
  post(a, invalidation(a, key));
  EXPECT_LE(turns(), 3u);
  expect_success();
  expect_no_access(key, kStart);
}

TEST_F(LongUmr, OthersSendMeanwhile) {
  auto [a, b] = host_.connected({.fre = true});
  auto [c, d] = host_.connected();
  const auto key = free_key(Mode::MTT, kOctwordsMax);
  const auto to = page();
  post(a, by_pointer(a, key, kLastPage, pages(page(), page())));
  turn();
  for (int i = 0; i != 3; ++i) {
    post(c, wqe(c, Send::RDMA_WRITE).remote(to, kKey).data(host_.put_text("meanwhile"), 9, kKey));
    for (int n = 0; n != 10; ++n) {
      turn();
      host_.network.deliver(1024);
    }
    const auto cqes = completions();
    ASSERT_EQ(cqes.size(), 1u);
    EXPECT_EQ(cqes[0].qpn, c.qpn);
  }
  turns();
  expect_success();
}

TEST_F(LongUmr, AListThatCannotBeReadToItsEndChangesNothing) {
  auto [a, b] = host_.connected({.fre = true});
  const auto key = free_key(Mode::MTT, kOctwordsMax);
  const auto one = page();
  auto first = registration(a, key, 0x8000, 4);
  for (int i = 0; i != 4; ++i) first.mtts(one | kPresent, one | kPresent);
  UmrTest::expect_success(a, first);
  const auto list = HostOptions{}.memory_at + HostOptions::kMemorySize - 512 * 1024;
  post(a, umr(a, key, [](ControlView c, MaskView, ContextView) {
            c.set(Control::inline_, 0);
            c.set(Control::translation_octword_actual_size, kOctwordsMax);
          }).data(list, kOctwordsMax * 16, kKey));
  turns();
  ASSERT_EQ(ended_.size(), 1u);
  EXPECT_EQ(ended_[0].syndrome, Syndrome::LOCAL_PROTECTION_ERROR);
  auto [c, d] = host_.connected();
  expect_written(c, key, kStart + 7, "kept");
  EXPECT_EQ(host_.text(one + 7, 4), "kept");
}

// The longest list, in pages that are not contiguous, ends behind what one check inspects.
TEST_F(LongUmr, AListWhoseLastPageMayNotBeReadChangesNothing) {
  auto [a, b] = host_.connected({.fre = true});
  constexpr std::uint32_t kPages = 257, kOctwords = 132;
  constexpr std::uint64_t kMayBeWritten = 2;
  const auto memory = host_.allocate((kPages + 1) * std::size_t{4096}, 4096);
  const auto entries = host_.allocate(kOctwords * std::size_t{16}, 4096);
  for (std::uint32_t i = 0; i != kPages; ++i) {
    const auto rights = i == kPages - 1 ? kMayBeWritten : kPresent;
    util::store_be64(host_.at(entries + 8 * i), (memory + 4096 * std::uint64_t{i ^ 1}) | rights);
  }
  const auto of_list = free_key(Mode::MTT, kOctwords);
  post(a, by_pointer(a, of_list, 4096 * std::uint64_t{kPages}, entries, kOctwords));
  turns();
  expect_success();
  const auto key = free_key(Mode::MTT, kOctwordsMax);
  post(a, registration(a, key, kLastPage + 4096, kOctwordsMax,
                       [](ControlView c, MaskView, ContextView) { c.set(Control::inline_, 0); })
              .data(kStart + 2048, kOctwordsMax * 16, of_list));
  turns();
  ASSERT_EQ(ended_.size(), 1u);
  EXPECT_EQ(ended_[0].opcode, CqeOpcode::REQUESTER_ERROR);
  EXPECT_EQ(ended_[0].syndrome, Syndrome::LOCAL_PROTECTION_ERROR);
  expect_no_access(key, kStart);
}

TEST_F(LongUmr, EndsWithAnErrorIfItsKeyGoes) {
  using In = spec::connectx::destroy_mkey_in;
  for (const int before : {3, 20}) {
    auto [qp, peer] = host_.connected({.fre = true});
    const auto key = free_key(Mode::MTT, kOctwordsMax);
    post(qp, by_pointer(qp, key, kLastPage, pages(page(), page())));
    for (int i = 0; i != before; ++i) turn();
    ASSERT_TRUE(
        (host_
             .call<spec::connectx::destroy_mkey_out, In>(
                 FakeHost::Opcode::DESTROY_MKEY, [&](auto in) { in.set(In::mkey_index, key >> 8); })
             .ok()));
    turns();
    expect_end(WqeFault::kUmrKeyUnknown);
  }
}

TEST_F(LongUmr, AfterAResetOfItsQpTheUpdateBeginsAgain) {
  auto [a, b] = host_.connected({.fre = true});
  const auto key = free_key(Mode::MTT, kOctwordsMax);
  const auto one = page();
  const auto two = page();
  const auto list = pages(one, one);
  post(a, by_pointer(a, key, kLastPage + 4096, list));
  for (int i = 0; i != 8; ++i) turn();
  ASSERT_TRUE(host_.to_reset(a).ok());
  // The list changes: the part read before the reset must be discarded.
  util::store_be64(host_.at(list), two | kPresent);
  ASSERT_TRUE(host_.to_init(a).ok());
  ASSERT_TRUE(host_.to_rtr(a, b.qpn).ok());
  ASSERT_TRUE(host_.to_rts(a).ok());
  ASSERT_TRUE(completions().empty());
  post(a, by_pointer(a, key, kLastPage + 4096, list));
  turns();
  expect_success();
  auto [c, d] = host_.connected();
  expect_written(c, key, kStart + 1, "new");
  EXPECT_EQ(host_.text(two + 1, 3), "new");
}

// The UMRs run one after the other. If the first stops midway, the second continues without extra
// delay.
TEST_F(LongUmr, TwoOfOneKeyBothEnd) {
  const auto key = free_key(Mode::KLM, kOctwordsMax);
  const auto list = keys(page());
  auto [a, b] = host_.connected();
  auto [c, d] = host_.connected();
  post(a, by_pointer(a, key, kOctwordsMax, list));
  turn();
  post(c, by_pointer(c, key, kOctwordsMax, list));
  turns();
  expect_success();
  ASSERT_FALSE(ended_.empty());
  EXPECT_EQ(ended_[0].qpn, a.qpn);
  turns();
  expect_success();
  ASSERT_FALSE(ended_.empty());
  EXPECT_EQ(ended_[0].qpn, c.qpn);
}

TEST_F(LongUmr, AnErrorOfItsQpReleasesTheKey) {
  const auto key = free_key(Mode::KLM, kOctwordsMax);
  const auto list = keys(page());
  auto [a, b] = host_.connected();
  auto [c, d] = host_.connected();
  post(a, by_pointer(a, key, kOctwordsMax, list));
  for (int i = 0; i != 10; ++i) turn();
  ASSERT_TRUE(host_.to_error(a).ok());
  turns();
  post(c, by_pointer(c, key, kOctwordsMax, list));
  ASSERT_LT(turns(), 1000u);
  expect_success();
  ASSERT_FALSE(ended_.empty());
  EXPECT_EQ(ended_[0].qpn, c.qpn);
}

}  // namespace
}  // namespace softhca::connectx::test
