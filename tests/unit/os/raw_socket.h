// The other end of an interface: sends and receives frames as they are, for tests.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "os/unique_fd.h"

namespace softhca::os {

using Bytes = std::vector<std::byte>;

class RawSocket {
 public:
  /// `prefaced`: each sent frame has a struct virtio_net_hdr.
  explicit RawSocket(const std::string& interface, bool prefaced = false)
      : fd_(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0)) {
    const int yes = 1;
    if (prefaced) ::setsockopt(fd_.get(), SOL_PACKET, PACKET_VNET_HDR, &yes, sizeof yes);
    ::setsockopt(fd_.get(), SOL_PACKET, PACKET_IGNORE_OUTGOING, &yes, sizeof yes);
    sockaddr_ll address{};
    address.sll_family = AF_PACKET;
    address.sll_protocol = htons(ETH_P_ALL);
    address.sll_ifindex = static_cast<int>(::if_nametoindex(interface.c_str()));
    EXPECT_EQ(::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  void send(const Bytes& frame) {
    EXPECT_EQ(::send(fd_.get(), frame.data(), frame.size(), 0), std::ssize(frame));
  }
  /// A frame of several TCP packets, which a card would send one by one; without its checksum.
  void send_merged(const Bytes& frame, std::uint16_t headers, std::uint16_t segment,
                   std::uint16_t checksum_start) {
    constexpr std::uint8_t kNeedsChecksum = 1, kTcp4 = 1;
    const std::array<std::uint16_t, 5> preface{kNeedsChecksum | kTcp4 << 8, headers, segment,
                                               checksum_start, 16};
    send_with(preface, frame);
  }
  /// A frame whose checksum at `start` + `offset` a card would insert.
  void send_without_checksum(const Bytes& frame, std::uint16_t start, std::uint16_t offset) {
    send_with({1, 0, 0, start, offset}, frame);
  }
  /// The next frame; empty if there is none within a second.
  Bytes receive() {
    pollfd wait{fd_.get(), POLLIN, 0};
    if (::poll(&wait, 1, 1000) != 1) return {};
    Bytes frame(std::size_t{1} << 17);
    const auto size = ::recv(fd_.get(), frame.data(), frame.size(), 0);
    frame.resize(size < 0 ? 0 : static_cast<std::size_t>(size));
    return frame;
  }
  bool has_frame() const {
    pollfd wait{fd_.get(), POLLIN, 0};
    return ::poll(&wait, 1, 0) == 1;
  }

 private:
  void send_with(std::array<std::uint16_t, 5> preface, const Bytes& frame) {
    const std::array<iovec, 2> pieces{iovec{preface.data(), sizeof preface},
                                      iovec{const_cast<std::byte*>(frame.data()), frame.size()}};
    EXPECT_EQ(::writev(fd_.get(), pieces.data(), pieces.size()),
              std::ssize(frame) + std::ssize(std::as_bytes(std::span(preface))));
  }

  const UniqueFd fd_;
};

/// A frame of `size` bytes between two stations, of an EtherType for experiments. `tci`: with a
/// VLAN tag.
inline Bytes test_frame(std::size_t size, std::uint16_t tci = 0) {
  Bytes frame;
  for (const auto byte : {2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1}) frame.push_back(std::byte(byte));
  if (tci != 0) {
    for (const auto byte : {0x81, 0x00, tci >> 8, tci & 0xff}) frame.push_back(std::byte(byte));
  }
  for (const auto byte : {0x88, 0xb5}) frame.push_back(std::byte(byte));
  for (std::size_t i = frame.size(); i < size; ++i) frame.push_back(std::byte(i * 7 + i / 251));
  return frame;
}

}  // namespace softhca::os
