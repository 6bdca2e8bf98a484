// The modules of the document (4.4), chapter 6 and chapter 10: the names of the card's parts in a
// trace. Descriptors and registers hold the values of the card's last operations.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "util/inspect.h"
#include "util/trace.h"

namespace softhca::rsnic {

/// The module whose steps are those of a command (4.1).
inline constexpr std::string_view kFirmware = "Firmware";

/// One of the card's memories in the address map of its processor (tables in chapters 6 and 8).
struct MemoryArea {
  std::string_view name;
  std::uint32_t address;
  std::uint32_t window;  ///< bytes of the window; 0: not in the document
  std::uint32_t ram;     ///< bytes of the RAM behind it (chapter 6); 0: not in the document
};
std::span<const MemoryArea> memory_map();

/// A 32-bit register of the CMAC.
struct CmacRegister {
  std::uint32_t offset;  ///< from the CMAC's base address
  std::string_view name;
  std::uint8_t width;          ///< bits, from table 10-2; table 10-1 prints the unused bits
  std::uint8_t printed_width;  ///< bits, from table 10-1
};
std::span<const CmacRegister> cmac_registers();

class Modules final : public util::TraceModules {
 public:
  void handle_step(const util::TraceRecord& record, const Emit& emit) override;

  /// The CMAC's registers after the last packet.
  void inspect(util::InspectNode& out) const;

 private:
  /// One direction of the PCIe DMA (tables 6-2 and 6-3) or of the CMAC. Tags and RAM offsets count
  /// up.
  struct Engine {
    std::uint32_t tag = 0;
    std::uint32_t place = 0;  ///< offset in its RAM
  };

  struct DmaNames;
  static const DmaNames kRead, kWrite;

  void dma(const util::TraceRecord& record, const DmaNames& names, Engine& engine,
           const Emit& emit);
  std::uint32_t describe(std::uint32_t at, std::uint32_t ram, Engine& engine, std::uint64_t bytes);
  void packet_out(const util::TraceRecord& record, const Emit& emit);
  void packet_in(const util::TraceRecord& record, const Emit& emit);
  void interrupt(const util::TraceRecord& record, const Emit& emit);
  std::uint32_t& cmac(std::uint32_t offset);

  Engine reads_, writes_, transmits_, receives_;
  bool in_command_ = false;
  std::array<std::uint32_t, 14> cmac_{};  ///< by offset / 4
};

}  // namespace softhca::rsnic
