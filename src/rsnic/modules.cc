#include "rsnic/modules.h"

#include <algorithm>

namespace softhca::rsnic {
namespace {

using util::TraceField;
using util::TraceRecord;
using util::TraceStep;

// 4.4, and what the figures of chapters 4 and 6 name besides.
constexpr std::string_view kQpManager = "QP Manager";
constexpr std::string_view kWqeHandler = "WQE Handler";
constexpr std::string_view kCqeGenerator = "CQE Generator";
constexpr std::string_view kIbhProcessor = "IBH Processor";
constexpr std::string_view kIpHandler = "IP Handler";
constexpr std::string_view kMr = "MR";
constexpr std::string_view kDma = "DMA";
constexpr std::string_view kCmac = "CMAC";
constexpr std::string_view kMsix = "MSI-X";
constexpr std::string_view kFirmware = "Firmware";

constexpr MemoryArea kMemoryMap[] = {
    {"BAR 0 (bram0)", 0xC0000000, 64 << 10, 32 << 10},
    {"DMA Descriptor (bram1)", 0xC0010000, 64 << 10, 0},
    {"Mailbox Input RAM (rd_ram or bram2)", 0xC0020000, 64 << 10, 16 << 10},
    {"Mailbox Output RAM (wr_ram or bram3)", 0xC0030000, 64 << 10, 16 << 10},
    {"Rx_ram or bram4", 0xC0040000, 0, 0},
    {"Tx_ram or bram5", 0xC0050000, 0, 0},
    {"CMAC Base Address or bram6", 0xC0060000, 0, 0},
};
constexpr std::uint32_t kMailboxInput = 0x20000;
constexpr std::uint32_t kMailboxOutput = 0x30000;
constexpr std::uint32_t kRxRam = 0x40000;
constexpr std::uint32_t kTxRam = 0x50000;
constexpr std::uint32_t kWindow = 64 << 10;
constexpr std::uint32_t kMailboxRam = 16 << 10;

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

/// Tables 6-2 and 6-3: 16 bits of length, 15 of tag. A longer access has several descriptors, whose
/// lengths are multiples of any page.
constexpr std::uint64_t kDescriptorMax = 32 << 10;
constexpr std::uint32_t kDmaTags = 1u << 15;
constexpr std::uint32_t kCmacTags = 1u << 5;

/// Where `length` bytes get room in a RAM of `size` bytes, one after the other.
std::uint32_t take_place(std::uint32_t& next, std::uint64_t length, std::uint32_t size) {
  if (next + length > size) next = 0;
  const auto place = next;
  next = static_cast<std::uint32_t>(std::min<std::uint64_t>(next + (length + 63) / 64 * 64, size));
  return place;
}

}  // namespace

std::span<const MemoryArea> memory_map() { return kMemoryMap; }
std::span<const CmacRegister> cmac_registers() { return kCmacRegisters; }

std::uint32_t& Modules::cmac(std::uint32_t offset) { return cmac_[offset / sizeof(std::uint32_t)]; }

void Modules::handle_step(const TraceRecord& record, const Emit& emit) {
  const auto say = [&](std::string_view module, std::string_view name) {
    emit({module, name, record.text, record.fields});
  };
  switch (record.step) {
    case TraceStep::kDoorbell:
      return say(kQpManager, "doorbell");
    case TraceStep::kDmaRead:
      return dma(record, true, emit);
    case TraceStep::kDmaWrite:
      return dma(record, false, emit);
    case TraceStep::kSendWqe:
      return say(kWqeHandler, "send WQE");
    case TraceStep::kReceiveWqe:
      return say(kWqeHandler, "receive WQE");
    case TraceStep::kKey:
      return say(kMr, "keyCtx entry");
    case TraceStep::kPacketOut:
      return packet_out(record, emit);
    case TraceStep::kPacketIn:
      return packet_in(record, emit);
    case TraceStep::kCompletion:
      return say(kCqeGenerator, "CQE");
    case TraceStep::kEvent:
      return say(kCqeGenerator, "EQE");
    case TraceStep::kInterrupt:
      return interrupt(record, emit);
    case TraceStep::kCommandDoorbell:
    case TraceStep::kCommandBegin:
    case TraceStep::kCommand:
    case TraceStep::kCommandEnd:
      return command(record, emit);
  }
}

/// Tables 6-2 and 6-3; what a command reads and writes has RAMs of its own.
void Modules::dma(const TraceRecord& record, bool read, const Emit& emit) {
  auto& engine = read ? reads_ : writes_;
  const auto base = in_command_ ? (read ? kMailboxInput : kMailboxOutput) : read ? kTxRam : kRxRam;
  const auto ram = in_command_ ? kMailboxRam : kWindow;
  auto address = record.get("address");
  for (auto left = record.get("bytes"); left != 0;) {
    const auto length = std::min({left, kDescriptorMax, std::uint64_t{ram}});
    const auto place = base + take_place(engine.place, length, ram);
    engine.tag = (engine.tag + 1) % kDmaTags;
    if (read) {
      const TraceField fields[] = {{"read_desc_pcie_addr", address},
                                   {"read_desc_ram_addr", place},
                                   {"read_desc_len", length},
                                   {"read_desc_tag", engine.tag}};
      emit({kDma, "read descriptor", record.text, fields});
    } else {
      const TraceField fields[] = {{"write_desc_pcie_addr", address},
                                   {"write_desc_ram_addr", place},
                                   {"write_desc_len", length},
                                   {"write_desc_tag", engine.tag}};
      emit({kDma, "write descriptor", record.text, fields});
    }
    address += length;
    left -= length;
  }
}

/// 4.4.4: headers and payload become a packet. Chapter 10: then the CMAC gets it.
void Modules::packet_out(const TraceRecord& record, const Emit& emit) {
  if (record.text != "Ethernet") emit({kIbhProcessor, "packet", record.text, record.fields});
  const auto bytes = record.get("bytes");
  transmits_.tag = (transmits_.tag + 1) % kCmacTags;
  cmac(kTxDescriptor) = kTxRam + take_place(transmits_.place, bytes, kWindow);
  cmac(kTxDescriptor + 4) = static_cast<std::uint32_t>(bytes);
  cmac(kTxDescriptor + 8) = transmits_.tag;
  cmac(kTxDescriptor + 12) = 1;
  const TraceField fields[] = {{"tx_desc_ram_addr", cmac(kTxDescriptor)},
                               {"tx_desc_len", bytes},
                               {"tx_desc_tag", transmits_.tag}};
  emit({kCmac, "transmit descriptor", record.text, fields});
  cmac(kTxDescriptor + 16) = transmits_.tag;
  cmac(kTxDescriptor + 20) = 1;
}

/// 4.4.5: "receives the incoming RDMA packets and filters out the non-RDMA packets".
void Modules::packet_in(const TraceRecord& record, const Emit& emit) {
  const auto bytes = record.get("bytes");
  receives_.tag = (receives_.tag + 1) % kCmacTags;
  cmac(kRxDescriptor) = kRxRam + take_place(receives_.place, bytes, kWindow);
  cmac(kRxDescriptor + 4) = static_cast<std::uint32_t>(bytes);
  cmac(kRxDescriptor + 8) = receives_.tag;
  cmac(kRxDescriptor + 12) = 1;
  cmac(kRxDescriptor + 16) = static_cast<std::uint32_t>(bytes);
  cmac(kRxDescriptor + 20) = receives_.tag;
  cmac(kRxDescriptor + 24) = 1;
  const TraceField fields[] = {{"rx_desc_ram_addr", cmac(kRxDescriptor)},
                               {"rx_desc_status_len_reg", bytes},
                               {"rx_desc_status_tag_reg", receives_.tag}};
  emit({kCmac, "receive descriptor", record.text, fields});
  if (record.text == "Ethernet") {
    return emit({kIpHandler, "not RDMA", record.text, record.fields});
  }
  emit({kIpHandler, "RDMA packet", record.text, record.fields});
  emit({kIbhProcessor, "headers", record.text, record.fields});
}

/// Table 6-4.
void Modules::interrupt(const TraceRecord& record, const Emit& emit) {
  const TraceField fields[] = {{"cfg_interrupt_msix_address", record.get("address")},
                               {"cfg_interrupt_msi_data", record.get("data")},
                               {"cfg_interrupt_msix_int", 1},
                               {"vector", record.get("vector")}};
  emit({kMsix, "interrupt", record.text, fields});
}

/// 4.1: the twelve steps of a command.
void Modules::command(const TraceRecord& record, const Emit& emit) {
  const auto name = [&]() -> std::string_view {
    switch (record.step) {
      case TraceStep::kCommandDoorbell:
        return "3. DoorBell Notification";
      case TraceStep::kCommandBegin:
        in_command_ = true;
        return "4. set up the PCI Read DMA";
      case TraceStep::kCommand:
        return "7. process the MailBox Command";
      default:
        in_command_ = false;
        return "10. MailBox Output Buffer is in Host SDRAM";
    }
  };
  emit({kFirmware, name(), record.text, record.fields});
}

void Modules::inspect(util::InspectNode& out) const {
  for (const auto& reg : kCmacRegisters) {
    const auto value = cmac_[reg.offset / sizeof(std::uint32_t)];
    out.add_hex(reg.name, value);
  }
}

}  // namespace softhca::rsnic
