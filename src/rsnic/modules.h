// The modules of the document (4.4), chapter 6 and chapter 10: what a trace of the card calls its
// parts. Descriptors and registers have the values of what the card has just done.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "util/inspect.h"
#include "util/trace.h"

namespace softhca::rsnic {

/// One of the card's memories, as its processor sees it (tables in chapters 6 and 8).
struct MemoryArea {
  std::string_view name;
  std::uint32_t address;
  std::uint32_t window;  ///< bytes of the window; 0: the document does not say
  std::uint32_t ram;     ///< bytes of the RAM behind it (chapter 6); 0: likewise
};
std::span<const MemoryArea> memory_map();

/// A register of the CMAC, of 32 bits.
struct CmacRegister {
  std::uint32_t offset;  ///< from the CMAC's base address
  std::string_view name;
  std::uint8_t width;          ///< bits, of table 10-2; table 10-1 prints those that are left
  std::uint8_t printed_width;  ///< bits, of table 10-1
};
std::span<const CmacRegister> cmac_registers();

class Modules final : public util::TraceModules {
 public:
  void handle_step(const util::TraceRecord& record, const Emit& emit) override;

  /// The CMAC's registers as the last packet has left them.
  void inspect(util::InspectNode& out) const;

 private:
  /// A side of the PCIe DMA (tables 6-2 and 6-3), or of the CMAC: tags and places follow each
  /// other.
  struct Engine {
    std::uint32_t tag = 0;
    std::uint32_t place = 0;  ///< in its RAM
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
