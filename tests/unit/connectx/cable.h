// The wire of a device under test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "fabric/port.h"

namespace softhca::connectx {

/// A cable that can be unplugged. It keeps the frames sent, and returns them only on the test's
/// request.
class Cable final : public fabric::Port {
 public:
  using Bytes = std::vector<std::byte>;

  std::uint64_t transmit(const wire::Frame& frame) override {
    sent.push_back(bytes_of(frame));
    return 0;
  }
  std::uint64_t loop_back(const wire::Frame& frame, std::uint32_t mark) override {
    looped.emplace_back(bytes_of(frame), mark);
    return 0;
  }
  std::uint64_t released() const override { return already_released; }
  void set_receiver(fabric::Receiver* to) override { receiver = to; }
  bool link_up() const override { return up; }

  bool up = true;
  std::uint64_t already_released = 0;  ///< frames of earlier owners
  std::vector<Bytes> sent;
  std::vector<std::pair<Bytes, std::uint32_t>> looped;  ///< not yet returned, with their marks
  fabric::Receiver* receiver = nullptr;

 private:
  static Bytes bytes_of(const wire::Frame& frame) {
    Bytes bytes(frame.size());
    frame.copy_to(bytes);
    return bytes;
  }
};

}  // namespace softhca::connectx
