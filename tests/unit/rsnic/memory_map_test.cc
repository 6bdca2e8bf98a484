// The document's tables of the CMAC's registers and of the memory map.
#include <gtest/gtest.h>

#include <cstdint>
#include <iterator>
#include <string_view>

#include "rsnic/modules.h"

namespace softhca::rsnic {
namespace {

// Tables 10-2 and 10-1.
TEST(Cmac, HasTheRegistersOfTable102) {
  struct Register {
    std::uint32_t offset;
    std::string_view name;
    unsigned width, printed_width;
  };
  constexpr Register kDocument[] = {
      {0x00, "rx_desc_ram_addr", 19, 14},
      {0x04, "rx_desc_len", 16, 17},
      {0x08, "rx_desc_tag", 5, 28},
      {0x0C, "rx_desc_valid", 1, 32},
      {0x10, "rx_desc_status_len_reg", 16, 17},
      {0x14, "rx_desc_status_tag_reg", 5, 28},
      {0x18, "rx_desc_status_valid_reg", 1, 32},
      {0x20, "tx_desc_ram_addr", 19, 14},
      {0x24, "tx_desc_len", 16, 17},
      {0x28, "tx_desc_tag", 5, 28},
      {0x2C, "tx_desc_valid", 1, 32},
      {0x30, "tx_desc_status_tag_reg", 5, 28},
      {0x34, "tx_desc_status_valid_reg", 1, 32},
  };
  const auto registers = cmac_registers();
  ASSERT_EQ(registers.size(), std::size(kDocument));
  for (std::size_t i = 0; i != registers.size(); ++i) {
    EXPECT_EQ(registers[i].offset, kDocument[i].offset) << kDocument[i].name;
    EXPECT_EQ(registers[i].name, kDocument[i].name);
    EXPECT_EQ(registers[i].width, kDocument[i].width) << kDocument[i].name;
    EXPECT_EQ(registers[i].printed_width, kDocument[i].printed_width) << kDocument[i].name;
  }
}

// Table 8-1, and the RAMs of chapter 6.
TEST(MemoryMap, IsThatOfTheDocument) {
  struct Area {
    std::string_view name;
    std::uint32_t address, window, ram;
  };
  constexpr Area kDocument[] = {
      {"BAR 0 (bram0)", 0xC0000000, 0x10000, 0x8000},
      {"DMA Descriptor (bram1)", 0xC0010000, 0x10000, 0},
      {"Mailbox Input RAM (rd_ram or bram2)", 0xC0020000, 0x10000, 0x4000},
      {"Mailbox Output RAM (wr_ram or bram3)", 0xC0030000, 0x10000, 0x4000},
      {"Rx_ram or bram4", 0xC0040000, 0, 0},
      {"Tx_ram or bram5", 0xC0050000, 0, 0},
      {"CMAC Base Address or bram6", 0xC0060000, 0, 0},
  };
  const auto map = memory_map();
  ASSERT_EQ(map.size(), std::size(kDocument));
  for (std::size_t i = 0; i != map.size(); ++i) {
    EXPECT_EQ(map[i].name, kDocument[i].name);
    EXPECT_EQ(map[i].address, kDocument[i].address) << map[i].name;
    EXPECT_EQ(map[i].window, kDocument[i].window) << map[i].name;
    EXPECT_EQ(map[i].ram, kDocument[i].ram) << map[i].name;
  }
}

}  // namespace
}  // namespace softhca::rsnic
