#include "wire/pcapng.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "hex.h"
#include "util/endian.h"
#include "vectors.h"

namespace softhca::wire {
namespace {

struct Block {
  std::uint32_t type;
  std::string body;
};

std::uint32_t u32(const std::string& text, std::size_t at) {
  return util::load_le32(reinterpret_cast<const std::byte*>(text.data()) + at);
}

/// Checks the framing of each block: both lengths, multiples of four.
std::vector<Block> blocks_of(const std::string& file) {
  std::vector<Block> blocks;
  for (std::size_t at = 0; at != file.size();) {
    const auto total = u32(file, at + 4);
    EXPECT_EQ(total % 4, 0u);
    EXPECT_EQ(u32(file, at + total - 4), total);
    blocks.push_back({u32(file, at), file.substr(at + 8, total - 12)});
    at += total;
  }
  return blocks;
}

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(Pcapng, WritesSectionInterfacesAndPackets) {
  std::vector<std::byte> out;
  PcapngWriter writer(out);
  EXPECT_EQ(writer.add_interface("a"), 0u);
  EXPECT_EQ(writer.add_interface("bbbb"), 1u);
  const auto bytes = from_hex("0102030405");
  writer.write({1, 0x1122334455667788, PcapngWriter::Direction::kOutbound, 0, "why"},
               Frame::from_bytes(bytes));
  writer.write({0, 5, PcapngWriter::Direction::kUnknown, 0, {}}, Frame::from_bytes(bytes));

  const auto blocks = blocks_of(text_of(out));
  ASSERT_EQ(blocks.size(), 5u);
  EXPECT_EQ(blocks[0].type, 0x0a0d0d0au);
  EXPECT_EQ(u32(blocks[0].body, 0), 0x1a2b3c4du);
  EXPECT_EQ(blocks[1].type, 1u);
  EXPECT_EQ(blocks[2].type, 1u);
  const auto& packet = blocks[3].body;
  EXPECT_EQ(blocks[3].type, 6u);
  EXPECT_EQ(u32(packet, 0), 1u);
  EXPECT_EQ(u32(packet, 4), 0x11223344u);
  EXPECT_EQ(u32(packet, 8), 0x55667788u);
  EXPECT_EQ(u32(packet, 12), 5u);
  EXPECT_EQ(u32(packet, 16), 5u);
  EXPECT_EQ(packet.substr(20, 8), std::string("\1\2\3\4\5\0\0\0", 8));
  EXPECT_EQ(packet.substr(28), std::string("\1\0\3\0why\0\2\0\4\0\2\0\0\0\0\0\0\0", 20));
  EXPECT_EQ(blocks[4].body.size(), 28u) << "no options";
}

// 4.3.1, epb_dropcount: "the number of packets lost between this packet and the preceding one".
TEST(Pcapng, APacketCountsThoseMissingBeforeIt) {
  std::vector<std::byte> out;
  PcapngWriter writer(out);
  writer.add_interface("a");
  const auto at = out.size();
  const auto bytes = from_hex("01020304");
  writer.write({.time_ns = 1, .dropped = 0x1122334455667788, .comment = {}},
               Frame::from_bytes(bytes));
  const auto blocks = blocks_of(text_of(out).substr(at));
  ASSERT_EQ(blocks.size(), 1u);
  EXPECT_EQ(blocks[0].body.substr(24),
            std::string("\4\0\x08\0\x88\x77\x66\x55\x44\x33\x22\x11\0\0\0\0", 16));
}

std::string output_of(const std::string& command) {
  std::string text;
  std::FILE* pipe = popen(command.c_str(), "r");
  char buffer[4096];
  while (const auto n = std::fread(buffer, 1, sizeof buffer, pipe)) text.append(buffer, n);
  return pclose(pipe) == 0 ? text : "failed: " + text;
}

TEST(Pcapng, TsharkReadsEveryPacket) {
  if (std::system("command -v tshark >/dev/null 2>&1") != 0) GTEST_SKIP() << "no tshark";
  const auto path =
      (std::filesystem::temp_directory_path() / ("pcapng_test." + std::to_string(getpid())))
          .string();
  std::vector<std::byte> out;
  PcapngWriter writer(out);
  writer.add_interface("mlx0");
  for (const auto hex : vectors::kAll) {
    const auto bytes = from_hex(hex);
    writer.write({0, 1'700'000'000'123'456'789, PcapngWriter::Direction::kInbound, 7, "test"},
                 Frame::from_bytes(bytes));
  }
  std::ofstream(path, std::ios::binary) << text_of(out);
  const auto text = output_of("tshark -r " + path +
                              " -T fields -e frame.interface_name -e frame.time_epoch"
                              " -e frame.drop_count -e infiniband.bth.opcode"
                              " -e infiniband.invariant.crc"
                              " -e _ws.malformed 2>/dev/null");
  std::filesystem::remove(path);
  EXPECT_EQ(text,
            "mlx0\t1700000000.123456789\t7\t129\t\t\n"  // tshark shows no ICRC of a CNP
            "mlx0\t1700000000.123456789\t7\t10\t0xdd043065\t\n"
            "mlx0\t1700000000.123456789\t7\t17\t0x20ccc2cc\t\n"
            "mlx0\t1700000000.123456789\t7\t100\t0xdd9a446d\t\n"
            "mlx0\t1700000000.123456789\t7\t5\t0x069396b8\t\n");
}

}  // namespace
}  // namespace softhca::wire
