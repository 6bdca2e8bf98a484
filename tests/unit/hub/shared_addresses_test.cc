// A process asks its hub about the addresses that it shares, and gets answers.
#include "hub/shared_addresses.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <string>
#include <vector>

#include "hub/roce_refusal.h"

namespace softhca::hub {
namespace {

using namespace std::chrono_literals;
using RequestKind = Request::Kind;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const wire::Gid kFirstShared = wire::Gid::from_ipv4(192, 0, 2, 1);
const wire::Gid kSecondShared = wire::Gid::from_ipv4(192, 0, 2, 2);

class SharedAddressesTest : public testing::Test {
 protected:
  SharedAddressesTest() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    process_.reset(ends[0]);
    hub_.reset(ends[1]);
  }
  /// The requests that the process sends now, as "j192.0.2.1"s without the address: kind and last
  /// byte.
  std::vector<std::string> said() {
    shared.send_requests(process_.get());
    std::vector<std::string> all;
    std::array<std::byte, 4096> bytes;
    for (;;) {
      const auto size = ::recv(hub_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (size <= 0) return all;
      for (const auto byte : std::span(bytes).first(static_cast<std::size_t>(size))) {
        Request request;
        if (reader_.take(byte, request) != RequestReader::Result::kRequest) continue;
        all.push_back(std::string(1, static_cast<char>(request.kind)) +
                      std::to_string(std::to_integer<int>(request.address.bytes[15])) +
                      (request.service == 0 ? "" : ":" + std::to_string(request.service)));
      }
    }
  }
  void set(std::vector<wire::Gid> addresses) { shared.set_addresses(addresses); }
  void grant() { shared.handle_answer({}, UniqueFd(::eventfd(0, 0))); }
  void refuse() {
    RoceAnswer answer;
    answer.refusal = static_cast<std::uint8_t>(RoceRefusal::Kind::kPortTakenByRxe);
    shared.handle_answer(answer, {});
  }
  bool has_socket(const wire::Gid& address) {
    const auto socket = shared.take_socket(address);
    return socket && *socket;
  }

  util::Time now{1h};
  SharedAddresses shared{{.block = 3, .station = 9}, [this] { return now; }};

 private:
  UniqueFd process_, hub_;
  RequestReader reader_;
};

TEST_F(SharedAddressesTest, AnswersComeInTheOrderOfTheRequests) {
  set({kFirstShared, kSecondShared});
  EXPECT_THAT(said(), ElementsAre("j1", "j2"));
  EXPECT_THAT(said(), IsEmpty());
  EXPECT_TRUE(shared.awaits_answers());
  EXPECT_FALSE(has_socket(kFirstShared)) << "not yet";
  refuse();
  grant();
  EXPECT_FALSE(shared.awaits_answers());
  const auto refused = shared.take_socket(kFirstShared);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("192.0.2.1 is taken by the kernel's soft-RoCE"));
  EXPECT_TRUE(has_socket(kSecondShared));
  EXPECT_FALSE(has_socket(kSecondShared)) << "it was taken";
}

TEST_F(SharedAddressesTest, ARefusedAddressIsAskedForAgainAfterAPause) {
  set({kFirstShared});
  EXPECT_THAT(said(), ElementsAre("j1"));
  refuse();
  set({kFirstShared});
  EXPECT_THAT(said(), IsEmpty());
  now += SharedAddresses::kFirstPause;
  set({kFirstShared});
  EXPECT_THAT(said(), ElementsAre("j1"));
  refuse();
  now += SharedAddresses::kFirstPause;
  set({kFirstShared});
  EXPECT_THAT(said(), IsEmpty()) << "the pause grows";
  now += SharedAddresses::kLongestPause;
  set({kFirstShared});
  EXPECT_THAT(said(), ElementsAre("j1"));
  grant();
  EXPECT_TRUE(has_socket(kFirstShared));
}

TEST_F(SharedAddressesTest, AnAddressThatVanishesIsLeft) {
  set({kFirstShared, kSecondShared});
  (void)said();
  grant();
  grant();
  EXPECT_TRUE(has_socket(kFirstShared));
  set({kSecondShared});
  EXPECT_THAT(said(), ElementsAre("q1"));
  set({kFirstShared, kSecondShared});
  EXPECT_THAT(said(), ElementsAre("j1"));
  grant();
  EXPECT_TRUE(has_socket(kFirstShared)) << "another socket";
}

TEST_F(SharedAddressesTest, AnAddressThatIsBackBeforeItWasLeftGetsItsSocketAgain) {
  set({kFirstShared});
  EXPECT_THAT(said(), ElementsAre("j1"));
  grant();
  EXPECT_TRUE(has_socket(kFirstShared));
  set({});
  set({kFirstShared});
  EXPECT_THAT(said(), ElementsAre("j1"));
  grant();
  EXPECT_TRUE(has_socket(kFirstShared));
}

TEST_F(SharedAddressesTest, AnAddressThatVanishesBeforeItsAnswerIsLeftAfterIt) {
  set({kFirstShared});
  EXPECT_THAT(said(), ElementsAre("j1"));
  set({});
  EXPECT_THAT(said(), IsEmpty());
  set({kFirstShared});
  EXPECT_THAT(said(), IsEmpty()) << "it is being asked for";
  set({});
  grant();
  EXPECT_THAT(said(), ElementsAre("q1"));
  EXPECT_FALSE(has_socket(kFirstShared));
}

TEST_F(SharedAddressesTest, ListenersAreReportedOnce) {
  const CmService one{.id = 77, .address = kFirstShared}, other{.id = 78, .address = kSecondShared};
  ASSERT_TRUE(shared.listen(one));
  ASSERT_TRUE(shared.listen(other));
  EXPECT_THAT(said(), ElementsAre("l1:77", "l2:78"));
  shared.unlisten(one);
  ASSERT_TRUE(shared.listen(one));
  EXPECT_THAT(said(), IsEmpty()) << "it listened all the time";
  shared.unlisten(one);
  EXPECT_THAT(said(), ElementsAre("u1:77"));
  ASSERT_TRUE(shared.listen({.id = 79, .address = kFirstShared}));
  shared.unlisten(other);
  EXPECT_THAT(said(), ElementsAre("u2:78", "l1:79")) << "first what makes room";
}

// Identifiers with RDMA_OPTION_ID_REUSEADDR share a port number.
TEST_F(SharedAddressesTest, AServiceEndsWithItsLastListener) {
  const CmService service{.id = 77, .address = kFirstShared};
  ASSERT_TRUE(shared.listen(service));
  ASSERT_TRUE(shared.listen(service));
  EXPECT_THAT(said(), ElementsAre("l1:77"));
  EXPECT_EQ(shared.listeners(), 1u);
  shared.unlisten(service);
  EXPECT_THAT(said(), IsEmpty()) << "the other one listens";
  shared.unlisten(service);
  EXPECT_THAT(said(), ElementsAre("u1:77"));
  shared.unlisten(service);
  EXPECT_THAT(said(), IsEmpty());
}

TEST_F(SharedAddressesTest, ListenersAreBounded) {
  for (unsigned i = 0; i != CmDispatch::kListenersMax; ++i) {
    ASSERT_TRUE(shared.listen({.id = i, .address = kFirstShared}));
  }
  EXPECT_FALSE(shared.listen({.id = 0, .address = kSecondShared}));
  EXPECT_TRUE(shared.listen({.id = 0, .address = kFirstShared})) << "one that it has";
}

// A hub that is stopped reads nothing.
TEST_F(SharedAddressesTest, WhatTheSocketDoesNotTakeIsSaidLater) {
  for (unsigned i = 0; i != CmDispatch::kListenersMax; ++i) {
    ASSERT_TRUE(shared.listen({.id = i + 1, .address = kFirstShared}));
  }
  set({kFirstShared});
  std::vector<std::string> all;
  for (int i = 0; i != 100 && all.size() <= CmDispatch::kListenersMax; ++i) {
    std::ranges::copy(said(), std::back_inserter(all));
  }
  ASSERT_EQ(all.size(), CmDispatch::kListenersMax + 1);
  EXPECT_EQ(all.back(), "j1");
}

TEST_F(SharedAddressesTest, AnAnswerWithoutARequestIsIgnored) {
  grant();
  EXPECT_FALSE(has_socket(kFirstShared));
}

}  // namespace
}  // namespace softhca::hub
