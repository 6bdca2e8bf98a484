// UMR: work requests that change memory keys (PRM 7.4.4.1.3, 10.1.1).

#include "connectx/memory/umr_host.h"

namespace softhca::connectx::test {
namespace {

constexpr std::uint64_t kReadable = 1;

// Indirect keys ----------------------------------------------------------------------------------

// PRM 6.1.1: "specifying an arbitrary list of memory buffers as a virtual address space".
TEST_F(UmrTest, AListOfKeysMakesOneRangeOfTheirBuffers) {
  auto [a, b] = host_.connected();
  const auto key = free_key(Mode::KLM, 4);
  const auto one = page();
  const auto two = page();
  expect_success(
      a, registration(a, key, 8, 4).klm(5, kKey, two + 3).klm(3, kKey, one).octwords_of_zero(2));
  expect_written(a, key, kStart + 1, "1234567");
  EXPECT_EQ(host_.text(two, 8), "....1234");
  EXPECT_EQ(host_.text(one, 5), "567..");
  expect_no_access(key, kStart + 4);  // 5 bytes: beyond the end
}

// PRM 10.1.1: "takes effect prior to the execution of the next command on the same WQ".
TEST_F(UmrTest, TheNextWqeOfTheQueueMeetsTheNewTranslation) {
  auto [a, b] = host_.connected();
  const auto key = free_key(Mode::KLM, 4);
  const auto to = page();
  const auto from = page();
  std::memcpy(host_.at(from), "hello", 5);
  host_.post_receive(b, to, 64);
  host_.post_send(a, registration(a, key, 5, 4).klm(5, kKey, from).octwords_of_zero(3).bytes());
  host_.post_send(a, wqe(a, Send::SEND).data(kStart, 5, key).bytes());
  host_.ring_send(a);
  host_.run();
  EXPECT_EQ(host_.text(to, 5), "hello");
  const auto cqes = completions();
  ASSERT_EQ(cqes.size(), 3u);
  EXPECT_EQ(cqes[0].opcode, CqeOpcode::REQUESTER);
  using Layout = spec::connectx::cqe64_requester;
  EXPECT_EQ(Layout::s_wqe_opcode.read(cqes[0].bytes.data()), static_cast<unsigned>(Send::UMR));
}

// PRM 10.1.1, imaicl = 1: "an MKey accessed through an indirect MKey need not have remote access
// rights", but local accesses need the rights of all keys.
TEST_F(UmrTest, AKeyBehindAnIndirectKeyNeedsLocalRightsAlone) {
  auto [a, b] = host_.connected();
  const auto to = page();
  const auto local = free_key(Mode::KLM, 4);
  const auto key = free_key(Mode::KLM, 4);
  expect_success(a, registration(a, local, 64, 4,
                                 [](ControlView, MaskView, ContextView k) {
                                   k.set(Context::rr, 0);
                                   k.set(Context::rw, 0);
                                 })
                        .klm(64, kKey, to)
                        .octwords_of_zero(3));
  expect_success(a, registration(a, key, 64, 4).klm(64, local, kStart).octwords_of_zero(3));
  expect_no_access(local, kStart);
  expect_written(a, key, kStart, "hello");
  EXPECT_EQ(host_.text(to, 5), "hello");
  expect_success(a,
                 umr(a, local, [](ControlView, MaskView m, ContextView) { m.set(Mask::lw, 1); }));
  auto [c, d] = host_.connected();
  EXPECT_NE(write(c, key, kStart, "never").opcode, CqeOpcode::REQUESTER);
  EXPECT_EQ(host_.text(to, 5), "hello");
}

// libmlx5 does not write the dword of length64 when it binds a memory window, so the bit is left
// over from an older WQE's address.
TEST_F(UmrTest, AListOfKeysIsAsLongAsItsLengthWhateverTheBitOfLength64Says) {
  auto [a, b] = host_.connected();
  const auto key = free_key(Mode::KLM, 4);
  const auto to = page();
  for (int i = 0; i != 3; ++i) {
    expect_success(
        a, registration(a, key, 5, 4,
                        [](ControlView, MaskView, ContextView k) { k.set(Context::length64, 1); })
               .klm(5, kKey, to)
               .octwords_of_zero(3));
    expect_written(a, key, kStart, "hello");
    EXPECT_EQ(host_.text(to, 6), "hello.");
    expect_success(a, invalidation(a, key));
  }
  expect_success(
      a, registration(a, key, 5, 4,
                      [](ControlView, MaskView, ContextView k) { k.set(Context::length64, 1); })
             .klm(16, kKey, to)
             .octwords_of_zero(3));
  expect_no_access(key, kStart + 5);  // beyond len, although the list has 16 bytes
}

// PRM Table 33, translation_offset: "enables changing only some of the klms/mtts of a region".
TEST_F(UmrTest, OnlyTheKeysAtTheOffsetChange) {
  auto [a, b] = host_.connected();
  const auto key = free_key(Mode::KLM, 8);
  const auto one = page();
  const auto two = page();
  auto first = registration(a, key, 8, 8);
  for (std::uint64_t i = 0; i != 8; ++i) first.klm(1, kKey, one + 16 * i);
  expect_success(a, first);
  auto second = umr(a, key, [](ControlView c, MaskView, ContextView) {
    c.set(Control::translation_octword_actual_size, 4);
    c.set(Control::translation_offset_en, 1);
    c.set(Control::translation_offset, 4);
  });
  for (std::uint64_t i = 0; i != 4; ++i) second.klm(1, kKey, two + 16 * i);
  expect_success(a, second);
  expect_written(a, key, kStart, "abcdefgh");
  EXPECT_EQ(host_.text(one + 48, 1), "d");
  EXPECT_EQ(host_.text(one + 64, 1), ".");
  EXPECT_EQ(host_.text(two, 1), "e");
  EXPECT_EQ(host_.text(two + 48, 1), "h");
}

// mlx5dv: the layout repeats repeat_count times. Each round takes some bytes of every buffer and
// skips a gap.
TEST_F(UmrTest, AnInterleavedLayoutIsGoneThroughAgainAndAgain) {
  auto [a, b] = host_.connected();
  const auto key = free_key(Mode::KLM, 4);
  const auto one = page();
  const auto two = page();
  const auto strided = [&](const HostQp& qp, std::uint32_t sum, std::uint32_t turns,
                           std::uint64_t entries) {
    using spec::connectx::klm_list_op;
    return registration(qp, key, 15, 4)
        .klm(sum, static_cast<std::uint32_t>(klm_list_op::STRIDED_BLOCK),
             std::uint64_t{turns} << 32 | entries)
        .klm(6 << 16 | 2, kKey, one)
        .klm(4 << 16 | 3, kKey, two)
        .octwords_of_zero(1);
  };
  expect_success(a, strided(a, 5, 3, 2));
  expect_written(a, key, kStart, "abCDEfgHIJklMNO");
  EXPECT_EQ(host_.text(one, 15), "ab....fg....kl.");
  EXPECT_EQ(host_.text(two, 12), "CDE.HIJ.MNO.");
  auto [c, d] = host_.connected();
  expect_written(c, key, kStart + 6, "..xx");
  EXPECT_EQ(host_.text(one, 15), "ab....f.....kl.");
  EXPECT_EQ(host_.text(two, 12), "CDE..xx.MNO.");

  expect_refused([&](const HostQp& qp) { return strided(qp, 6, 3, 2); }, WqeFault::kUmrStrided);
  expect_refused([&](const HostQp& qp) { return strided(qp, 5, 0, 2); }, WqeFault::kUmrStrided);
  expect_refused([&](const HostQp& qp) { return strided(qp, 5, 3, 4); }, WqeFault::kUmrStrided);
  expect_refused([&](const HostQp& qp) { return strided(qp, 0, 3, 0); }, WqeFault::kUmrStrided);
  auto [e, f] = host_.connected();
  expect_written(e, key, kStart, "zz");
  EXPECT_EQ(host_.text(one, 3), "zz.") << "as before the layouts that were refused";

  // Two rounds have fewer bytes than the key.
  auto [g, h] = host_.connected();
  expect_success(g, strided(g, 5, 2, 2));
  EXPECT_NE(write(g, key, kStart + 9, "ab").opcode, CqeOpcode::REQUESTER);
}

// Keys of pages
// ------------------------------------------------------------------------------------

TEST_F(UmrTest, FastRegistrationLoadsPagesAndTakesTheKeyIntoUse) {
  auto [a, b] = host_.connected({.fre = true});
  const auto key = free_key(Mode::MTT, 4);
  const auto one = page();
  const auto two = page();
  expect_no_access(key, kStart);
  const auto registered = (key & ~0xFFu) | 0x12;  // ib_update_fast_reg_key
  expect_success(a, registration(a, registered, 0x1800, 4,
                                 [](ControlView c, MaskView m, ContextView k) {
                                   c.set(Control::check_free, 1);
                                   m.set(Mask::mkey, 1);
                                   m.set(Mask::log_page_size, 1);
                                   k.set(Context::start_addr, kStart + 0x800);
                                   k.set(Context::mkey, 0x12);
                                   k.set(Context::log_page_size, 12);
                                 })
                        .mtts(two | kPresent, one | kPresent)
                        .octwords_of_zero(3));
  expect_written(a, registered, kStart + 0xFFE, "abcd");
  EXPECT_EQ(host_.text(two + 0xFFE, 2), "ab");
  EXPECT_EQ(host_.text(one, 2), "cd");
  expect_no_access(key, kStart + 0x800);  // the previous variant
  expect_no_access(registered, kStart + 0x7FF);
}

// Writes follow PCI Express order, and here always a stricter one.
TEST_F(UmrTest, RelaxedOrderingOfWritesIsKeptAndChangesNoResult) {
  auto [a, b] = host_.connected({.fre = true});
  const auto key = free_key(Mode::KLM, 4);
  const auto one = page();
  expect_success(a, registration(a, key, 8, 4,
                                 [](ControlView, MaskView m, ContextView k) {
                                   m.set(Mask::relaxed_ordering_write, 1);
                                   k.set(Context::relaxed_ordering_write, 1);
                                 })
                        .klm(8, kKey, one)
                        .octwords_of_zero(3));
  expect_written(a, key, kStart, "in order");
  EXPECT_EQ(host_.text(one, 8), "in order");
  using In = spec::connectx::query_mkey_in;
  using Out = spec::connectx::query_mkey_out;
  const auto out = host_.call<Out, In>(FakeHost::Opcode::QUERY_MKEY,
                                       [&](auto in) { in.set(In::mkey_index, key >> 8); });
  EXPECT_EQ(out.as<Out>().get(Out::mkey_context).get(Context::relaxed_ordering_write), 1u);
}

// PRM Table 12. An entry without any right is an absent page.
TEST_F(UmrTest, EachPageGrantsWhatItsEntrySays) {
  auto [a, b] = host_.connected({.fre = true});
  const auto key = free_key(Mode::MTT, 4);
  const auto one = page();
  const auto two = page();
  expect_success(
      a, registration(a, key, 0x3000, 4).mtts(one | kPresent, two | kReadable).octwords_of_zero(3));
  expect_written(a, key, kStart, "abc");
  expect_no_access(key, kStart + 0x1000);
  expect_no_access(key, kStart + 0xFFE);
  expect_no_access(key, kStart + 0x2000);
  EXPECT_EQ(host_.text(two, 3), "...");
  EXPECT_EQ(host_.text(one + 0xFFE, 2), "..");
}

// Drivers load a long list in parts while the key stays free, and set the page size last (mlx5
// driver interface 8.6).
TEST_F(UmrTest, AListMayComeInPartsBeforeTheSizeOfItsPages) {
  auto [a, b] = host_.connected({.fre = true});
  const auto key = free_key(Mode::MTT, 8);
  const auto memory = host_.allocate(16 * 8192, 8192);
  const auto part = [&](std::uint32_t at, auto builder) {
    for (std::uint64_t i = 0; i != 4; ++i) {
      const auto number = at * 2 + 2 * i;
      builder.mtts((memory + 8192 * (15 - number)) | kPresent,
                   (memory + 8192 * (14 - number)) | kPresent);
    }
    return builder;
  };
  expect_success(a, part(0, umr(a, key, [](ControlView c, MaskView, ContextView) {
                           c.set(Control::check_free, 1);
                           c.set(Control::translation_octword_actual_size, 4);
                         })));
  expect_success(
      a, part(4, registration(a, key, 16 * 8192, 4, [](ControlView c, MaskView m, ContextView k) {
                c.set(Control::check_free, 1);
                c.set(Control::translation_offset_en, 1);
                c.set(Control::translation_offset, 4);
                m.set(Mask::log_page_size, 1);
                k.set(Context::log_page_size, 13);
              })));
  expect_written(a, key, kStart + 8192 * 9 - 2, "abcd");
  EXPECT_EQ(host_.text(memory + 8192 * 8 - 2, 2), "ab");
  EXPECT_EQ(host_.text(memory + 8192 * 6, 2), "cd");
}

TEST_F(UmrTest, AListThatIsNotInlineIsReadThroughItsPointer) {
  using Pointer = spec::connectx::data_segment_pointer;
  auto [a, b] = host_.connected({.fre = true});
  // A list longer than one copy step.
  constexpr std::uint32_t kOctwords = 512;
  const auto key = free_key(Mode::MTT, kOctwords);
  const auto list = host_.allocate(kOctwords * 16, 4096);
  const auto one = page();
  const auto two = page();
  for (std::uint32_t i = 0; i != 2 * kOctwords; ++i) {
    util::store_be64(host_.at(list + 8 * i), (i % 2 == 0 ? one : two) | kPresent);
  }
  const auto by_pointer = [&](const HostQp& qp, std::uint64_t address, std::uint32_t lkey) {
    return registration(qp, key, 4096 * 2 * kOctwords, kOctwords,
                        [](ControlView c, MaskView, ContextView) { c.set(Control::inline_, 0); })
        .data(address, kOctwords * 16, lkey);
  };
  static_assert(Pointer::kSize == 16);
  expect_success(a, by_pointer(a, list, kKey));
  expect_written(a, key, kStart + 4096 * 1023 + 7, "last");
  EXPECT_EQ(host_.text(two + 7, 4), "last");
  expect_written(a, key, kStart + 4096 * 514 - 2, "abcd");
  EXPECT_EQ(host_.text(two + 4094, 2), "ab");
  EXPECT_EQ(host_.text(one, 2), "cd");

  const auto cqe = run(a, by_pointer(a, list, 0x4200));
  EXPECT_EQ(cqe.syndrome, Syndrome::LOCAL_PROTECTION_ERROR);
  EXPECT_EQ(cqe.reason, static_cast<int>(rdma::Reason::kKeyUnknown));
}

TEST_F(UmrTest, AListThatCannotBeReadToItsEndChangesNothing) {
  auto [a, b] = host_.connected({.fre = true});
  constexpr std::uint32_t kOctwords = 512;
  const auto key = free_key(Mode::MTT, kOctwords);
  const auto one = page();
  auto first = registration(a, key, 0x8000, 4);
  for (int i = 0; i != 4; ++i) first.mtts(one | kPresent, one | kPresent);
  expect_success(a, first);
  // The second half of the list is in unmapped memory.
  const auto list = HostOptions{}.memory_at + HostOptions::kMemorySize - 4096;
  const auto two = page();
  for (int i = 0; i != 512; ++i) util::store_be64(host_.at(list + 8 * i), two | kPresent);
  const auto cqe = run(a, umr(a, key, [](ControlView c, MaskView, ContextView) {
                            c.set(Control::inline_, 0);
                            c.set(Control::translation_octword_actual_size, kOctwords);
                          }).data(list, kOctwords * 16, kKey));
  EXPECT_EQ(cqe.syndrome, Syndrome::LOCAL_PROTECTION_ERROR);
  EXPECT_EQ(cqe.reason, static_cast<int>(rdma::Reason::kMemoryUnreachable));
  auto [c, d] = host_.connected();
  expect_written(c, key, kStart + 7, "kept");
  EXPECT_EQ(host_.text(one + 7, 4), "kept");
}

// PRM Table 10, translations_octword_size.
TEST_F(UmrTest, OnlyThePagesAtTheOffsetChange) {
  auto [a, b] = host_.connected({.fre = true});
  const auto key = free_key(Mode::MTT, 1024);
  const auto one = page();
  const auto two = page();
  auto first = registration(a, key, 0x8000, 4);
  for (int i = 0; i != 4; ++i) first.mtts(one | kPresent, one | kPresent);
  expect_success(a, first);
  auto second = umr(a, key, [](ControlView c, MaskView, ContextView) {
    c.set(Control::translation_octword_actual_size, 4);
    c.set(Control::translation_offset_en, 1);
    c.set(Control::translation_offset, 1020);
  });
  for (int i = 0; i != 4; ++i) second.mtts(two | kPresent, two | kPresent);
  expect_success(a, second);
  expect_written(a, key, kStart + 0x7000, "one");
  EXPECT_EQ(host_.text(one, 3), "one");
  expect_success(a, umr(a, key, [](ControlView, MaskView m, ContextView k) {
                   m.set(Mask::len, 1);
                   k.set(Context::len, 2048 * 4096);
                 }));
  expect_written(a, key, kStart + 2047 * 4096, "two");
  EXPECT_EQ(host_.text(two, 3), "two");
  expect_no_access(key, kStart + 1024 * 4096);  // never loaded
}

// Invalidation -----------------------------------------------------------------------------------

// PRM 10.1.1: "UMR Work Request is also used for invalidation of memory region/window".
TEST_F(UmrTest, AnInvalidatedKeyGivesNoAccessUntilItIsRegisteredAgain) {
  auto [a, b] = host_.connected({.fre = true});
  const auto key = free_key(Mode::MTT, 4);
  const auto to = page();
  const auto again = [&] {
    return registration(a, key, 64, 4).mtts(to | kPresent, 0).octwords_of_zero(3);
  };
  expect_success(a, again());
  expect_written(a, key, kStart, "abc");
  expect_success(a, invalidation(a, key));
  expect_no_access(key, kStart);
  expect_success(a, again());
  expect_written(a, key, kStart, "def");
  EXPECT_EQ(host_.text(to, 3), "def");
}

// mlx5 driver interface 8.6, PRM Table 33: en_rinval, and check_free after it.
TEST_F(UmrTest, ASendWithInvalidateFreesAKeyThatAUmrMayTakeAgain) {
  auto [a, b] = host_.connected();
  const auto key = free_key(Mode::KLM, 4);
  const auto to = page();
  const auto again = [&](HostQp& qp) {
    return registration(qp, key, 64, 4,
                        [](ControlView c, MaskView m, ContextView k) {
                          c.set(Control::check_free, 1);
                          m.set(Mask::en_rinval, 1);
                          k.set(Context::en_rinval, 1);
                        })
        .klm(64, kKey, to)
        .octwords_of_zero(3);
  };
  expect_success(b, again(b));
  host_.post_receive(b, page(), 64);
  send(a, wqe(a, Send::SEND_INVAL).immediate(key));
  host_.run();
  EXPECT_EQ(completions().size(), 2u);
  expect_no_access(key, kStart);
  expect_success(b, again(b));
  expect_written(a, key, kStart, "again");
  expect_refused([&](const HostQp& qp) { return again(const_cast<HostQp&>(qp)); },
                 WqeFault::kUmrNotFree);
}

// Memory windows
// -----------------------------------------------------------------------------------

// IBTA 10.6.7.2: a type 2 window belongs to the QP to which it was bound.
TEST_F(UmrTest, AWindowOfTypeTwoServesTheQpThatItIsBoundTo) {
  auto [a, b] = host_.connected();
  auto [c, d] = host_.connected();
  const auto window = free_key(Mode::KLM, 4);
  const auto to = page();
  expect_success(b, registration(b, window, 64, 4,
                                 [&](ControlView control, MaskView m, ContextView k) {
                                   control.set(Control::check_free, 1);
                                   m.set(Mask::qpn, 1);
                                   k.set(Context::qpn, b.qpn);
                                 })
                        .klm(64, kKey, to)
                        .octwords_of_zero(3));
  expect_written(a, window, kStart, "mine");
  EXPECT_EQ(write(c, window, kStart, "never").syndrome, Syndrome::REMOTE_ACCESS_ERROR);
  EXPECT_EQ(host_.text(to, 4), "mine");
  const auto unbind = [&](const HostQp& qp) {
    return umr(qp, window, [](ControlView control, MaskView m, ContextView k) {
      control.set(Control::check_qpn, 1);
      m.set(Mask::free, 1);
      m.set(Mask::qpn, 1);
      k.set(Context::free, 1);
      k.set(Context::qpn, kAnyQpn);
    });
  };
  expect_refused(unbind, WqeFault::kUmrOtherQp);
  expect_success(b, unbind(b));
  expect_no_access(window, kStart);
}

// PRM 6.2: "regions that start with virtual address zero".
TEST_F(UmrTest, AWindowMayBeZeroBased) {
  auto [a, b] = host_.connected();
  const auto window = free_key(Mode::KLM, 4);
  const auto to = page();
  expect_success(
      b, registration(b, window, 64, 4,
                      [](ControlView, MaskView, ContextView k) { k.set(Context::start_addr, 0); })
             .klm(64, kKey, to + 10)
             .octwords_of_zero(3));
  expect_written(a, window, 2, "zero");
  EXPECT_EQ(host_.text(to + 10, 7), "..zero.");
}

}  // namespace
}  // namespace softhca::connectx::test
