// Doorbell pages and the queue pairs that they ring (JingZhao 1.2, 3.1.2).
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "jingzhao/spoiler.h"
#include "spec/jingzhao/context.h"
#include "spec/jingzhao/registers.h"

namespace softhca::jingzhao::test {
namespace {

using spec::jingzhao::command_opcode;
using spec::jingzhao::qp_context;
using spec::jingzhao::uar_page;

/// A QP whose context names another page than the one that the driver rings.
class JingzhaoDoorbellPage : public testing::Test {
 protected:
  static constexpr std::uint32_t kNamed = 7;

  JingzhaoDoorbellPage() : world({.make_host = Spoiler::make()}) {
    auto& host = Spoiler::of(world.a());
    host.spoil = [](command_opcode op, std::span<std::byte> mailbox) {
      if (op != command_opcode::RST2INIT_QPEE) return;
      util::MutableView<qp_context>(mailbox.first(qp_context::kSize))
          .set(qp_context::usr_page, kNamed);
    };
    host.doorbell = [this](std::span<std::byte, 8> doorbell) {
      std::ranges::copy(doorbell, rung.begin());
    };
    world.open();
  }
  /// Rings the doorbell of the last request again, by this page.
  void ring(std::uint64_t page) {
    Spoiler::of(world.a()).doorbell = nullptr;
    world.a().host->write_bar(Device::kUarBar, page * uar_page::kSize, rung);
  }
  /// The same with two stores of a dword.
  void ring_in_halves(std::uint64_t page) {
    const auto at = page * uar_page::kSize;
    const std::span<const std::byte> bytes(rung);
    world.a().host->write_bar(Device::kUarBar, at + uar_page::sq_head.kOffset, bytes.first(4));
    world.a().host->write_bar(Device::kUarBar, at + uar_page::qpn.kOffset, bytes.last(4));
  }

  World world;
  std::array<std::byte, 8> rung{};
};

// 1.2 says that pages isolate processes, and the field table that usr_page is unused: the document
// does not say how a page would name its QPs. docs/jingzhao.md, gap 22: any page rings any QP.
TEST_F(JingzhaoDoorbellPage, RingsAnyQueuePairWhateverUsrPageSays) {
  Side a(world.a()), b(world.b());
  connect(a, b);
  util::Struct<qp_context> context;
  must(a.qp->query(context));
  ASSERT_EQ(context.get(qp_context::usr_page), kNamed);

  a.bytes(0, 1)[0] = std::byte{1};
  const auto piece = a.piece(0, 1);
  ASSERT_EQ(a.qp->post_send({.id = 1,
                             .opcode = driver::SendOpcode::kRdmaWrite,
                             .pieces = {&piece, 1},
                             .remote_address = b.address(),
                             .rkey = b.key->key()}),
            PostStatus::kOk);
  expect_success(wait(world, *a.send_cq), 1, CompletionOpcode::kRdmaWrite);
  ASSERT_EQ(Spoiler::of(world.a()).doorbell_at() / uar_page::kSize, 0u) << "the driver's page";
  EXPECT_EQ(b.bytes(0, 1)[0], std::byte{1});

  // The WQE is executed again, with the byte that its memory has now.
  const auto arrives_after = [&](std::byte value, auto&& doorbell) {
    a.bytes(0, 1)[0] = value;
    doorbell();
    world.advance(std::chrono::milliseconds(1));
    return b.bytes(0, 1)[0] == value;
  };
  constexpr std::uint64_t kLast = Device::kUarBarSize / uar_page::kSize - 1;
  EXPECT_TRUE(arrives_after(std::byte{2}, [&] { ring(kNamed); }));
  EXPECT_TRUE(arrives_after(std::byte{3}, [&] { ring(kNamed + 1); }));
  EXPECT_TRUE(arrives_after(std::byte{4}, [&] { ring(kLast); }));
  EXPECT_TRUE(arrives_after(std::byte{5}, [&] { ring_in_halves(kLast); }));
}

}  // namespace
}  // namespace softhca::jingzhao::test
