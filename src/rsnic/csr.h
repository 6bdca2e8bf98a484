// The CSR file (4.1): what the document's firmware keeps of the commands that it has answered, 32
// bits after 32 bits, in tables of its own. The host never sees it; an engineer compares it with
// theirs.
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

/// Where a value comes from.
enum class CsrSource : std::uint8_t {
  kCapability,  ///< `at` is in the general capabilities
  kOutput,      ///< `at` is in the output of the table's command
  kInput,
  kPages,  ///< of MANAGE_PAGES: its input if software gives pages, its output if it takes them back
};

struct CsrRow {
  std::string_view section;  ///< "4.1.1"
  std::string_view title;    ///< of its table
  spec::connectx::command_opcode command;
  std::uint16_t offset;  ///< in the CSR file, as printed
  std::uint16_t hi, lo;  ///< bits
  std::uint16_t size;    ///< bytes, of those that are no number; otherwise 0
  std::string_view name;
  std::optional<std::uint32_t> printed;  ///< the document's default value
  CsrSource source;
  std::uint16_t at;                   ///< byte of the message
  std::uint8_t source_hi, source_lo;  ///< bits there

  /// "00h 31:27 log_max_cq_sz", or "144h 64 bytes driver version".
  std::string place() const;
};

/// In the order of the document.
std::span<const CsrRow> csr_table();

class CsrFile {
 public:
  CsrFile();

  void reset();
  /// A command was executed.
  void note(spec::connectx::command_opcode opcode, std::span<const std::byte> in,
            std::span<const std::byte> out);

  /// What the row holds: a number as the document writes them ("16h"), bytes as text or in
  /// hexadecimal. Numbers have the bits that the table has room for. Nothing before the first
  /// command of its table.
  std::optional<std::string> value(const CsrRow& row,
                                   util::View<spec::connectx::hca_cap> general) const;

 private:
  /// As much of a message as any row looks at.
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
