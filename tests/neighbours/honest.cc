#include "honest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <exception>

#include "loop_hca.h"
#include "server.h"

namespace softhca::neighbours {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMessage = 64 << 10;
/// A wait above this is the server's doing, whatever else the machine has to do.
constexpr auto kWaitMax = kSanitized ? 2000ms : 200ms;

}  // namespace

Honest::Honest(std::string socket, unsigned number)
    : socket_(std::move(socket)), number_(number), thread_([this] {
        try {
          work();
        } catch (const std::exception& error) {
          error_ = error.what();
        }
      }) {}

Honest::~Honest() {
  ending_ = true;
  if (thread_.joinable()) thread_.join();
}

void Honest::work() {
  LoopHca loop(socket_, number_, 2 * kMessage);
  auto pair = loop.make_pair();
  auto from = loop.memory().first(kMessage), to = loop.memory().subspan(kMessage, kMessage);
  const auto piece = loop.piece(0, kMessage);
  for (std::uint32_t round = 1; !ending_; ++round) {
    for (std::size_t i = 0; i < kMessage; i += sizeof round) {
      const auto word = round * 2654435761u + static_cast<std::uint32_t>(i);
      std::memcpy(&from[i], &word, sizeof word);
    }
    if (pair.from->post_send({.id = round,
                              .opcode = driver::SendOpcode::kRdmaWrite,
                              .pieces = {&piece, 1},
                              .remote_address = loop.iova(kMessage),
                              .rkey = loop.key()}) != driver::PostStatus::kOk) {
      throw std::runtime_error("post_send");
    }
    // A register read on the way: a vCPU waits for it.
    const auto start = util::monotonic_now();
    std::uint32_t id = 0;
    loop.host().read_config(0, std::as_writable_bytes(std::span(&id, 1)));
    reads_.push_back(util::monotonic_now() - start);
    if (id != 0x101315b3) throw std::runtime_error("a register read failed");
    driver::Completion done;
    while (loop.cq().poll({&done, 1}) == 0) {
      if (util::monotonic_now() - start > 20s) throw std::runtime_error("no completion");
    }
    if (done.status != driver::WorkStatus::kSuccess || done.id != round) {
      throw std::runtime_error("a message failed");
    }
    if (std::memcmp(from.data(), to.data(), kMessage) != 0) {
      throw std::runtime_error("the bytes are not those that were sent");
    }
    ++messages_;
  }
}

bool Honest::advances(std::uint64_t messages, util::Duration within) const {
  const auto wanted = messages_ + messages;
  const auto end = util::monotonic_now() + within;
  while (messages_ < wanted && util::monotonic_now() < end) std::this_thread::sleep_for(1ms);
  return messages_ >= wanted;
}

void Honest::end(const char* what) {
  ending_ = true;
  thread_.join();
  EXPECT_EQ(error_, "") << what;
  EXPECT_GT(messages_, 0u) << what;
  if (reads_.empty()) return;
  std::ranges::sort(reads_);
  const auto us = [](util::Duration time) {
    return static_cast<long long>(
        std::chrono::duration_cast<std::chrono::microseconds>(time).count());
  };
  std::printf("%s: %llu messages; register reads: median %lld us, longest %lld us\n", what,
              static_cast<unsigned long long>(messages_), us(reads_[reads_.size() / 2]),
              us(reads_.back()));
  EXPECT_LT(reads_.back(), kWaitMax) << what;
}

}  // namespace softhca::neighbours
