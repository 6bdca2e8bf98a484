// Messages of a broken or hostile client, and what the server answers.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "vfio_user/served_function.h"

namespace softhca::test {

class MalformedTest : public ServedFunction {
 protected:
  using Command = vfio_user::protocol::Command;
  using DmaMap = vfio_user::protocol::DmaMap;
  using Header = vfio_user::protocol::Header;

  /// The errno with which the server refuses `payload`.
  template <class T>
  std::uint32_t error(vfio_user::Client& client, Command command, const T& payload,
                      std::span<const int> fds = {}) {
    const auto reply = client.call(command, payload, fds);
    EXPECT_TRUE(reply.has_value()) << reply.error().message;
    if (!reply) return 0;
    EXPECT_TRUE(reply->error == 0 || reply->payload.empty()) << "an error reply is only a header";
    return reply->error;
  }
  std::uint32_t error_with_size(vfio_user::Client& client, Command command, std::size_t size) {
    const std::vector<std::byte> payload(size);
    const auto reply = client.call(command, payload);
    EXPECT_TRUE(reply.has_value());
    return reply ? reply->error : 0;
  }
  bool still_works(vfio_user::Client& client) {
    std::uint32_t id = 0;
    return client.read_region(vfio_user::protocol::kConfigRegion, 0,
                              std::as_writable_bytes(std::span(&id, 1))) == 0;
  }
  static DmaMap map(std::uint64_t address, std::uint64_t size, std::uint64_t offset = 0) {
    return {
        .argsz = sizeof(DmaMap), .flags = 3, .offset = offset, .address = address, .size = size};
  }
  static Header header(Command command, std::uint32_t size, std::uint32_t flags = 0) {
    return {.message_id = 9,
            .command = static_cast<std::uint16_t>(command),
            .message_size = size,
            .flags = flags,
            .error = 0};
  }
};

}  // namespace softhca::test
