// The requests of processes to the hub, in any pieces.
#include "hub/request.h"

#include <gtest/gtest.h>

#include <vector>

namespace softhca::hub {
namespace {

using Reading = RequestReader::Result;
using RequestKind = Request::Kind;

std::vector<std::byte> bytes_of(const Request& request) {
  std::array<std::byte, Request::kSizeMax> room;
  const auto bytes = request.write(room);
  return {bytes.begin(), bytes.end()};
}

TEST(RequestTest, EachRequestIsReadAsItWasWritten) {
  const auto address = wire::Gid::from_ipv4(192, 0, 2, 1);
  constexpr std::uint64_t kService = 0x0106'4711'8822'9933;
  RequestReader reader;
  for (const auto& written :
       {Request{.kind = RequestKind::kAcceptLinks, .address = {}, .service = 0},
        Request{.kind = RequestKind::kJoinAddress, .address = address, .service = 0},
        Request{.kind = RequestKind::kLeaveAddress, .address = address, .service = 0},
        Request{.kind = RequestKind::kShare, .address = {}, .service = 0},
        Request{.kind = RequestKind::kListen, .address = address, .service = kService},
        Request{.kind = RequestKind::kUnlisten, .address = address, .service = kService}}) {
    const auto bytes = bytes_of(written);
    Request read{.kind = RequestKind::kAcceptLinks, .address = address, .service = 9};
    for (std::size_t i = 0; i + 1 < bytes.size(); ++i) {
      EXPECT_EQ(reader.take(bytes[i], read), Reading::kMore);
    }
    EXPECT_EQ(reader.take(bytes.back(), read), Reading::kRequest);
    EXPECT_EQ(read.kind, written.kind);
    EXPECT_EQ(read.address, written.address);
    EXPECT_EQ(read.service, written.service);
  }
}

TEST(RequestTest, SizesAreThoseOfTheContents) {
  EXPECT_EQ(bytes_of({.kind = RequestKind::kAcceptLinks, .address = {}, .service = 0}).size(), 1u);
  EXPECT_EQ(bytes_of({.kind = RequestKind::kShare, .address = {}, .service = 0}).size(), 1u);
  EXPECT_EQ(bytes_of({.kind = RequestKind::kListen, .address = {}, .service = 0}).size(), 25u);
  EXPECT_EQ(bytes_of({.kind = RequestKind::kJoinAddress, .address = {}, .service = 0}).size(), 17u);
}

TEST(RequestTest, AnyOtherByteIsNonsense) {
  for (const int byte : {0x00, 0x57, 0x78, 0xff}) {
    RequestReader reader;
    Request request;
    EXPECT_EQ(reader.take(std::byte(byte), request), Reading::kNonsense) << byte;
  }
}

TEST(RequestTest, NonsenseIsNotKept) {
  RequestReader reader;
  Request request;
  for (std::size_t i = 0; i != 4 * Request::kSizeMax; ++i) {
    EXPECT_EQ(reader.take(std::byte{0xff}, request), Reading::kNonsense) << i;
  }
  const auto bytes =
      bytes_of({.kind = RequestKind::kListen, .address = {}, .service = 0x4711'0815});
  for (const auto byte : std::span(bytes).first(bytes.size() - 1)) {
    EXPECT_EQ(reader.take(byte, request), Reading::kMore);
  }
  EXPECT_EQ(reader.take(bytes.back(), request), Reading::kRequest);
  EXPECT_EQ(request.service, 0x4711'0815u);
}

}  // namespace
}  // namespace softhca::hub
