// All operations over a link that loses, duplicates and reorders: they must arrive whole, once, in
// order.
#include <fmt/format.h>

#include <cstring>
#include <random>

#include "driver/world.h"

namespace softhca::driver::test {
namespace {

class ImpairedWire : public ::testing::TestWithParam<unsigned> {
 protected:
  static constexpr std::size_t kSlots = 8;
  static constexpr std::size_t kSlot = 32 << 10;
  static constexpr std::size_t kCounter = kSlots * kSlot;

  ImpairedWire() : random_(GetParam()) {
    for (const std::string_view action : {"lose", "duplicate", "reorder,distance=3"}) {
      const auto seed = 10 * GetParam() + counters_.size();
      counters_.push_back(
          &world_.add_fault(fmt::format("port=*,probability=0.02,seed={},do={}", seed, action)));
    }
    world_.add_fault("port=*,do=delay,time=2us,jitter=1us");
    world_.open();
    const Endpoint::Options options{.memory = kSlots * kSlot + 64};
    a_ = std::make_unique<Endpoint>(world_.a(), options);
    b_ = std::make_unique<Endpoint>(world_.b(), options);
    const unsigned mtu = 256u << GetParam() % 5;
    connect(*a_, *b_, {.path_mtu = mtu, .ack_timeout = 8, .rnr_retry = 7, .min_rnr_timer = 1});
  }

  /// One request in slot `i`, with an opcode that depends on the slot.
  SendRequest request(std::size_t i, const Sge& piece) {
    static constexpr std::array kOpcodes{SendOpcode::kRdmaWrite, SendOpcode::kRdmaRead,
                                         SendOpcode::kSend, SendOpcode::kFetchAdd,
                                         SendOpcode::kRdmaWriteWithImmediate};
    const auto opcode = kOpcodes[i % kOpcodes.size()];
    return {.id = i,
            .opcode = opcode,
            .pieces = {&piece, 1},
            .remote_address =
                opcode == SendOpcode::kFetchAdd ? b_->address(kCounter) : b_->address(i * kSlot),
            .rkey = b_->key->key(),
            .immediate = static_cast<std::uint32_t>(i),
            .swap_or_add = 1};
  }

  World world_;
  std::mt19937 random_;
  std::unique_ptr<Endpoint> a_;
  std::unique_ptr<Endpoint> b_;
  std::vector<const fabric::NetworkFaults::Counters*> counters_;  ///< of the faults
};

TEST_P(ImpairedWire, EverythingArrivesWholeOnceAndInOrder) {
  std::uint64_t added = 0;
  for (unsigned round = 0; round < 6; ++round) {
    std::array<std::size_t, kSlots> sizes{};
    std::array<std::vector<std::byte>, kSlots> contents;
    for (std::size_t i = 0; i < kSlots; ++i) {
      sizes[i] = random_() % 20000 + 1;
      contents[i] = pattern(sizes[i], static_cast<std::uint32_t>(random_()));
      const bool is_read = i % 5 == 1;
      const bool is_atomic = i % 5 == 3;
      auto& source = is_read ? *b_ : *a_;
      std::copy(contents[i].begin(), contents[i].end(), source.bytes(i * kSlot, sizes[i]).begin());
      if (is_atomic) sizes[i] = 8;
      if (i % 5 == 2 || i % 5 == 4) b_->receive(i, i * kSlot, kSlot);
    }
    for (std::size_t i = 0; i < kSlots; ++i) {
      const auto piece = a_->piece(i * kSlot, sizes[i]);
      ASSERT_EQ(a_->qp->post_send(request(i, piece)), PostStatus::kOk);
    }
    const auto done = wait(world_, *a_->send_cq, kSlots);
    ASSERT_EQ(done.size(), kSlots);
    for (std::size_t i = 0; i < kSlots; ++i) {
      ASSERT_EQ(to_string(done[i].status), to_string(WorkStatus::kSuccess)) << i;
      EXPECT_EQ(done[i].id, i);
      if (i % 5 == 3) {
        std::uint64_t old = 0;
        std::memcpy(&old, a_->memory.data() + i * kSlot, sizeof(old));
        EXPECT_EQ(old, added++) << "each atomic exactly once";
        continue;
      }
      auto& target = i % 5 == 1 ? *a_ : *b_;
      EXPECT_EQ(std::memcmp(target.memory.data() + i * kSlot, contents[i].data(), sizes[i]), 0)
          << i;
    }
    const auto received = wait(world_, *b_->receive_cq, 3);  // slots 2, 4, 7
    ASSERT_EQ(received.size(), 3u);
    EXPECT_EQ(received[0].id, 2u);
    EXPECT_EQ(received[1].id, 4u);
    EXPECT_EQ(received[1].immediate, 4u);
    EXPECT_EQ(received[2].id, 7u);
  }
  std::uint64_t fired = 0;
  for (const auto* fault : counters_) fired += fault->fired;
  EXPECT_GT(fired, 0u) << "the wire did what it was told";
}

INSTANTIATE_TEST_SUITE_P(Seeds, ImpairedWire, ::testing::Range(0u, 30u));

}  // namespace
}  // namespace softhca::driver::test
