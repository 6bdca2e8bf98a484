// A client that may be hostile, next to an honest one in the same loop.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "vfio_user/served_function.h"

namespace softhca::test {

class HostileClientTest : public ServedFunction {
 protected:
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
  /// The honest client reads a register.
  void expect_served(vfio_user::Client& client) {
    std::uint32_t id = 0;
    EXPECT_EQ(client.read_region(vfio_user::protocol::kConfigRegion, 0,
                                 std::as_writable_bytes(std::span(&id, 1))),
              0);
    EXPECT_EQ(id, 0x10ee1af4u);
  }
  void turn() { loop_->turn(util::Time{}); }
  void turns() {
    for (int i = 0; i < 10; ++i) turn();
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
};

}  // namespace softhca::test
