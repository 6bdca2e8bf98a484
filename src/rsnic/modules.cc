#include "rsnic/modules.h"

#include <algorithm>

namespace softhca::rsnic {
namespace {

using util::TraceField;
using util::TraceRecord;
using util::TraceStep;

// Module names of 4.4, and of the figures in chapters 4 and 6.
constexpr std::string_view kQpManager = "QP Manager";
constexpr std::string_view kWqeHandler = "WQE Handler";
constexpr std::string_view kCqeGenerator = "CQE Generator";
constexpr std::string_view kIbhProcessor = "IBH Processor";
constexpr std::string_view kIpHandler = "IP Handler";
constexpr std::string_view kMr = "MR";
constexpr std::string_view kDma = "DMA";
constexpr std::string_view kCmac = "CMAC";
constexpr std::string_view kMsix = "MSI-X";

/// Steps of 4.4, and those of a command's twelve (4.1) that correspond to a record.
constexpr util::TraceName kNames[] = {
    {TraceStep::kDoorbell, kQpManager, "doorbell"},
    {TraceStep::kCqDoorbell, kCqeGenerator, "CQ doorbell"},
    {TraceStep::kEqDoorbell, kCqeGenerator, "EQ doorbell"},
    {TraceStep::kSendWqe, kWqeHandler, "send WQE"},
    {TraceStep::kReceiveWqe, kWqeHandler, "receive WQE"},
    {TraceStep::kKey, kMr, "keyCtx entry"},
    {TraceStep::kCompletion, kCqeGenerator, "CQE"},
    {TraceStep::kEvent, kCqeGenerator, "EQE"},
    {TraceStep::kCommandDoorbell, kFirmware, "3. DoorBell Notification"},
    {TraceStep::kCommandBegin, kFirmware, "4. set up the PCI Read DMA"},
    {TraceStep::kCommand, kFirmware, "7. process the MailBox Command"},
    {TraceStep::kCommandEnd, kFirmware, "10. MailBox Output Buffer is in Host SDRAM"},
};

/// Name of frames that are not RDMA (fabric::TracePort).
constexpr std::string_view kEthernet = "Ethernet";

constexpr MemoryArea kMemoryMap[] = {
    {"BAR 0 (bram0)", 0xC0000000, 64 << 10, 32 << 10},
    {"DMA Descriptor (bram1)", 0xC0010000, 64 << 10, 0},
    {"Mailbox Input RAM (rd_ram or bram2)", 0xC0020000, 64 << 10, 16 << 10},
    {"Mailbox Output RAM (wr_ram or bram3)", 0xC0030000, 64 << 10, 16 << 10},
    {"Rx_ram or bram4", 0xC0040000, 0, 0},
    {"Tx_ram or bram5", 0xC0050000, 0, 0},
    {"CMAC Base Address or bram6", 0xC0060000, 0, 0},
};
/// Descriptors have 19 bits for a RAM address, so addresses count from the start of the map.
constexpr std::uint32_t place_of(const MemoryArea& area) {
  return area.address - kMemoryMap[0].address;
}
constexpr std::uint32_t kMailboxInput = place_of(kMemoryMap[2]);
constexpr std::uint32_t kMailboxOutput = place_of(kMemoryMap[3]);
constexpr std::uint32_t kRxRam = place_of(kMemoryMap[4]);
constexpr std::uint32_t kTxRam = place_of(kMemoryMap[5]);
constexpr std::uint32_t kWindow = kMemoryMap[2].window;
constexpr std::uint32_t kMailboxRam = kMemoryMap[2].ram;

constexpr CmacRegister kCmacRegisters[] = {
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
constexpr std::uint32_t kRxDescriptor = 0x00;
constexpr std::uint32_t kTxDescriptor = 0x20;

/// Tables 6-2 and 6-3: 16 bits of length, 15 of tag. A longer access takes several descriptors,
/// whose lengths are multiples of any page size.
constexpr std::uint64_t kDescriptorMax = 32 << 10;
constexpr std::uint32_t kDmaTags = 1u << 15;
constexpr std::uint32_t kCmacTags = 1u << 5;

/// Allocates `length` bytes in a RAM of `size` bytes, cyclically.
std::uint32_t take_place(std::uint32_t& next, std::uint64_t length, std::uint32_t size) {
  if (next + length > size) next = 0;
  const auto place = next;
  next = static_cast<std::uint32_t>(std::min<std::uint64_t>(next + (length + 63) / 64 * 64, size));
  return place;
}

}  // namespace

/// Names of one direction of the PCIe DMA: the signals of tables 6-2 and 6-3, and its RAMs.
struct Modules::DmaNames {
  std::string_view descriptor, pcie_addr, ram_addr, len, tag;
  std::string_view valid, ready, status_tag, status_valid;
  std::uint32_t mailbox_ram, packet_ram;
};
constexpr Modules::DmaNames Modules::kRead{"read descriptor",
                                           "read_desc_pcie_addr",
                                           "read_desc_ram_addr",
                                           "read_desc_len",
                                           "read_desc_tag",
                                           "read_desc_valid",
                                           "read_desc_ready",
                                           "read_desc_status_tag",
                                           "read_desc_status_valid",
                                           kMailboxInput,
                                           kTxRam};
constexpr Modules::DmaNames Modules::kWrite{"write descriptor",
                                            "write_desc_pcie_addr",
                                            "write_desc_ram_addr",
                                            "write_desc_len",
                                            "write_desc_tag",
                                            "write_desc_valid",
                                            "write_desc_ready",
                                            "write_desc_status_tag",
                                            "write_desc_status_valid",
                                            kMailboxOutput,
                                            kRxRam};

std::span<const MemoryArea> memory_map() { return kMemoryMap; }
std::span<const CmacRegister> cmac_registers() { return kCmacRegisters; }

std::uint32_t& Modules::cmac(std::uint32_t offset) { return cmac_[offset / sizeof(std::uint32_t)]; }

void Modules::handle_step(const TraceRecord& record, const Emit& emit) {
  switch (record.step) {
    case TraceStep::kDmaRead:
      return dma(record, kRead, reads_, emit);
    case TraceStep::kDmaWrite:
      return dma(record, kWrite, writes_, emit);
    case TraceStep::kPacketOut:
      return packet_out(record, emit);
    case TraceStep::kPacketIn:
      return packet_in(record, emit);
    case TraceStep::kInterrupt:
      return interrupt(record, emit);
    case TraceStep::kCommandBegin:
      in_command_ = true;
      break;
    case TraceStep::kCommandEnd:
      in_command_ = false;
      break;
    default:
      break;
  }
  emit(util::named(record, kNames));
}

/// Accesses of a command use separate RAMs.
void Modules::dma(const TraceRecord& record, const DmaNames& names, Engine& engine,
                  const Emit& emit) {
  const auto base = in_command_ ? names.mailbox_ram : names.packet_ram;
  const auto ram = in_command_ ? kMailboxRam : kWindow;
  auto address = record.get("address");
  for (auto left = record.get("bytes"); left != 0;) {
    const auto length = std::min({left, kDescriptorMax, std::uint64_t{ram}});
    const auto place = base + take_place(engine.place, length, ram);
    engine.tag = (engine.tag + 1) % kDmaTags;
    const TraceField fields[] = {{names.pcie_addr, address},
                                 {names.ram_addr, place},
                                 {names.len, length},
                                 {names.tag, engine.tag},
                                 {names.valid, 1},
                                 {names.ready, 1},
                                 // The transfer is complete.
                                 {names.status_tag, engine.tag},
                                 {names.status_valid, 1}};
    emit({kDma, names.descriptor, record.text, fields});
    address += length;
    left -= length;
  }
}

/// Chapter 10: writes a descriptor to the registers from `at` on. Returns the offset of the status
/// registers behind it.
std::uint32_t Modules::describe(std::uint32_t at, std::uint32_t ram, Engine& engine,
                                std::uint64_t bytes) {
  engine.tag = (engine.tag + 1) % kCmacTags;
  cmac(at) = ram + take_place(engine.place, bytes, kWindow);
  cmac(at + 4) = static_cast<std::uint32_t>(bytes);
  cmac(at + 8) = engine.tag;
  cmac(at + 12) = 1;
  return at + 16;
}

/// 4.4.4: headers and payload become a packet. Chapter 10: the packet goes to the CMAC.
void Modules::packet_out(const TraceRecord& record, const Emit& emit) {
  if (record.text != kEthernet) emit({kIbhProcessor, "packet", record.text, record.fields});
  const auto bytes = record.get("bytes");
  const auto status = describe(kTxDescriptor, kTxRam, transmits_, bytes);
  const TraceField fields[] = {{"tx_desc_ram_addr", cmac(kTxDescriptor)},
                               {"tx_desc_len", bytes},
                               {"tx_desc_tag", transmits_.tag}};
  emit({kCmac, "transmit descriptor", record.text, fields});
  cmac(status) = transmits_.tag;
  cmac(status + 4) = 1;
}

/// 4.4.5: "receives the incoming RDMA packets and filters out the non-RDMA packets".
void Modules::packet_in(const TraceRecord& record, const Emit& emit) {
  const auto bytes = record.get("bytes");
  const auto status = describe(kRxDescriptor, kRxRam, receives_, bytes);
  cmac(status) = static_cast<std::uint32_t>(bytes);
  cmac(status + 4) = receives_.tag;
  cmac(status + 8) = 1;
  const TraceField fields[] = {{"rx_desc_ram_addr", cmac(kRxDescriptor)},
                               {"rx_desc_status_len_reg", bytes},
                               {"rx_desc_status_tag_reg", receives_.tag}};
  emit({kCmac, "receive descriptor", record.text, fields});
  if (record.text == kEthernet) return emit({kIpHandler, "not RDMA", record.text, record.fields});
  emit({kIpHandler, "RDMA packet", record.text, record.fields});
  emit({kIbhProcessor, "headers", record.text, record.fields});
}

/// Table 6-4.
void Modules::interrupt(const TraceRecord& record, const Emit& emit) {
  const TraceField fields[] = {{"cfg_interrupt_msix_address", record.get("address")},
                               {"cfg_interrupt_msi_data", record.get("data")},
                               {"cfg_interrupt_msix_int", 1},
                               {"cfg_interrupt_msi_sent", 1},
                               {"vector", record.get("vector")}};
  emit({kMsix, "interrupt", record.text, fields});
}

void Modules::inspect(util::InspectNode& out) const {
  for (const auto& reg : kCmacRegisters) {
    const auto value = cmac_[reg.offset / sizeof(std::uint32_t)];
    out.add_hex(reg.name, value);
  }
}

}  // namespace softhca::rsnic
