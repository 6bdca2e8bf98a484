// RC on a wire that loses, delays and doubles packets: a soak test by seed.

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>
#include <vector>

#include "rdma/pair.h"

namespace softhca::rdma::test {
namespace {

using enum WorkStatus;

/// Random requests in both directions over a bad wire. Memory and completions are compared with the
/// expected ones.
class RcSoak : public ::testing::TestWithParam<unsigned> {};

TEST_P(RcSoak, NothingIsLostReorderedOrDoneTwice) {
  const auto seed = GetParam();
  std::mt19937 random(seed);
  const auto below = [&](unsigned n) { return static_cast<unsigned>(random() % n); };
  WireOptions options;
  options.loss = below(11) / 100.0;
  options.duplicate = below(6) / 100.0;
  options.late = below(6) / 100.0;
  Pair pair(options, seed);
  const auto mtu = 256u << below(5);
  pair.adjust = [&](QpAttributes& attributes) {
    attributes.path_mtu = mtu;
    attributes.ack_timeout = 6;
    attributes.min_rnr_timer = 5;
    // Retries are not the subject: at 10 % loss seven in a row are rare, not impossible.
    attributes.rnr_retry = 7;
  };
  pair.connect();

  constexpr std::uint64_t kSource = 0, kTarget = 0x100000, kReadBack = 0x200000,
                          kCounter = 0x300000, kResults = 0x300100, kReceive = 0x320000;
  constexpr unsigned kSlot = 0x4000, kRequests = 60;
  for (auto* end : {&pair.a, &pair.b})
    end->fill(kSource, kRequests * kSlot, seed + (end == &pair.a));
  struct Expected {
    SendOpcode opcode;
    std::uint32_t cookie, length;
  };
  std::map<End*, std::vector<Expected>> posted;
  // Some receives are posted late, to provoke RNR NAKs; the receives behind them must wait.
  std::map<End*, std::deque<std::function<void()>>> waiting;
  const auto post_receive = [&](End& end, bool late, std::function<void()> post) {
    auto& queue = waiting[&end];
    if (queue.empty() && !late) return post();
    queue.push_back(std::move(post));
  };
  const auto post_waiting = [&](End& end) {
    for (const auto& post : waiting[&end]) post();
    waiting[&end].clear();
  };
  for (unsigned i = 0; i < kRequests; ++i) {
    for (auto* end : {&pair.a, &pair.b}) {
      auto& other = end == &pair.a ? pair.b : pair.a;
      auto& qp = end == &pair.a ? *pair.qa : *pair.qb;
      auto& other_qp = end == &pair.a ? *pair.qb : *pair.qa;
      const auto length = below(4) == 0 ? below(8) : below(kSlot - 64);
      const std::uint64_t slot = i * kSlot;
      const bool last = i + 1 == kRequests;
      SendRequest request;
      switch (last ? 3 : below(6)) {
        case 0:
          request = read(kReadBack + slot % 0x80000, kSource, length);
          break;
        case 1:
          request = fetch_add(kResults + 8 * i, kCounter, 1);
          break;
        case 2:
          request = write(kSource + slot, kTarget + slot, length);
          request.opcode = SendOpcode::kRdmaWriteWithImmediate;
          request.immediate = i;
          post_receive(other, below(4) == 0, [&, i] { other.post_receive(other_qp, {}, i); });
          break;
        case 3:
          request = send(kSource + slot, length);
          post_receive(other, last || below(4) == 0, [&, i, slot] {
            other.post_receive(other_qp, {End::sge(kReceive + slot, kSlot)}, i);
          });
          break;
        default:
          request = write(kSource + slot, kTarget + slot, length);
      }
      request.fence = below(5) == 0;
      posted[end].push_back({request.opcode, request.cookie, length});
      end->post(qp, request);
    }
    if (below(3) == 0) pair.drive_for(std::chrono::microseconds(below(30)));
    if (below(4) == 0 && i + 1 != kRequests) {
      post_waiting(pair.a);
      post_waiting(pair.b);
    }
  }
  // At the latest, the last requests of both ends find no receive. This phase must be short,
  // because a lost packet's retry count is not restored while no request makes progress (IBTA
  // 9.7.6.1.3).
  const auto refused = [](const End& end) { return end.counters.rnr_naks_sent != 0; };
  for (unsigned i = 0; i < 2000 && !(refused(pair.a) && refused(pair.b)); ++i) {
    pair.drive_for(20us);
    for (auto* end : {&pair.a, &pair.b}) {
      if (refused(*end)) post_waiting(*end);
    }
  }
  EXPECT_TRUE(refused(pair.a) && refused(pair.b));
  post_waiting(pair.a);
  post_waiting(pair.b);
  pair.drive();

  for (auto* end : {&pair.a, &pair.b}) {
    for (const auto& done : end->hca.sends) {
      if (done.status != kSuccess && done.status != kFlushed)
        ADD_FAILURE() << describe(done.reason).text;
    }
    for (const auto& event : end->hca.events) ADD_FAILURE() << describe(event.reason).text;
  }
  for (auto* end : {&pair.a, &pair.b}) {
    auto& other = end == &pair.a ? pair.b : pair.a;
    std::uint64_t adds = 0;
    ASSERT_EQ(end->hca.sends.size(), kRequests);
    std::size_t received = 0;
    for (unsigned i = 0; i < kRequests; ++i) {
      const auto& expected = posted[end][i];
      const auto& done = end->hca.sends[i];
      ASSERT_EQ(done.status, kSuccess) << describe(done.reason).text << end->transport.inspect();
      ASSERT_EQ(done.cookie, expected.cookie);
      const std::uint64_t slot = i * kSlot;
      switch (expected.opcode) {
        case SendOpcode::kFetchAdd:
          ASSERT_EQ(end->load64(kResults + 8 * i), adds++) << "atomic " << i;
          break;
        case SendOpcode::kRdmaWriteWithImmediate:
        case SendOpcode::kSend: {
          const auto& receive = other.hca.receives.at(received++).completion;
          ASSERT_EQ(receive.cookie, i);
          ASSERT_EQ(receive.byte_count, expected.length);
          const auto place = expected.opcode == SendOpcode::kSend ? kReceive : kTarget;
          ASSERT_EQ(std::memcmp(end->at(kSource + slot), other.at(place + slot), expected.length),
                    0);
          break;
        }
        case SendOpcode::kRdmaWrite:
          ASSERT_EQ(std::memcmp(end->at(kSource + slot), other.at(kTarget + slot), expected.length),
                    0);
          break;
        default:
          break;
      }
    }
    ASSERT_EQ(other.load64(kCounter), adds);
    ASSERT_EQ(other.hca.receives.size(), received);
    // READ targets are reused; the last READ to each place is the expected one.
    std::map<std::uint64_t, std::uint32_t> last_read;
    for (unsigned i = 0; i < kRequests; ++i) {
      if (posted[end][i].opcode != SendOpcode::kRdmaRead) continue;
      ASSERT_EQ(end->hca.sends[i].byte_count, posted[end][i].length);
      last_read[i * kSlot % 0x80000] = posted[end][i].length;
    }
    for (const auto& [slot, length] : last_read) {
      ASSERT_EQ(std::memcmp(end->at(kReadBack + slot), other.at(kSource), length), 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RcSoak, ::testing::Range(1u, 201u));

}  // namespace
}  // namespace softhca::rdma::test
