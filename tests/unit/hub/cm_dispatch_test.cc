// To which of the processes that share an address a communication manager's message goes.
#include "hub/cm_dispatch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "hub/cm_packets.h"

namespace softhca::hub {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kOtherService = 0x0106'4712;
CmService at_all(std::uint64_t id) { return {.id = id, .address = CmService::all()}; }
bool contains(std::span<const RoceBlock> blocks, RoceBlock block) {
  return std::ranges::find(blocks, block) != blocks.end();
}
constexpr std::uint32_t id_of(RoceBlock block, std::uint32_t number = 0x1234) {
  return std::uint32_t{block} << 24 | number;
}

class CmDispatchTest : public testing::Test {
 protected:
  std::optional<RoceBlock> route(const CmPacket& packet) { return route(packet, peer); }
  std::optional<RoceBlock> route(const CmPacket& packet, const wire::Gid& from) {
    return route(packet, from, address);
  }

  std::optional<RoceBlock> route(const CmPacket& packet, const wire::Gid& from,
                                 const wire::Gid& to) {
    return dispatch.route({.from = from, .to = to}, packet, members, now);
  }
  std::optional<RoceBlock> route_at(CmDispatch& other, const CmPacket& packet,
                                    const wire::Gid& from) {
    return other.route({.from = from, .to = address}, packet, members, now);
  }

  const wire::Gid address = wire::Gid::from_ipv4(192, 0, 2, 1);
  const wire::Gid peer = wire::Gid::from_ipv4(192, 0, 2, 7);
  const wire::Gid another = wire::Gid::from_ipv4(192, 0, 2, 8);
  util::Time now{1h};
  std::vector<RoceBlock> members{4, 9, 2};
  CmDispatch dispatch;
};

TEST_F(CmDispatchTest, ARequestGoesToTheProcessThatListens) {
  ASSERT_TRUE(dispatch.listen(9, at_all(kService), now));
  ASSERT_TRUE(dispatch.listen(2, at_all(kOtherService), now));
  EXPECT_EQ(route(cm_request(kService, 1)), 9);
  EXPECT_EQ(route(cm_request(kOtherService, 2)), 2);
  EXPECT_EQ(route(cm_request(kOtherService, 3, Cm::SIDR_REQ)), 2);
  EXPECT_EQ(dispatch.counters().forwarded, 3u);
  EXPECT_EQ(dispatch.counters().unexpected, 0u);
}

TEST_F(CmDispatchTest, AMessageOfAConnectionGoesToTheProcessOfItsReceiversNumber) {
  for (const auto attribute : {Cm::MRA, Cm::REJ, Cm::REP, Cm::RTU, Cm::DREQ, Cm::DREP}) {
    EXPECT_EQ(route(cm_packet(attribute, id_of(2), id_of(9))), 9) << int(attribute);
  }
  EXPECT_EQ(dispatch.counters().forwarded, 6u);
}

TEST_F(CmDispatchTest, ASidrReplyGoesToTheProcessOfTheRequest) {
  EXPECT_EQ(route(cm_packet(Cm::SIDR_REP, id_of(2))), 2);
}

TEST_F(CmDispatchTest, ANumberOfNoProcessIsUnknown) {
  EXPECT_EQ(route(cm_packet(Cm::REP, 1, id_of(3))), std::nullopt);
  EXPECT_EQ(route(cm_packet(Cm::REP, 1, id_of(0))), std::nullopt);
  EXPECT_EQ(route(cm_packet(Cm::SIDR_REP, id_of(3))), std::nullopt);
  EXPECT_EQ(dispatch.counters().unknown, 3u);
}

// Its communication manager answers as that of a host would (IBTA 12.6.7.2, 12.9.6).
TEST_F(CmDispatchTest, TheOldestProcessAnswersWhatNoneExpects) {
  EXPECT_EQ(route(cm_request(kService, 1)), 4);
  EXPECT_EQ(route(cm_packet(Cm::DREQ, 1, id_of(3))), 4);
  EXPECT_EQ(dispatch.counters().unexpected, 2u);
  EXPECT_EQ(dispatch.requests(), 0u) << "a flood of these displaces no request";
}

TEST_F(CmDispatchTest, WithoutProcessesNothingIsForwarded) {
  members.clear();
  EXPECT_EQ(route(cm_request(kService, 1)), std::nullopt);
  EXPECT_EQ(route(cm_packet(Cm::DREQ, 1, id_of(4))), std::nullopt);
  EXPECT_EQ(dispatch.counters().unknown, 2u);
}

TEST_F(CmDispatchTest, AListenerAtAnotherAddressIsNotFound) {
  ASSERT_TRUE(dispatch.listen(7, at_all(kService), now));
  EXPECT_EQ(route(cm_request(kService, 1)), 4) << "process 7 does not have this address";
  EXPECT_EQ(dispatch.counters().unexpected, 1u);
}

TEST_F(CmDispatchTest, TheFirstOfTwoListenersGetsTheRequests) {
  ASSERT_TRUE(dispatch.listen(9, at_all(kService), now));
  ASSERT_TRUE(dispatch.listen(2, at_all(kService), now));
  EXPECT_TRUE(dispatch.listen(9, at_all(kService), now)) << "its own, again";
  EXPECT_EQ(route(cm_request(kService, 1)), 9) << "another process cannot take it away";
  dispatch.unlisten(2, at_all(kOtherService), now);
  dispatch.unlisten(9, at_all(kService), now);
  EXPECT_EQ(route(cm_request(kService, 2)), 2) << "one that listens precedes one that did";
  dispatch.unlisten(2, at_all(kService), now);
  EXPECT_EQ(dispatch.counters().refused, 0u);
}

// The hub may read the next listener's message before that of the last one's end.
TEST_F(CmDispatchTest, AListenerThatComesBeforeTheEndOfTheLastIsFound) {
  ASSERT_TRUE(dispatch.listen(9, at_all(kService), now));
  ASSERT_TRUE(dispatch.listen(2, at_all(kService), now));
  dispatch.unlisten(9, at_all(kService), now);
  EXPECT_EQ(route(cm_request(kService, 1)), 2);
  dispatch.forget(9);
  EXPECT_EQ(route(cm_request(kService, 2)), 2);
}

TEST_F(CmDispatchTest, RequestsGoToTheLastListenerForAWhile) {
  ASSERT_TRUE(dispatch.listen(9, at_all(kService), now));
  dispatch.unlisten(9, at_all(kService), now);
  now += CmDispatch::kListensAgain - 1ms;
  EXPECT_EQ(route(cm_request(kService, 1)), 9);
  now += 1ms;
  EXPECT_EQ(route(cm_request(kService, 2)), 4);
  EXPECT_TRUE(dispatch.listen(2, at_all(kService), now));
  EXPECT_EQ(route(cm_request(kService, 3)), 2);
  dispatch.forget(9);
  EXPECT_EQ(route(cm_request(kService, 4)), 2) << "the service was no longer process 9's";
}

// Programs may bind one port number of different addresses.
TEST_F(CmDispatchTest, AListenerOfAnAddressGetsNoRequestsToAnother) {
  const auto second = wire::Gid::from_ipv4(192, 0, 2, 2),
             third = wire::Gid::from_ipv4(192, 0, 2, 3);
  ASSERT_TRUE(dispatch.listen(9, {.id = kService, .address = address}, now));
  ASSERT_TRUE(dispatch.listen(2, {.id = kService, .address = second}, now));
  EXPECT_EQ(route(cm_request(kService, 1), peer, address), 9);
  EXPECT_EQ(route(cm_request(kService, 2), peer, second), 2);
  EXPECT_EQ(route(cm_request(kService, 3), peer, third), 4) << "no process listens there";
  EXPECT_EQ(dispatch.counters().unexpected, 1u);
}

TEST_F(CmDispatchTest, AListenerOfAllAddressesComesAfterThoseOfOne) {
  wire::Gid ipv6;
  ipv6.bytes[0] = std::byte{0xfd};
  ASSERT_TRUE(dispatch.listen(4, at_all(kService), now));
  EXPECT_EQ(route(cm_request(kService, 1), peer, ipv6), 4);
  ASSERT_TRUE(dispatch.listen(2, {.id = kService, .address = CmService::all_ipv6()}, now));
  EXPECT_EQ(route(cm_request(kService, 2), peer, ipv6), 2);
  EXPECT_EQ(route(cm_request(kService, 3), peer, address), 4);
  ASSERT_TRUE(dispatch.listen(9, {.id = kService, .address = CmService::all_ipv4()}, now));
  EXPECT_EQ(route(cm_request(kService, 4), peer, address), 9);
  EXPECT_EQ(route(cm_request(kService, 5), peer, ipv6), 2);
  ASSERT_TRUE(dispatch.listen(2, {.id = kService, .address = address}, now));
  EXPECT_EQ(route(cm_request(kService, 6), peer, address), 2);
}

TEST_F(CmDispatchTest, AListenerThatHasEndedComesAfterAllThatLive) {
  ASSERT_TRUE(dispatch.listen(9, {.id = kService, .address = address}, now));
  dispatch.unlisten(9, {.id = kService, .address = address}, now);
  EXPECT_EQ(route(cm_request(kService, 1), peer, address), 9);
  ASSERT_TRUE(dispatch.listen(2, at_all(kService), now));
  EXPECT_EQ(route(cm_request(kService, 2), peer, address), 2);
}

TEST_F(CmDispatchTest, AListenerThatReturnsIsThereForGood) {
  ASSERT_TRUE(dispatch.listen(9, at_all(kService), now));
  dispatch.unlisten(9, at_all(kService), now);
  now += 1s;
  ASSERT_TRUE(dispatch.listen(9, at_all(kService), now));
  now += 1h;
  EXPECT_EQ(route(cm_request(kService, 1)), 9);
}

TEST_F(CmDispatchTest, ARepeatedRequestGoesWhereTheFirstWent) {
  ASSERT_TRUE(dispatch.listen(9, at_all(kService), now));
  EXPECT_EQ(route(cm_request(kService, 1)), 9);
  dispatch.unlisten(9, at_all(kService), now);
  now += 10s;
  ASSERT_TRUE(dispatch.listen(2, at_all(kService), now));
  EXPECT_EQ(route(cm_request(kService, 1)), 9);
  EXPECT_EQ(dispatch.counters().duplicates, 1u);
  EXPECT_EQ(route(cm_request(kService, 1), another), 2) << "the same number of another peer";
  EXPECT_EQ(route(cm_request(kService, 1, Cm::SIDR_REQ)), 2) << "the same number of a datagram";
  EXPECT_EQ(dispatch.counters().duplicates, 1u);
}

TEST_F(CmDispatchTest, ANumberThatIsUsedAgainBelongsToANewRequest) {
  ASSERT_TRUE(dispatch.listen(9, at_all(kService), now));
  ASSERT_TRUE(dispatch.listen(2, at_all(kOtherService), now));
  EXPECT_EQ(route(cm_request(kService, 1)), 9);
  EXPECT_EQ(route(cm_request(kOtherService, 1)), 2) << "for another service";
  dispatch.unlisten(2, at_all(kOtherService), now);
  now += CmDispatch::kRemembered;
  ASSERT_TRUE(dispatch.listen(9, at_all(kOtherService), now));
  EXPECT_EQ(route(cm_request(kOtherService, 1)), 9) << "long after";
  EXPECT_EQ(dispatch.counters().duplicates, 0u);
}

// A peer that gives up has not received this side's number: its REJ names its own (IBTA 12.6.7.2).
TEST_F(CmDispatchTest, AGivenUpRequestIsRejectedWhereItWent) {
  ASSERT_TRUE(dispatch.listen(9, at_all(kService), now));
  EXPECT_EQ(route(cm_request(kService, 77)), 9);
  EXPECT_EQ(route(cm_packet(Cm::REJ, 77)), 9);
  EXPECT_EQ(route(cm_packet(Cm::REJ, 78)), std::nullopt);
  EXPECT_EQ(route(cm_packet(Cm::REJ, 77), another), std::nullopt);
}

TEST_F(CmDispatchTest, NothingGoesToAProcessThatHasLeft) {
  ASSERT_TRUE(dispatch.listen(9, at_all(kService), now));
  EXPECT_EQ(route(cm_request(kService, 1)), 9);
  dispatch.forget(9);
  EXPECT_EQ(dispatch.listeners(), 0u);
  EXPECT_EQ(dispatch.requests(), 0u);
  EXPECT_EQ(route(cm_packet(Cm::REJ, 1)), std::nullopt);
  EXPECT_EQ(route(cm_request(kService, 1)), 4) << "block 9 may have another process by now";
}

TEST_F(CmDispatchTest, TheListenersOfAProcessAreBounded) {
  CmDispatch bounded({.listeners_max = 2});
  ASSERT_TRUE(bounded.listen(9, at_all(1), now));
  ASSERT_TRUE(bounded.listen(9, at_all(2), now));
  EXPECT_FALSE(bounded.listen(9, at_all(3), now));
  EXPECT_TRUE(bounded.listen(9, at_all(2), now));
  EXPECT_TRUE(bounded.listen(2, at_all(3), now)) << "another process has its own";
  bounded.unlisten(9, at_all(1), now);
  EXPECT_TRUE(bounded.listen(9, at_all(4), now)) << "it precedes one that has ended";
  EXPECT_FALSE(bounded.listen(9, at_all(1), now));
  EXPECT_EQ(bounded.listeners(), 3u);
}

TEST_F(CmDispatchTest, TheOldestRequestIsForgottenFirst) {
  CmDispatch bounded({.requests_max = 2});
  ASSERT_TRUE(bounded.listen(9, at_all(kService), now));
  for (std::uint32_t number = 1; number != 4; ++number) {
    EXPECT_EQ(route_at(bounded, cm_request(kService, number), peer), 9);
  }
  EXPECT_EQ(bounded.requests(), 2u);
  EXPECT_EQ(route_at(bounded, cm_packet(Cm::REJ, 1), peer), std::nullopt);
  EXPECT_EQ(route_at(bounded, cm_packet(Cm::REJ, 2), peer), 9);
}

TEST_F(CmDispatchTest, AFloodForNoListenerCostsOthersNothing) {
  ASSERT_TRUE(dispatch.listen(9, at_all(kService), now));
  const auto burst = CmDispatch::Options{}.unexpected_rate.burst;
  for (unsigned i = 0; i != 10 * burst; ++i) (void)route(cm_request(kOtherService, i));
  EXPECT_EQ(dispatch.counters().forwarded, burst);
  EXPECT_EQ(dispatch.counters().over_rate, 9 * burst);
  EXPECT_EQ(route(cm_request(kService, 1)), 9) << "not even the peer itself";
  EXPECT_EQ(route(cm_request(kOtherService, 2), another), 4) << "another peer is refused as ever";
}

TEST_F(CmDispatchTest, ListenersAreReadBeforeARequestIsRefused) {
  std::vector<std::vector<RoceBlock>> caught_up;
  CmDispatch other({.unexpected_rate = {.burst = 3, .per_second = 1},
                    .catch_up = [&](std::span<const RoceBlock> blocks) {
                      caught_up.emplace_back(blocks.begin(), blocks.end());
                      if (caught_up.size() == 2) other.listen(9, at_all(kService), now);
                    }});
  EXPECT_EQ(route_at(other, cm_request(kService, 1), peer), 4) << "none listens";
  EXPECT_EQ(route_at(other, cm_request(kService, 2), peer), 9);
  EXPECT_EQ(other.counters().unexpected, 1u);
  EXPECT_EQ(other.requests(), 1u) << "it is remembered";
  EXPECT_EQ(route_at(other, cm_request(kService, 3), peer), 9);
  EXPECT_EQ(caught_up, (std::vector<std::vector<RoceBlock>>{members, members, {9}}))
      << "of the listener, only its end";
  EXPECT_EQ(route_at(other, cm_packet(Cm::DREQ, 1, id_of(3)), peer), 4) << "no request";
  EXPECT_EQ(route_at(other, cm_request(kOtherService, 4), peer), std::nullopt);
  EXPECT_EQ(caught_up.size(), 3u) << "a flood costs no more than before";
}

// Programs close a port number, and others open it next.
TEST_F(CmDispatchTest, TheNextListenerIsReadBeforeARequestGoesToOneThatHasEnded) {
  bool listens = false;
  CmDispatch other({.catch_up = [&](std::span<const RoceBlock> blocks) {
    if (listens && contains(blocks, 2)) other.listen(2, at_all(kService), now);
  }});
  ASSERT_TRUE(other.listen(9, at_all(kService), now));
  other.unlisten(9, at_all(kService), now);
  EXPECT_EQ(route_at(other, cm_request(kService, 1), peer), 9) << "it may listen again";
  listens = true;
  EXPECT_EQ(route_at(other, cm_request(kService, 2), peer), 2);
  EXPECT_EQ(other.counters().unexpected, 0u);
}

TEST_F(CmDispatchTest, TheEndOfAListenerIsReadBeforeARequestGoesToIt) {
  std::vector<std::vector<RoceBlock>> caught_up;
  CmDispatch other({.catch_up = [&](std::span<const RoceBlock> blocks) {
    caught_up.emplace_back(blocks.begin(), blocks.end());
    for (const auto block : {RoceBlock{9}, RoceBlock{2}}) {
      if (contains(blocks, block)) other.unlisten(block, at_all(kService), now);
    }
    if (contains(blocks, 4)) other.listen(4, at_all(kService), now);
  }});
  ASSERT_TRUE(other.listen(9, at_all(kService), now));
  ASSERT_TRUE(other.listen(2, at_all(kService), now));
  EXPECT_EQ(route_at(other, cm_request(kService, 1), peer), 4);
  EXPECT_EQ(caught_up, (std::vector<std::vector<RoceBlock>>{{9}, {2}, members}));
  EXPECT_EQ(route_at(other, cm_request(kService, 1), peer), 4);
  EXPECT_EQ(other.counters().duplicates, 1u);
  EXPECT_EQ(caught_up.size(), 3u) << "a repeated one goes where the first went";
}

// Sources can be forged, so a rate for each bounds nothing.
TEST_F(CmDispatchTest, ManySourcesTogetherMakeTheHubReadABoundedNumberOfSockets) {
  members.clear();
  for (unsigned block = 1; block != 256; ++block) members.push_back(static_cast<RoceBlock>(block));
  std::size_t sockets = 0;
  CmDispatch other({.catch_up = [&](std::span<const RoceBlock> blocks) {
    sockets += blocks.size();
    other.listen(9, at_all(kService), now);
  }});
  const auto most = CmDispatch::Options{}.catch_up_rate.burst;
  for (std::uint32_t i = 0; i != 1000; ++i) {
    (void)route_at(other, cm_request(kOtherService, 1), wire::Gid::from_ipv4(0x0a00'0000 + i));
  }
  const auto calls = most / members.size();
  EXPECT_EQ(sockets, calls * members.size());
  EXPECT_EQ(other.counters().unread, 1000 - calls) << "dropped, as the peer repeats it";
  EXPECT_EQ(other.counters().forwarded, calls);
  EXPECT_EQ(route_at(other, cm_request(kService, 1), peer), 9) << "one that a process expects";
  now += 1s;
  EXPECT_EQ(route_at(other, cm_request(kOtherService, 2), peer), 1);
}

// Programs of the machine share the peer's address.
TEST_F(CmDispatchTest, ProcessesOfOneAddressHaveARateEach) {
  CmDispatch other({.unexpected_rate = {.burst = 2, .per_second = 1}});
  const auto route_from = [&](unsigned sender, std::uint32_t number) {
    return other.route({.from = address, .to = address, .sender = sender},
                       cm_request(kService, number), members, now);
  };
  for (const unsigned sender : {17u, 18u, 0u}) {
    EXPECT_EQ(route_from(sender, 1), 4);
    EXPECT_EQ(route_from(sender, 2), 4);
    EXPECT_EQ(route_from(sender, 3), std::nullopt) << sender;
  }
  EXPECT_EQ(other.counters().over_rate, 3u);
}

TEST_F(CmDispatchTest, APeerMaySendSoMuchAndNoMore) {
  CmDispatch slow({.rate = {.burst = 2, .per_second = 1}});
  const auto reply = cm_packet(Cm::REP, 1, id_of(9));
  EXPECT_EQ(route_at(slow, reply, peer), 9);
  EXPECT_EQ(route_at(slow, reply, peer), 9);
  EXPECT_EQ(route_at(slow, reply, peer), std::nullopt);
  EXPECT_EQ(route_at(slow, reply, another), 9);
  now += 1s;
  EXPECT_EQ(route_at(slow, reply, peer), 9);
  EXPECT_EQ(route_at(slow, reply, peer), std::nullopt);
  EXPECT_EQ(slow.counters().over_rate, 2u);
}

TEST_F(CmDispatchTest, OtherPacketsAreMalformed) {
  const auto change = [&](std::size_t at, int value) {
    auto packet = cm_request(kService, 1);
    packet.bytes[at] = std::byte(value);
    return route(packet);
  };
  constexpr auto kMad = CmPacket::kMad;
  EXPECT_EQ(change(0, 0x65), std::nullopt) << "a SEND with immediate data";
  EXPECT_EQ(change(1, 0x01), std::nullopt) << "transport header version 1";
  EXPECT_EQ(change(1, 0x10), std::nullopt) << "a byte of pad";
  EXPECT_EQ(change(7, 2), std::nullopt) << "QP 2";
  EXPECT_EQ(change(5, 1), std::nullopt) << "QP 0x10001";
  EXPECT_EQ(change(12, 0), std::nullopt) << "not the Q_Key of QP1";
  EXPECT_EQ(change(kMad, 2), std::nullopt) << "base version";
  EXPECT_EQ(change(kMad + 1, 4), std::nullopt) << "performance management";
  EXPECT_EQ(change(kMad + 2, 1), std::nullopt) << "class version";
  EXPECT_EQ(change(kMad + 3, 1), std::nullopt) << "Get";
  EXPECT_EQ(change(kMad + 17, 0x19), std::nullopt) << "LAP";
  EXPECT_EQ(change(kMad + 16, 1), std::nullopt) << "attribute 0x110";
  EXPECT_EQ(dispatch.counters().malformed, 12u);
  EXPECT_EQ(change(kMad + 0x17, 1), 4) << "of the attribute modifier, which has no meaning here";
}

TEST_F(CmDispatchTest, PacketsOfAnotherSizeAreMalformed) {
  const auto packet = cm_request(kService, 1);
  const std::span<const std::byte> bytes = packet;
  for (const std::size_t size : {0u, 1u, 12u, 279u}) {
    EXPECT_EQ(dispatch.route({.from = peer, .to = address}, bytes.first(size), members, now),
              std::nullopt)
        << size;
  }
  std::vector<std::byte> longer(bytes.begin(), bytes.end());
  longer.push_back({});
  EXPECT_EQ(dispatch.route({.from = peer, .to = address}, longer, members, now), std::nullopt);
  EXPECT_EQ(dispatch.counters().malformed, 5u);
}

// The answer would go to the group.
TEST_F(CmDispatchTest, AMulticastSourceIsMalformed) {
  EXPECT_EQ(route(cm_request(kService, 1), wire::Gid::from_ipv4(224, 0, 0, 1)), std::nullopt);
  EXPECT_EQ(dispatch.counters().malformed, 1u);
}

}  // namespace
}  // namespace softhca::hub
