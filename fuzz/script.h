// An input that is consumed from its start.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace softhca::fuzz {

/// Bytes beyond the end read as zero. Numbers are little-endian.
class Script {
 public:
  Script(const std::uint8_t* data, std::size_t size)
      : bytes_(std::as_bytes(std::span(data, size))) {}
  bool empty() const { return bytes_.empty(); }
  template <class Number>
  Number take() {
    std::array<std::byte, sizeof(Number)> bytes{};
    std::ranges::copy(take(sizeof(Number)), bytes.begin());
    return std::bit_cast<Number>(bytes);
  }
  std::uint8_t byte() { return take<std::uint8_t>(); }
  std::uint16_t word() { return take<std::uint16_t>(); }
  std::uint32_t dword() { return take<std::uint32_t>(); }
  std::uint64_t qword() { return take<std::uint64_t>(); }
  std::uint32_t below(std::uint32_t n) { return word() % n; }
  std::span<const std::byte> take(std::size_t size) {
    const auto taken = bytes_.first(std::min(size, bytes_.size()));
    bytes_ = bytes_.subspan(taken.size());
    return taken;
  }
  std::string_view text(std::size_t size) {
    const auto taken = take(size);
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace softhca::fuzz
