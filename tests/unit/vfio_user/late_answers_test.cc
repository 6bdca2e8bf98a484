// Memory by messages of a client that answers late, but in time: the loop waits for each answer.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "vfio_user/served_function.h"

namespace softhca {
namespace {

using namespace std::chrono_literals;
using namespace vfio_user::protocol;
using os::UniqueFd;
using test::bytes_of;
using test::TestFunction;

/// A client answers each read of its memory after some time by the server's clock, which stands
/// still otherwise.
class LateAnswersTest : public test::ServedFunction {
 protected:
  LateAnswersTest() {
    time_ = util::Duration(1h).count();
    serve_with({.reply_timeout = 20s, .clocks = {.now = now}});
  }
  static util::Time now() { return util::Time(util::Duration(time_)); }
  static void advance(util::Duration by) { time_ += by.count(); }

  vfio_user::Client owner() {
    auto client = negotiated();
    EXPECT_EQ(client.map_dma(0x8000, 4096, -1, 0), 0);
    return client;
  }
  /// Makes the function read `count` times, while the client takes `each` for an answer. Returns
  /// how many reads succeed.
  unsigned reads(vfio_user::Client& client, unsigned count, util::Duration each) {
    std::atomic<bool> ended = false;
    std::thread answers([&] {
      vfio_user::MessageStream stream{UniqueFd(::dup(client.fd()))};
      while (!ended) {
        if (!stream.wait_readable(util::monotonic_now() + 10ms)) continue;
        stream.receive();
        while (const auto request = stream.next()) {
          ++requests_;
          advance(each);
          auto header = request->header;
          header.flags = kTypeReply;
          header.message_size = sizeof(Header) + sizeof(DmaAccess) + sizeof(std::uint64_t);
          const auto access = load<DmaAccess>(request->payload);
          stream.send(header, bytes_of(access), bytes_of(std::uint64_t{1}));
        }
      }
    });
    unsigned good = 0;
    for (unsigned i = 0; i != count; ++i) {
      function_.dma_from = 0x8000;
      loop_->turn(util::Time{});
      good += util::load_le64(&function_.memory[TestFunction::kDmaOk]) == 1;
    }
    ended = true;
    answers.join();
    return good;
  }

  static inline std::atomic<util::Duration::rep> time_{};
  std::atomic<unsigned> requests_ = 0;
};

TEST_F(LateAnswersTest, AClientWhoseAnswersAreJustInTimeHasABudget) {
  auto client = owner();
  for (int i = 0; i != 3; ++i) {
    const auto start = now();
    requests_ = 0;
    EXPECT_EQ(reads(client, 20, 90ms), 6u);
    EXPECT_EQ(requests_, 6u) << "it is asked no more";
    EXPECT_EQ(now() - start, 540ms);
    advance(4900ms);
    EXPECT_EQ(reads(client, 1, 90ms), 0u);
    advance(100ms);
  }
  EXPECT_EQ(std::ranges::count_if(
                log_, [](const auto& line) { return line.find("by messages") != line.npos; }),
            3);
  EXPECT_TRUE(server_->connected());
}

TEST_F(LateAnswersTest, AClientThatConnectsAgainGetsNoNewTime) {
  {
    auto client = owner();
    EXPECT_EQ(reads(client, 3, 90ms), 3u);
  }
  settle();
  auto client = owner();
  EXPECT_EQ(reads(client, 20, 90ms), 3u);
}

TEST_F(LateAnswersTest, AnHonestClientUsesUpNothing) {
  auto client = owner();
  EXPECT_EQ(reads(client, 1000, 1ms), 1000u);
}

TEST_F(LateAnswersTest, AnswersThatAreSeldomLateAreForgotten) {
  auto client = owner();
  for (int i = 0; i != 4; ++i) {
    EXPECT_EQ(reads(client, 5, 90ms), 5u);
    advance(5s);
  }
}

}  // namespace
}  // namespace softhca
