// Addresses as users write them, and the socket of a trunk.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fabric/switch.h"
#include "trunk/two_families.h"
#include "trunk/udp_trunk.h"

namespace softhca::trunk {
namespace {

using testing::HasSubstr;

std::string resolved(const std::string& text) {
  const auto address = resolve(text);
  return address ? to_text(*address) : address.error().message;
}

std::string listened(const std::string& text) {
  const auto address = parse_listen(text);
  return address ? to_text(*address) : address.error().message;
}

TEST(ResolveTest, AHostMayHaveAPort) {
  EXPECT_EQ(resolved("10.0.0.1"), "10.0.0.1:24791");
  EXPECT_EQ(resolved("10.0.0.1:5"), "10.0.0.1:5");
  EXPECT_EQ(resolved("::1"), "[::1]:24791");
  EXPECT_EQ(resolved("[::1]"), "[::1]:24791");
  EXPECT_EQ(resolved("[::1]:65535"), "[::1]:65535");
}

TEST(ResolveTest, AHostWithBothFamiliesHasThatOfListen) {
  const auto ipv4 = *parse_listen("127.0.0.1:5"), ipv6 = *parse_listen("[::1]:5");
  EXPECT_EQ(to_text(*resolve(kTwoFamilies)), "[::1]:24791") << "the first";
  EXPECT_EQ(to_text(*resolve(kTwoFamilies, family_of(ipv4))), "127.0.0.1:24791");
  EXPECT_EQ(to_text(*resolve(kTwoFamilies, family_of(ipv6))), "[::1]:24791");
  EXPECT_EQ(to_text(*resolve("::1", family_of(ipv4))), "[::1]:24791") << "it has no other";
  EXPECT_EQ(family_of(*parse_listen("24791")), AF_UNSPEC);
}

TEST(ResolveTest, WhatIsNoHostIsRefused) {
  for (const auto* const wrong : {"", ":5", "10.0.0.1:", "10.0.0.1:0", "10.0.0.1:65536",
                                  "10.0.0.1:x", "[::1", "[::1]5", "[]:5"}) {
    EXPECT_THAT(resolved(wrong), HasSubstr("want HOST or HOST:PORT")) << wrong;
  }
  EXPECT_THAT(resolved("300.1.2.3.4"), HasSubstr("--join '300.1.2.3.4': "));
}

TEST(ResolveTest, AHubListensAtAPortOrAnAddress) {
  EXPECT_EQ(listened("24791"), "[::]:24791");
  EXPECT_EQ(listened("127.0.0.1:5"), "127.0.0.1:5");
  EXPECT_EQ(listened("127.0.0.1"), "127.0.0.1:24791");
  EXPECT_EQ(listened("[::1]:5"), "[::1]:5");
  for (const auto* const wrong : {"", "0", "65536", "localhost:5", "a", "127.0.0.1:0"}) {
    EXPECT_THAT(listened(wrong), HasSubstr("want PORT, ADDRESS or ADDRESS:PORT")) << wrong;
  }
}

TEST(UdpTrunkTest, ASocketThatRefusesADatagramIsReported) {
  static std::string lines;
  lines.clear();
  util::set_log_sink([](auto, auto text) { lines += text; });
  const auto loop = *os::EventLoop::create();
  UdpTrunk::Options options{
      .fabric = "x", .key = key_of("k"), .listen = *parse_listen("127.0.0.1:1")};
  options.listen.port = 0;  // any
  options.targets.push_back({"all", *resolve("255.255.255.255")});
  const auto trunk = *UdpTrunk::create(*loop, options);
  util::set_log_sink(nullptr);
  EXPECT_THAT(lines, HasSubstr("all: "));
  EXPECT_EQ(trunk->sessions().counters().unsent, 1u);
  util::InspectNode node("trunk");
  trunk->inspect(node);
  EXPECT_THAT(node.to_text(), HasSubstr("error: "));
}

TEST(UdpTrunkTest, TwoHubsJoinOverTheLoopback) {
  const auto loop = *os::EventLoop::create();
  UdpTrunk::Options there{
      .fabric = "x", .key = key_of("k"), .listen = *parse_listen("127.0.0.1:1")};
  there.listen.port = 0;  // any
  const auto listener = *UdpTrunk::create(*loop, there);
  UdpTrunk::Options here{.fabric = "x", .key = key_of("k"), .listen = {}};
  here.targets.push_back({"listener", listener->address()});
  const auto joiner = *UdpTrunk::create(*loop, here);
  fabric::Switch fabric;
  for (auto* const trunk : {listener.get(), joiner.get()}) {
    trunk->attach(fabric.create_port("trunk"), [](auto) { return false; }, [] {});
  }
  while (!joiner->sessions().all_answered()) {
    loop->run_once(util::kNever);
    for (auto* const trunk : {listener.get(), joiner.get()}) {
      std::size_t frames = 0;
      while (trunk->receive(frames) != hub::OtherHubs::Received::kNothing) trunk->settle();
    }
  }
  EXPECT_EQ(joiner->sessions().refusal(), "");
  EXPECT_THAT(joiner->line(), HasSubstr("joined with " + to_text(listener->address())));
  for (auto* const trunk : {listener.get(), joiner.get()}) trunk->detach();
}

}  // namespace
}  // namespace softhca::trunk
