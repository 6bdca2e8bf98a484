// A client that may be hostile, next to an honest one in the same loop.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "vfio_user/served_function.h"

namespace softhca::test {

class HostileClientTest : public ServedFunction {
 protected:
  /// Longer than a turn of the loop on a busy machine, shorter than any wait for a client.
  static constexpr auto kNoWait = std::chrono::milliseconds(400);

  HostileClientTest() {
    loop_->add(other_function_);
    other_server_ =
        vfio_user::Server::listen(loop_->events(), other_function_, other_path_).value();
  }
  vfio_user::Client honest() {
    auto client = connect(other_path_);
    EXPECT_TRUE(client.negotiate());
    return client;
  }
  /// The honest client reads a register. The slowest turn of the loop must be short.
  void expect_served(vfio_user::Client& client) {
    std::uint32_t id = 0;
    EXPECT_EQ(client.read_region(vfio_user::protocol::kConfigRegion, 0,
                                 std::as_writable_bytes(std::span(&id, 1))),
              0);
    EXPECT_EQ(id, 0x10ee1af4u);
  }
  void turn() {
    const auto start = util::monotonic_now();
    loop_->turn(util::Time{});
    longest_ = std::max(longest_, util::monotonic_now() - start);
  }
  /// A whole message for MessageStream::send_raw().
  template <class T>
  static std::vector<std::byte> message(vfio_user::protocol::Command command, const T& payload,
                                        std::uint32_t flags = 0) {
    const vfio_user::protocol::Header header{.message_id = 1,
                                             .command = static_cast<std::uint16_t>(command),
                                             .message_size = sizeof header + sizeof payload,
                                             .flags = flags,
                                             .error = 0};
    std::vector<std::byte> out(header.message_size);
    std::memcpy(out.data(), &header, sizeof header);
    std::memcpy(out.data() + sizeof header, &payload, sizeof payload);
    return out;
  }

  TestFunction other_function_{"honest0"};
  std::string other_path_ = directory_ / "other.sock";
  std::unique_ptr<vfio_user::Server> other_server_;
  util::Duration longest_{};
};

}  // namespace softhca::test
