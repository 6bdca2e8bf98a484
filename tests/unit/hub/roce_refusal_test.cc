// Why a process gets no socket, in words.
#include "hub/roce_refusal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>

namespace softhca::hub {
namespace {

using testing::HasSubstr;
using Why = RoceRefusal::Kind;

constexpr std::string_view kHead =
    "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout "
    "inode ref pointer drops\n";

std::string line(std::string_view local, unsigned user) {
  return " 1234: " + std::string(local) +
         " 00000000:0000 07 00000000:00000000 00:00000000 00000000  " + std::to_string(user) +
         "        0 17320 2 0000000000000000 0\n";
}

const auto kAddress = wire::Gid::from_ipv4(192, 0, 2, 1);

TEST(RoceRefusalTest, TheHolderOfAPortIsFound) {
  const auto table = std::string(kHead) + line("010200C0:0035", 7) + line("020200C0:12B7", 8) +
                     line("010200C0:12B7", 4711) + line("0100007F:12B7", 9);
  const auto found = find_holder(table, kAddress, 4791, true);
  EXPECT_EQ(found.kind, Why::kPortTaken);
  EXPECT_EQ(found.holder, 4711u);
  EXPECT_THAT(found.explain(kAddress),
              HasSubstr("UDP port 4791 of 192.0.2.1 is taken by a process of user 4711"));
}

TEST(RoceRefusalTest, ASocketOfAllAddressesHoldsThePort) {
  const auto table = std::string(kHead) + line("00000000:12B7", 4711);
  EXPECT_EQ(find_holder(table, kAddress, 4791, false).holder, 4711u);
}

TEST(RoceRefusalTest, TheKernelsSoftRoceIsNamed) {
  const auto table = std::string(kHead) + line("00000000:12B7", 0);
  const auto found = find_holder(table, kAddress, 4791, true);
  EXPECT_EQ(found.kind, Why::kPortTakenByRxe);
  EXPECT_THAT(found.explain(kAddress), HasSubstr("rdma link delete"));
  EXPECT_EQ(find_holder(table, kAddress, 4791, false).kind, Why::kPortTaken) << "not loaded";
}

TEST(RoceRefusalTest, AnIpv6AddressIsFound) {
  wire::Gid address;
  address.bytes[0] = std::byte{0x20};
  address.bytes[1] = std::byte{0x01};
  address.bytes[15] = std::byte{0x42};
  const auto table = std::string(kHead) + line("00000120000000000000000042000000:12B7", 4711);
  EXPECT_EQ(find_holder(table, address, 4791, false).holder, 4711u);
}

TEST(RoceRefusalTest, AnyTextIsRead) {
  for (const auto* text : {"", "\n", "x", "a b c d e f g h", "1: : 2 3 4 5 6 -7\n\n"}) {
    EXPECT_EQ(find_holder(text, kAddress, 4791, true).holder, ::geteuid()) << text;
  }
}

TEST(RoceRefusalTest, EachReasonHasARemedy) {
  const auto words = [](Why kind) {
    return RoceRefusal{.kind = kind, .error = EMFILE, .holder = 0}.explain(kAddress);
  };
  EXPECT_EQ(words(Why::kNone), "");
  EXPECT_THAT(words(Why::kNoSuchAddress), HasSubstr("ip addr"));
  EXPECT_THAT(words(Why::kTooManyProcesses), HasSubstr("wait ten seconds"));
  EXPECT_THAT(words(Why::kTooManyAddresses), HasSubstr("give the programs fewer"));
  EXPECT_THAT(words(Why::kSpoiled), HasSubstr("start again"));
  EXPECT_THAT(words(Why::kFailed), HasSubstr("Too many open files"));
  EXPECT_THAT(words(Why{200}), HasSubstr("no RoCEv2 socket")) << "of another version";
}

}  // namespace
}  // namespace softhca::hub
