// The position of a WQE, as a doorbell and a next unit give it (JingZhao 3.1.2, 3.4.1).
#include <gtest/gtest.h>

#include <set>

#include "jingzhao/spoiler.h"
#include "spec/jingzhao/wqe.h"
#include "util/log.h"

namespace softhca::jingzhao::test {
namespace {

using driver::SendOpcode;
using spec::jingzhao::command_opcode;
using spec::jingzhao::next_unit;
using spec::jingzhao::qp_context;
using spec::jingzhao::qp_state;
using spec::jingzhao::uar_page;

class JingzhaoSendPlace : public testing::Test {
 protected:
  JingzhaoSendPlace() : world({.make_host = Spoiler::make()}) { world.open(); }
  void make(const Side::Options& options) {
    a.emplace(world.a(), options);
    b.emplace(world.b(), options);
    connect(*a, *b);
  }
  PostStatus write(std::uint64_t id, std::size_t from, std::size_t to) {
    const auto piece = a->piece(from, 1);
    return a->qp->post_send({.id = id,
                             .opcode = SendOpcode::kRdmaWrite,
                             .pieces = {&piece, 1},
                             .remote_address = b->address(to),
                             .rkey = b->key->key()});
  }
  /// Moves the place in the next doorbell by `units`.
  void move_doorbell(std::uint32_t units) {
    Spoiler::of(world.a()).doorbell = [this, units](std::span<std::byte, 8> doorbell) {
      const auto low = util::load_le32(doorbell.data());
      util::store_le32(doorbell.data(), low + (units << uar_page::sq_head.kLo));
      Spoiler::of(world.a()).doorbell = nullptr;
    };
  }
  /// Length of the send queue of `a`, in units of 16 bytes.
  std::uint32_t queue_units() {
    util::Struct<qp_context> context;
    must(a->qp->query(context));
    return context.get(qp_context::snd_wqe_len) / next_unit::kSize;
  }

  World world;
  std::optional<Side> a;
  std::optional<Side> b;
};

// A queue of 4,096 WQEs of 512 bytes is longer than the 2^16 units that 16 bits can name.
TEST_F(JingzhaoSendPlace, EachWqeOfTheLongestQueueIsExecutedOnce) {
  constexpr std::uint64_t kRequests = 4096;
  make({.requests = kRequests, .pieces = 16});
  ASSERT_GT(queue_units(), 1u << 16);
  for (std::uint64_t id = 0; id != kRequests; ++id) {
    a->bytes(0, 1)[0] = static_cast<std::byte>(id * 7 + 1);
    ASSERT_EQ(write(id, 0, id), PostStatus::kOk);
    expect_success(wait(world, *a->send_cq), id, CompletionOpcode::kRdmaWrite);
    ASSERT_EQ(b->bytes(id, 1)[0], a->bytes(0, 1)[0]) << id;
  }
  EXPECT_EQ(a->send_cq->strays(), 0u);
}

// The author's library does not wrap its count at the end of the queue.
TEST_F(JingzhaoSendPlace, APlaceBehindTheEndOfTheQueueIsCountedFromItsBegin) {
  make({});
  for (const auto laps : {1u, 2u, 77u}) {
    move_doorbell(laps * queue_units());
    a->bytes(0, 1)[0] = static_cast<std::byte>(laps);
    ASSERT_EQ(write(laps, 0, 100), PostStatus::kOk);
    expect_success(wait(world, *a->send_cq), laps, CompletionOpcode::kRdmaWrite);
    EXPECT_EQ(b->bytes(100, 1)[0], static_cast<std::byte>(laps));
  }
}

TEST_F(JingzhaoSendPlace, AChainThatLeavesTheQueueEndsTheQueuePair) {
  make({});
  const auto units = queue_units();
  std::uint64_t executed = 0;
  Spoiler::of(world.a()).doorbell = [&](std::span<std::byte, 8>) {
    for (const auto& region : Spoiler::of(world.a()).regions()) {
      if (region.bytes.size() != std::size_t{units} * next_unit::kSize) continue;
      const util::MutableView<next_unit> first(region.bytes.first(next_unit::kSize));
      if (first.get(next_unit::imm_data) != 0xC0FFEE) continue;
      first.set(next_unit::nda, units);
      first.set(next_unit::nds, 3);
      ++executed;
    }
  };
  const auto piece = a->piece(0, 1);
  ASSERT_EQ(a->qp->post_send({.id = 1,
                              .opcode = SendOpcode::kRdmaWrite,
                              .pieces = {&piece, 1},
                              .remote_address = b->address(0),
                              .rkey = b->key->key(),
                              .immediate = 0xC0FFEE}),
            PostStatus::kOk);
  ASSERT_EQ(executed, 1u);
  world.advance(std::chrono::milliseconds(1));
  EXPECT_EQ(must(a->qp->query_state()), qp_state::ERR);
  std::optional<jz::Event> event;
  world.run_until([&] { return (event = world.a().hca->poll_event()).has_value(); });
  ASSERT_TRUE(event);
  EXPECT_EQ(event->type, spec::jingzhao::event_type::WQ_CATAS_ERROR);
}

// A flush ends when its CQEs have no room left. Otherwise the device would never become idle.
TEST_F(JingzhaoSendPlace, AFlushThatLeadsBackToItselfEndsWithItsCq) {
  make({.cq_entries = 16});
  must(a->qp->to_error());
  util::Struct<qp_context> context;
  must(a->qp->query(context));
  Spoiler::of(world.a()).doorbell = [&](std::span<std::byte, 8>) {
    for (const auto& region : Spoiler::of(world.a()).regions()) {
      // Fills the receive queue so that every slot always reads as posted.
      if (region.bytes.size() == context.get(qp_context::rcv_wqe_len)) {
        std::ranges::fill(region.bytes, std::byte{0xFF});
      }
      if (region.bytes.size() != context.get(qp_context::snd_wqe_len)) continue;
      const util::MutableView<next_unit> first(region.bytes.first(next_unit::kSize));
      first.set(next_unit::nds, 3);  // at nda, which is 0
    }
  };
  ASSERT_EQ(write(1, 0, 0), PostStatus::kOk);
  unsigned turns = 0;
  while (world.a().device->run(world.now()) <= world.now() && turns != 10'000) ++turns;
  ASSERT_LT(turns, 10'000u);
  world.advance(std::chrono::milliseconds(10));
  EXPECT_EQ(world.a().device->run(world.now()), util::kNever) << "it polls the receive queue";
  std::vector<std::uint32_t> failed;
  while (const auto event = world.a().hca->poll_event()) {
    if (event->type == spec::jingzhao::event_type::CQ_ERROR) failed.push_back(event->number);
  }
  std::ranges::sort(failed);
  EXPECT_EQ(failed, (std::vector{a->send_cq->cqn(), a->receive_cq->cqn()}));
}

// Each doorbell that is rung makes a CQE, whose ring is shorter: the test takes them as they come.
class JingzhaoDoorbells : public JingzhaoSendPlace {
 protected:
  static constexpr std::uint32_t kMost = 1u << 17;

  JingzhaoDoorbells() { make({.cq_entries = 8192}); }
  /// The doorbell of one WRITE, which has rung once.
  void post_one() {
    auto& host = Spoiler::of(world.a());
    host.doorbell = [&](std::span<std::byte, 8> doorbell) {
      std::ranges::copy(doorbell, rung.begin());
      host.doorbell = nullptr;
    };
    ASSERT_EQ(write(1, 0, 0), PostStatus::kOk);
  }
  void ring(std::uint32_t times) {
    auto& host = Spoiler::of(world.a());
    for (std::uint32_t i = 0; i != times; ++i) host.write_bar(2, host.doorbell_at(), rung);
  }
  /// Takes CQEs until there were `count`. Returns how many came.
  std::uint64_t take(std::uint64_t count) {
    std::uint64_t known = 0;
    // The driver has posted one request: it does not know the others.
    const auto taken = [&] { return known + a->send_cq->strays(); };
    world.run_until([&] {
      Completion next;
      while (a->send_cq->poll({&next, 1}) != 0) ++known;
      return taken() >= count;
    });
    return taken();
  }
  /// Queues of `event` since the last call.
  std::set<std::uint32_t> take_events(spec::jingzhao::event_type type) {
    std::set<std::uint32_t> numbers;
    while (const auto event = world.a().hca->poll_event()) {
      if (event->type == type) numbers.insert(event->number);
    }
    return numbers;
  }

  std::array<std::byte, 8> rung{};
};

TEST_F(JingzhaoDoorbells, AsManyAsMayWaitAreExecuted) {
  post_one();
  ring(kMost - 1);
  EXPECT_EQ(take(kMost), kMost);
  EXPECT_EQ(must(a->qp->query_state()), qp_state::RTS);
}

TEST_F(JingzhaoDoorbells, OneThatFindsNoRoomEndsItsQueuePairAlone) {
  Side other(world.a(), {}), its_peer(world.b(), {});
  connect(other, its_peer);
  (void)take_events(spec::jingzhao::event_type::COMM_EST);
  util::set_log_level(util::LogLevel::kWarning);
  testing::internal::CaptureStderr();
  post_one();
  ring(kMost);
  EXPECT_EQ(take(kMost), kMost) << "what waited is executed or flushed";
  const auto log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("WQ_CATAS_ERROR: more doorbells wait than the device keeps"), log.npos) << log;
  EXPECT_EQ(log.find("completion queue"), log.npos) << log;
  EXPECT_EQ(must(a->qp->query_state()), qp_state::ERR);
  EXPECT_EQ(take_events(spec::jingzhao::event_type::WQ_CATAS_ERROR), std::set{a->qp->qpn()});
  const auto bytes = other.piece(0, 1);
  ASSERT_EQ(other.qp->post_send({.id = 2,
                                 .opcode = SendOpcode::kRdmaWrite,
                                 .pieces = {&bytes, 1},
                                 .remote_address = its_peer.address(0),
                                 .rkey = its_peer.key->key()}),
            PostStatus::kOk);
  expect_success(wait(world, *other.send_cq), 2, CompletionOpcode::kRdmaWrite);
}

// Bit D is unused (3.4.1): the author's library sets it in each WQE of a list but the last, and
// rings once.
TEST_F(JingzhaoSendPlace, OneDoorbellExecutesAListWhoseWqesHaveBitD) {
  make({});
  std::array<Sge, 3> pieces{a->piece(0, 1), a->piece(1, 1), a->piece(2, 1)};
  std::array<driver::SendRequest, 3> requests;
  for (std::uint32_t i = 0; i != 3; ++i) {
    requests[i] = {.id = i,
                   .opcode = SendOpcode::kRdmaWrite,
                   .pieces = {&pieces[i], 1},
                   .remote_address = b->address(0x4000 + i),
                   .rkey = b->key->key(),
                   .immediate = 0xC0FFEE00 + i};
  }
  unsigned marked = 0;
  Spoiler::of(world.a()).doorbell = [&](std::span<std::byte, 8>) {
    for (const auto& region : Spoiler::of(world.a()).regions()) {
      for (std::size_t at = 0; at < region.bytes.size(); at += next_unit::kSize) {
        const util::MutableView<next_unit> unit(region.bytes.subspan(at, next_unit::kSize));
        const auto immediate = unit.get(next_unit::imm_data);
        if (immediate != 0xC0FFEE00 && immediate != 0xC0FFEE01) continue;
        unit.set(next_unit::d, 1);
        ++marked;
      }
    }
  };
  auto status = PostStatus::kOk;
  ASSERT_EQ(a->qp->post_send(requests, status), 3u);
  ASSERT_EQ(marked, 2u);
  EXPECT_EQ(wait(world, *a->send_cq, 3).size(), 3u);
}

}  // namespace
}  // namespace softhca::jingzhao::test
