// EQs without room, and the mask of MAP_EQ (JingZhao 3.2.4).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "jingzhao/raw_host.h"
#include "spec/jingzhao/context.h"
#include "spec/jingzhao/cqe.h"
#include "util/log.h"

namespace softhca::jingzhao::test {
namespace {

using enum hcr_status;
using spec::jingzhao::event_type;

constexpr std::uint64_t bit_of(event_type type) {
  return std::uint64_t{1} << static_cast<unsigned>(type);
}

/// EQ 0 with two entries. A command with bit E posts an event; its status identifies the event.
class JingzhaoEventQueue : public testing::Test {
 protected:
  using cmd_eqe = spec::jingzhao::cmd_eqe;
  static constexpr std::size_t kRing = 2048;  ///< in the output mailbox's page

  JingzhaoEventQueue() : ring(h.out.bytes.subspan(kRing, 2 * cmd_eqe::kSize)) {
    using spec::jingzhao::eq_context;
    h.init();
    EXPECT_TRUE(h.host.enable_interrupts(1));
    util::Struct<eq_context> eq;
    eq.set(eq_context::start, h.out.iova + kRing);
    eq.set(eq_context::logsize, 1);
    eq.set(eq_context::state_armed, 1);
    h.put(eq.bytes());
    EXPECT_EQ(h.with_mailbox(command_opcode::SW2HW_EQ, 0), OK);
    give_back(0);
    give_back(1);
  }
  hcr_status map(std::uint64_t mask) {
    return h.command(command_opcode::MAP_EQ, {.in_param = mask});
  }
  hcr_status unmap(std::uint64_t mask) {
    return h.command(command_opcode::MAP_EQ, {.in_modifier = 1u << 31, .in_param = mask});
  }
  /// Posts an event with status OK.
  void succeed() { ASSERT_EQ(h.command(command_opcode::NOP, {.e = true}), OK); }
  /// Posts an event with status BAD_PARAM.
  void fail() {
    ASSERT_EQ(h.command(command_opcode::HW2SW_MPT, {.in_modifier = 5, .e = true}), BAD_PARAM);
  }
  std::span<std::byte> entry(std::size_t place) {
    return ring.subspan(place * cmd_eqe::kSize, cmd_eqe::kSize);
  }
  void give_back(std::size_t place) { std::ranges::fill(entry(place), std::byte{0xFF}); }
  bool is_empty(std::size_t place) { return entry(place)[31] == std::byte{0xFF}; }
  hcr_status status_at(std::size_t place) {
    return hcr_status(util::View<cmd_eqe>(entry(place)).get(cmd_eqe::status));
  }
  const EventQueues::Counters& counters() { return h.device.objects().event_queues->counters(); }

  RawHost h;
  std::span<std::byte> ring;
};

// The document does not say what happens to an event if the EQ is full, nor how software learns of
// it. docs/jingzhao.md, "an EQ without room": the event is lost, and the log has a line.
TEST_F(JingzhaoEventQueue, WithoutRoomLosesTheEventAndHasTheNextOnes) {
  ASSERT_EQ(map(bit_of(event_type::CMD)), OK);
  succeed();
  succeed();
  const std::vector<std::byte> full(ring.begin(), ring.end());
  ASSERT_EQ(counters().posted, 2u);
  ASSERT_EQ(h.host.interrupts(0), 1u) << "the EQ was armed once";

  util::set_log_level(util::LogLevel::kWarning);
  testing::internal::CaptureStderr();
  fail();
  const auto log = testing::internal::GetCapturedStderr();
  const std::string line = "event CMD: EQ 0x0 is full";
  EXPECT_NE(log.find(line), log.npos) << log;
  EXPECT_EQ(log.find(line), log.rfind(line)) << "one line: " << log;
  EXPECT_TRUE(std::ranges::equal(ring, full)) << "software's entries stay";
  EXPECT_EQ(counters().posted, 2u);
  EXPECT_EQ(counters().dropped, 1u);
  EXPECT_EQ(h.host.interrupts(0), 1u);

  give_back(0);
  h.run();
  EXPECT_TRUE(is_empty(0)) << "the lost event does not come later";
  succeed();
  EXPECT_FALSE(is_empty(0));
  EXPECT_EQ(status_at(0), OK);
  give_back(1);
  fail();
  EXPECT_FALSE(is_empty(1));
  EXPECT_EQ(status_at(1), BAD_PARAM);
  EXPECT_EQ(counters().posted, 4u);
  EXPECT_EQ(counters().dropped, 1u);
}

// The document does not say what the mask's bits without an event do. docs/jingzhao.md, "MAP_EQ":
// they change nothing.
TEST_F(JingzhaoEventQueue, BitsOfTheMaskThatNoEventHasChangeNothing) {
  using enum event_type;
  std::uint64_t others = ~std::uint64_t{0};
  for (const auto type : {COMP, COMM_EST, SQ_DRAINED, CQ_ERROR, WQ_CATAS_ERROR, LOCAL_CATAS_ERROR,
                          PORT_CHANGE, CMD, WQ_INVAL_REQ_ERROR, WQ_ACCESS_ERROR}) {
    others &= ~bit_of(type);
  }
  EXPECT_EQ(map(others), OK);
  const auto before = counters().unmapped;
  succeed();
  EXPECT_TRUE(is_empty(0)) << "no event is mapped";
  EXPECT_EQ(counters().unmapped, before + 1);
  EXPECT_EQ(map(others | bit_of(CMD)), OK);
  EXPECT_EQ(unmap(others), OK);
  succeed();
  EXPECT_FALSE(is_empty(0)) << "CMD is still mapped";
  EXPECT_EQ(unmap(others | bit_of(CMD)), OK);
  succeed();
  EXPECT_TRUE(is_empty(1));
  EXPECT_EQ(counters().unmapped, before + 2);
}

}  // namespace
}  // namespace softhca::jingzhao::test
