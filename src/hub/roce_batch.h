// Which packets travel as one message to the kernel, which cuts it again (UDP_SEGMENT): packets of
// one QP that follow each other and are equally long. Only the first part of a message has IPv4
// identification 0, which the ICRC covers, so a packet must know its position before its ICRC is
// made.
#pragma once

#include <cstddef>
#include <cstdint>

namespace softhca::hub {

class RoceBatch {
 public:
  /// Most bytes of a message: a UDP datagram over IPv4.
  static constexpr std::size_t kBytesMax = 65'507;
  /// Most packets. The kernel allows 64 or more (UDP_MAX_SEGMENTS), some versions with one header.
  static constexpr std::uint16_t kPacketsMax = 63;

  /// The position of the next packet; 0: it begins a message.
  std::uint16_t next(std::size_t size) {
    if (size != size_ || count_ == kPacketsMax || (count_ + 1u) * size > kBytesMax) end();
    size_ = size;
    return count_++;
  }
  /// The next packet begins a message.
  void end() { count_ = 0; }

 private:
  std::size_t size_ = 0;
  std::uint16_t count_ = 0;
};

}  // namespace softhca::hub
