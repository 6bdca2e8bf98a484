// The CSR file (4.1): the document's firmware records values of executed commands in tables of
// 32-bit registers. The host cannot read it; an engineer can compare it with the firmware's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "spec/connectx/caps.h"
#include "spec/connectx/opcodes.h"
#include "util/field.h"

namespace softhca::rsnic {

/// Source of a row's value.
enum class CsrSource : std::uint8_t {
  kCapability,  ///< `at` is an offset in the general capabilities
  kOutput,      ///< `at` is an offset in the output of the table's command
  kInput,
  kPages,  ///< MANAGE_PAGES: the input if software gives pages, the output if it takes them back
};

struct CsrRow {
  std::string_view section;  ///< "4.1.1"
  std::string_view title;    ///< title of its table
  spec::connectx::command_opcode command;
  std::uint16_t offset;  ///< in the CSR file, as printed
  std::uint16_t hi, lo;  ///< bits
  std::uint16_t size;    ///< bytes, if the row is not a number; else 0
  std::string_view name;
  std::optional<std::uint32_t> printed;  ///< the document's default value
  CsrSource source;
  std::uint16_t at;                   ///< byte offset in the message
  std::uint8_t source_hi, source_lo;  ///< bits in the message

  /// "00h 31:27 log_max_cq_sz", or "144h 64 bytes driver version".
  std::string place() const;
};

/// In the order of the document.
std::span<const CsrRow> csr_table();

class CsrFile {
 public:
  CsrFile();

  void reset();
  /// Records an executed command.
  void note(spec::connectx::command_opcode opcode, std::span<const std::byte> in,
            std::span<const std::byte> out);

  /// The value of a row: a number as the document writes it ("16h"), cut to the bits that the table
  /// provides, or bytes as text or hexadecimal. Nothing before the first command of its table.
  std::optional<std::string> value(const CsrRow& row,
                                   util::View<spec::connectx::hca_cap> general) const;

 private:
  /// Bytes of a message that rows refer to.
  static constexpr std::size_t kMessage = 0x140;
  struct Saved {
    spec::connectx::command_opcode opcode;
    bool seen = false;
    std::array<std::byte, kMessage> in, out;
  };
  const Saved* find(spec::connectx::command_opcode opcode) const;

  std::vector<Saved> saved_;  ///< one for each command of the tables
};

}  // namespace softhca::rsnic
