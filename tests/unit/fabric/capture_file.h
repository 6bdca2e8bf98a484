// Reads back what a capture has written.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "util/endian.h"

namespace softhca::fabric {

inline std::string content_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

struct CapturedPacket {
  std::string interface;
  std::string text;           ///< bytes after the Ethernet header
  std::uint64_t dropped = 0;  ///< packets lost before this one
};

/// All packets of a file. The file must be whole blocks after a section header.
inline std::vector<CapturedPacket> packets_of(std::string_view file) {
  const auto u16 = [](std::string_view text) {
    return util::load_le16(reinterpret_cast<const std::byte*>(text.data()));
  };
  const auto u32 = [](std::string_view text) {
    return util::load_le32(reinterpret_cast<const std::byte*>(text.data()));
  };
  EXPECT_GE(file.size(), 28u);
  if (file.size() < 28) return {};
  EXPECT_EQ(u32(file), 0x0a0d0d0au);
  std::vector<std::string> interfaces;
  std::vector<CapturedPacket> packets;
  while (!file.empty()) {
    const std::size_t total = file.size() < 12 ? 0 : u32(file.substr(4));
    EXPECT_TRUE(total >= 12 && total <= file.size()) << "a part of a block";
    if (total < 12 || total > file.size()) break;
    EXPECT_EQ(u32(file.substr(total - 4)), total);
    const auto type = u32(file);
    const auto body = file.substr(8, total - 12);
    file.remove_prefix(total);
    if (type == 1) interfaces.emplace_back(body.substr(12, u16(body.substr(10))));
    if (type != 6) continue;
    const std::size_t size = u32(body.substr(12));
    CapturedPacket packet{.interface = interfaces.at(u32(body)),
                          .text = std::string(body.substr(20 + 14, size - 14))};
    for (auto options = body.substr(20 + (size + 3) / 4 * 4); u16(options) != 0;) {
      if (u16(options) == 4) packet.dropped = u32(options.substr(4));
      options.remove_prefix(4 + (u16(options.substr(2)) + 3u) / 4 * 4);
    }
    packets.push_back(std::move(packet));
  }
  return packets;
}

}  // namespace softhca::fabric
