// Attacks of a guest on its own device, with its driver or its own program.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <vector>

#include "neighbours.h"
#include "spec/connectx/cq.h"
#include "vfio_user/serve_loop.h"

namespace softhca::neighbours {
namespace {

using driver::SendOpcode;
using driver::SendRequest;

using GuestNeighbours = Neighbours;
SOFTHCA_WITH_AND_WITHOUT_ISOLATE(GuestNeighbours);

/// Keeps the queues of `pairs` full of `request` for kFlood. Returns how many requests completed.
std::uint64_t flood(LoopHca& loop, std::vector<LoopPair>& pairs, const SendRequest& request) {
  std::uint64_t completed = 0;
  std::vector<driver::Completion> done(256);
  for (const auto end = util::monotonic_now() + kFlood; util::monotonic_now() < end;) {
    for (auto& pair : pairs) {
      while (pair.from->post_send(request) == driver::PostStatus::kOk) {
      }
    }
    completed += loop.cq().poll(done);
  }
  return completed;
}

// Finding 1.
TEST_P(GuestNeighbours, KeysOfKeysOfSingleBytesAreWorkThatTheirGuestPays) {
  {
    LoopHca loop(hostile(), 2, 64 << 10);
    constexpr std::uint32_t kBytes = 4096;
    // Three levels. On each of them, every byte is a piece of its own.
    auto below = loop.key();
    auto address = loop.iova();
    for (int level = 0; level < 3; ++level) {
      std::vector<LoopHca::Piece> pieces;
      for (std::uint32_t i = 0; i != kBytes; ++i) pieces.push_back({1, below, address + i});
      address = 0x100000;
      below = loop.make_indirect_key(address, pieces);
    }
    std::vector<LoopPair> pairs;
    for (int i = 0; i < 8; ++i) pairs.push_back(loop.make_pair());
    const driver::Sge piece{address, kBytes, below};
    const auto completed = flood(loop, pairs,
                                 {.opcode = SendOpcode::kRdmaWrite,
                                  .pieces = {&piece, 1},
                                  .remote_address = address,
                                  .rkey = below});
    EXPECT_GT(completed, 0u) << "it is slow, and it works";
  }
  expect_unharmed(kKeysMaxWork);
}

TEST_P(GuestNeighbours, InspectOfHundredsOfObjectsIsPutTogetherInShortTurns) {
  {
    LoopHca loop(hostile(), 2, 4096);
    std::vector<std::unique_ptr<driver::connectx::QueuePair>> pairs;
    for (int i = 0; i < 400; ++i) pairs.push_back(loop.make_qp());
    for (int i = 0; i < 8; ++i) {
      const auto all = server_.inspect("--count 256");
      const auto& hostile = all["hostile"];
      ASSERT_EQ(hostile["queue_pairs"].size(), 256u) << all;
      EXPECT_EQ(hostile["queue_pairs_count"], 400);
      ASSERT_TRUE(all.contains("honest_mover"));
      EXPECT_THAT(server_.ask("inspect hostile"), ::testing::HasSubstr("16 of 400, --from "));
    }
  }
  expect_unharmed();
}

// Finding 12.
TEST_P(GuestNeighbours, FullBandwidthOfAnotherLeavesTimeForShortReads) {
  {
    LoopHca loop(hostile(), 2, 2 << 20);
    std::vector<LoopPair> pairs;
    for (int i = 0; i < 4; ++i) pairs.push_back(loop.make_pair());
    const auto piece = loop.piece(0, 1 << 20);
    EXPECT_GT(flood(loop, pairs,
                    {.opcode = SendOpcode::kRdmaWrite,
                     .pieces = {&piece, 1},
                     .remote_address = loop.iova(1 << 20),
                     .rkey = loop.key()}),
              0u);
  }
  expect_unharmed();
}

// Each message of a batch is work, and a batch is the work of many turns.
TEST_P(GuestNeighbours, MillionsOfTinyMessagesLeaveTimeForOthers) {
  {
    constexpr unsigned kBatch = 8192;
    LoopHca loop(hostile(), 2, 64 << 10);
    auto pair = loop.make_pair({.send_cq = loop.cq(),
                                .receive_cq = loop.cq(),
                                .send = {.requests = kBatch, .pieces = 1, .inline_size = 0}});
    const auto piece = loop.piece(0, 8);
    std::vector<SendRequest> batch(kBatch, {.opcode = SendOpcode::kRdmaWrite,
                                            .pieces = {&piece, 1},
                                            .remote_address = loop.iova(4096),
                                            .rkey = loop.key(),
                                            .signaled = false});
    batch.back().signaled = true;
    const auto before = server_.turns().all;
    std::uint64_t batches = 0;
    for (const auto end = util::monotonic_now() + kFlood; util::monotonic_now() < end;) {
      driver::PostStatus status{};
      ASSERT_EQ(pair.from->post_send(batch, status), kBatch);
      std::array<driver::Completion, 1> done;
      while (loop.cq().poll(done) == 0 && !loop.host().lost()) {
      }
      ASSERT_FALSE(loop.host().lost());
      ASSERT_EQ(done[0].status, driver::WorkStatus::kSuccess);
      ++batches;
    }
    // A batch is 4.9 million units of work.
    constexpr std::uint64_t kTurnsOfABatch = 4'900'000 / vfio_user::ServeLoop::kTurnWork;
    EXPECT_GE(server_.turns().all - before, batches * kTurnsOfABatch / 2) << batches << " batches";
  }
  expect_unharmed();
}

// Finding 10.
TEST_P(GuestNeighbours, UnansweredRequestsTakeBoundedMemory) {
  const auto before = server_.resident_bytes();
  {
    LoopHca loop(hostile(), 2, 4096);
    std::vector<LoopPair> pairs;
    const std::vector<std::byte> bytes(64);
    for (int i = 0; i < 300; ++i) {
      pairs.push_back(loop.make_pair({.send_cq = loop.cq(),
                                      .receive_cq = loop.cq(),
                                      .send = {.requests = 256, .pieces = 1, .inline_size = 64}}));
      auto& pair = pairs.back();
      must(pair.to->to_reset());  // the peer is gone
      while (pair.from->post_send({.inline_data = bytes}) == driver::PostStatus::kOk) {
      }
    }
    EXPECT_TRUE(honest_.advances(3, 20s));
    EXPECT_LT(server_.resident_bytes() - std::min(before, server_.resident_bytes()), 200u << 20);
  }
  expect_unharmed();
}

// Finding 9.
TEST_P(GuestNeighbours, AFloodOfBadCommandsAndResetsFloodsNoLog) {
  const auto before = server_.log_size();
  const auto begin = util::monotonic_now();
  while (util::monotonic_now() < begin + 1s) {
    LoopHca loop(hostile(), 2, 4096);
    for (int i = 0; i < 200; ++i) {
      driver::connectx::Request<spec::connectx::nop_in> in(
          static_cast<spec::connectx::command_opcode>(0xbad));
      (void)loop.hca().commands().run(in);
    }
  }
  // On a busy machine the last round takes long, and the log has so many lines a second.
  const auto time = static_cast<std::uint64_t>((util::monotonic_now() - begin) / 1ms);
  EXPECT_LT(server_.log_size() - before, (200u << 10) * time / 3000);
  expect_unharmed();
}

/// CREATE_CQ, with its record at byte `record` of a page.
util::Result<std::uint32_t> create_cq(LoopHca& loop, const driver::DmaBuffer& memory,
                                      std::size_t record) {
  namespace spec = softhca::spec::connectx;
  driver::connectx::Request<spec::create_cq_in> in(spec::command_opcode::CREATE_CQ,
                                                   driver::connectx::page_list_size(4096));
  const auto context = in.sub(spec::create_cq_in::cq_context_entry);
  context.set(spec::cq_context::log_cq_size, 6);
  context.set(spec::cq_context::uar_page, loop.hca().uar());
  context.set(spec::cq_context::c_eqn, loop.hca().completion_events().eqn());
  context.set(spec::cq_context::dbr_addr, memory.iova(4096 + record));
  driver::connectx::store_page_list(in.all().subspan(spec::create_cq_in::pas_offset), memory);
  const auto out = loop.hca().commands().execute<spec::create_cq_out>(in);
  if (!out) return tl::unexpected(out.error());
  return out->get(spec::create_cq_out::cqn);
}

// PRM 7.12.2. The last record would end in a page that is not the guest's.
TEST_P(GuestNeighbours, DoorbellRecordsThatAreNotAlignedAreRefused) {
  {
    LoopHca loop(hostile(), 2, 4096);
    const auto memory = must(driver::DmaBuffer::allocate(loop.host(), 8192));
    for (const std::size_t record : {1, 2, 3, 4, 5, 6, 7, 4089, 4092, 4095}) {
      EXPECT_FALSE(create_cq(loop, memory, record)) << record;
    }
    const auto cqn = create_cq(loop, memory, 4088);
    ASSERT_TRUE(cqn);
    driver::connectx::Request<spec::connectx::destroy_cq_in> in(
        spec::connectx::command_opcode::DESTROY_CQ);
    in.set(spec::connectx::destroy_cq_in::cqn, *cqn);
    must(loop.hca().commands().run(in));
  }
  expect_unharmed();
}

// Finding 15: PCI 3.0 6.2.2, bit 2 of the command register.
TEST_P(GuestNeighbours, WithoutBusMasteringNothingIsWrittenAnyMore) {
  {
    LoopHca loop(hostile(), 2, 2 << 20);
    auto pair = loop.make_pair();
    const auto piece = loop.piece(0, 1 << 20);
    const auto post = [&] {
      return pair.from->post_send({.opcode = SendOpcode::kRdmaWrite,
                                   .pieces = {&piece, 1},
                                   .remote_address = loop.iova(1 << 20),
                                   .rkey = loop.key()});
    };
    for (int round = 0; round < 20; ++round) {
      while (post() == driver::PostStatus::kOk) {
      }
      std::array<std::byte, 2> command{std::byte{0x02}, std::byte{0}};
      loop.host().write_config(4, command);
      std::array<std::byte, 2> now{};
      loop.host().read_config(4, now);  // the write has arrived
      // Changes the bytes to send. None of the new ones may be received.
      std::ranges::fill(loop.memory(), static_cast<std::byte>(round + 1));
      const auto target = loop.memory().subspan(1 << 20);
      std::ranges::fill(target, std::byte{0xee});
      std::this_thread::sleep_for(10ms);
      EXPECT_EQ(std::ranges::count(target, std::byte{0xee}), 1 << 20);
      command[0] = std::byte{0x06};
      loop.host().write_config(4, command);
      std::array<driver::Completion, 256> done;
      (void)loop.cq().poll(done);
    }
  }
  expect_unharmed();
}

}  // namespace
}  // namespace softhca::neighbours
