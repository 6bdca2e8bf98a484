// Helpers for tests that exchange frames between two devices and compare all that can be observed.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/tap.h"
#include "wire/ethernet.h"
#include "wire/ipv4.h"
#include "wire/tcp.h"

namespace softhca::driver::test {

inline constexpr std::size_t kExchangeMemory = 1 << 20;  ///< bytes of each side
inline constexpr std::size_t kTcpHeaders =
    wire::EthernetLayout::kSize + wire::Ipv4Layout::kSize + wire::TcpLayout::kSize;

inline std::uint64_t hash_of(std::span<const std::byte> bytes) {
  return std::hash<std::string_view>()({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

/// Port, size and content of each frame, a line each.
class FrameLog final : public fabric::Tap {
 public:
  void handle_port(std::uint32_t, std::string_view, wire::Link) override {}
  void handle_frame(std::uint32_t port, const wire::Frame& frame) override {
    std::vector<std::byte> bytes(frame.size());
    frame.copy_to(bytes);
    text += fmt::format("{} {} {:x}\n", port, bytes.size(), hash_of(bytes));
  }
  std::string text;
};

}  // namespace softhca::driver::test
