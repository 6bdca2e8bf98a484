#include "wire/address_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace softhca::wire {
namespace {

using namespace std::string_view_literals;
using testing::Eq;
using testing::Optional;

TEST(AddressText, AMacParsesToItself) {
  const auto mac = MacAddress::from_u64(0x02ab00000dff);
  EXPECT_EQ(text_of(mac), "02:ab:00:00:0d:ff");
  EXPECT_THAT(parse_mac("02:ab:00:00:0d:ff"), Optional(mac));
  EXPECT_THAT(parse_mac("02:AB:00:00:0D:FF"), Optional(mac));
}

TEST(AddressText, WhatIsNoMacIsRefused) {
  for (const auto text : {""sv, "02:ab:00:00:0d"sv, "02:ab:00:00:0d:ff:"sv, "02:ab:00:00:0d:f"sv,
                          "02-ab-00-00-0d-ff"sv, "02:ab:00:00:0d:fg"sv, "02:ab:00:00:0d:+f"sv,
                          "2:0ab:00:00:0d:ff"sv, "02:ab:00:00:0d\0ff"sv}) {
    EXPECT_THAT(parse_mac(text), Eq(std::nullopt)) << text;
  }
}

// IBTA Annex A17 17.4.2: the GID of an IPv4 address is its mapped form.
TEST(AddressText, AGidIsTheTextOfItsIpAddress) {
  const auto ipv4 = Gid::from_ipv4(10, 0, 0, 1);
  EXPECT_EQ(text_of(ipv4), "10.0.0.1");
  for (const auto text : {"10.0.0.1"sv, "::ffff:10.0.0.1"sv, "::ffff:a00:1"sv}) {
    EXPECT_THAT(parse_ip(text), Optional(ipv4)) << text;
  }
  Gid ipv6;
  ipv6.bytes[0] = std::byte{0x20};
  ipv6.bytes[1] = std::byte{0x01};
  ipv6.bytes[15] = std::byte{0x17};
  EXPECT_EQ(text_of(ipv6), "2001::17");
  EXPECT_THAT(parse_ip("2001::17"), Optional(ipv6));
  EXPECT_EQ(text_of(Gid{}), "::");
}

TEST(AddressText, OnlyADottedQuadIsIpv4) {
  EXPECT_THAT(parse_ipv4("10.0.0.1"), Optional(Gid::from_ipv4(10, 0, 0, 1)));
  for (const auto text :
       {"::ffff:10.0.0.1"sv, "2001::17"sv, "10.0.1"sv, "10.0.0.256"sv, "10.0.0.1 "sv, ""sv}) {
    EXPECT_THAT(parse_ipv4(text), Eq(std::nullopt)) << text;
  }
}

// libc takes text that ends with a zero byte.
TEST(AddressText, AZeroByteDoesNotEndAnAddress) {
  EXPECT_THAT(parse_ip("10.0.0.1\0x"sv), Eq(std::nullopt));
  EXPECT_THAT(parse_ip("2001::17\0x"sv), Eq(std::nullopt));
  EXPECT_THAT(parse_ipv4("10.0.0.1\0x"sv), Eq(std::nullopt));
  EXPECT_THAT(parse_ip(std::string(1000, ':')), Eq(std::nullopt));
}

}  // namespace
}  // namespace softhca::wire
