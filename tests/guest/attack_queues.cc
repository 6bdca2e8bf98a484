#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "attacks.h"

namespace softhca::guest {
namespace {

using driver::SendOpcode;
using driver::SendRequest;
using driver::connectx::Connection;
using driver::connectx::QueuePair;
using neighbours::LoopPair;
using neighbours::must;

/// Keeps the send queues of `pairs` full of `request`. A failed request ends this life.
void flood(Life& life, std::vector<LoopPair>& pairs, const SendRequest& request) {
  std::vector<driver::Completion> done(256);
  while (life.goes_on()) {
    for (auto& pair : pairs) {
      while (pair.from->post_send(request) == driver::PostStatus::kOk) {
      }
    }
    const auto completed = life.loop().cq().poll(done);
    for (std::size_t i = 0; i != completed; ++i) {
      if (done[i].status != driver::WorkStatus::kSuccess) Life::end();
    }
    life.did(completed);
  }
}

std::vector<LoopPair> make_pairs(Life& life, unsigned count) {
  std::vector<LoopPair> pairs;
  for (unsigned i = 0; i != count; ++i) pairs.push_back(life.loop().make_pair());
  return pairs;
}

void write_to_itself(Life& life, unsigned queues, std::uint32_t size) {
  auto& loop = life.loop();
  auto pairs = make_pairs(life, queues);
  const auto piece = loop.piece(0, size);
  flood(life, pairs,
        {.opcode = SendOpcode::kRdmaWrite,
         .pieces = {&piece, 1},
         .remote_address = loop.iova(2 << 20),
         .rkey = loop.key()});
}

}  // namespace

void flood_with_keys_of_keys(Life& life) {
  auto& loop = life.loop();
  constexpr std::uint32_t kBytes = 4096;
  // Three levels of keys. On each of them, every byte is a separate piece.
  auto below = loop.key();
  auto address = loop.iova();
  for (int level = 0; level < 3; ++level) {
    std::vector<neighbours::LoopHca::Piece> pieces;
    for (std::uint32_t i = 0; i != kBytes; ++i) pieces.push_back({1, below, address + i});
    address = 0x100000;
    below = loop.make_indirect_key(address, pieces);
  }
  auto pairs = make_pairs(life, 8);
  const driver::Sge piece{address, kBytes, below};
  flood(life, pairs,
        {.opcode = SendOpcode::kRdmaWrite,
         .pieces = {&piece, 1},
         .remote_address = address,
         .rkey = below});
}

void flood_with_long_messages(Life& life) { write_to_itself(life, 8, 1 << 20); }

void flood_with_tiny_messages(Life& life) { write_to_itself(life, 16, 8); }

void ask_who_does_not_answer(Life& life) {
  auto& loop = life.loop();
  std::vector<LoopPair> pairs;
  const std::vector<std::byte> bytes(64);
  while (life.goes_on()) {
    pairs.push_back(loop.make_pair({.send_cq = loop.cq(),
                                    .receive_cq = loop.cq(),
                                    .send = {.requests = 256, .pieces = 1, .inline_size = 64}}));
    auto& pair = pairs.back();
    must(pair.to->to_reset());  // the peer answers nothing any more
    while (pair.from->post_send({.inline_data = bytes}) == driver::PostStatus::kOk) life.did();
  }
}

void make_timers_expire(Life& life) {
  auto& loop = life.loop();
  std::vector<LoopPair> pairs;
  const std::vector<std::byte> bytes(8);
  // The shortest timers: 8 us for an acknowledgment, 10 us after an RNR NAK.
  const Connection hasty{
      .path_mtu = 256, .ack_timeout = 1, .retry_count = 7, .rnr_retry = 7, .min_rnr_timer = 1};
  while (life.goes_on()) {
    if (pairs.size() < 200) {
      pairs.push_back(loop.make_pair({.send_cq = loop.cq(), .receive_cq = loop.cq()}, hasty));
      // Half of the peers are in RESET; the others never post a receive.
      if (pairs.size() % 2 == 0) must(pairs.back().to->to_reset());
    }
    for (auto& pair : pairs) {
      if (pair.from->post_send({.inline_data = bytes}) == driver::PostStatus::kOk) life.did();
    }
    std::array<driver::Completion, 64> done;
    (void)loop.cq().poll(done);
  }
}

void withdraw_memory(Life& life) {
  auto& loop = life.loop();
  // Whole pages, because a mapping begins with the page of its first byte.
  constexpr std::size_t kSize = 1 << 20, kPage = 4096;
  const std::unique_ptr<void, decltype(&std::free)> pages(std::aligned_alloc(kPage, kSize),
                                                          std::free);
  const std::span memory(static_cast<std::byte*>(pages.get()), kSize);
  std::ranges::fill(memory, std::byte{0});
  while (life.goes_on()) {
    auto pair = loop.make_pair();
    bool works = true;
    while (works && life.goes_on()) {
      const auto region = must(life.host().map(memory));
      const driver::Sge piece{region.iova, 1 << 19, loop.key()};
      for (const auto opcode : {SendOpcode::kRdmaWrite, SendOpcode::kRdmaRead}) {
        (void)pair.from->post_send({.opcode = opcode,
                                    .pieces = {&piece, 1},
                                    .remote_address = region.iova + (1 << 19),
                                    .rkey = loop.key()});
      }
      life.host().unmap(region);
      life.did();
      std::array<driver::Completion, 16> done;
      const auto completed = loop.cq().poll(done);
      works =
          std::all_of(done.begin(), done.begin() + static_cast<std::ptrdiff_t>(completed),
                      [](const auto& one) { return one.status == driver::WorkStatus::kSuccess; });
    }
  }
}

}  // namespace softhca::guest
