// The control segment that begins every send WQE of QPs and SQs (PRM Table 26).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "connectx/base/numbers.h"
#include "spec/connectx/opcodes.h"
#include "spec/connectx/wqe.h"
#include "util/field.h"

namespace softhca::connectx {

/// Send WQEs consist of basic blocks of 64 bytes, which queue counters count.
inline constexpr std::size_t kWqeBasicBlock = 64;
/// A field of 6 bits has the size of a WQE in units of 16 bytes.
inline constexpr unsigned kLogWqeUnit = 4;
inline constexpr std::size_t kWqeUnit = std::size_t{1} << kLogWqeUnit;
inline constexpr std::size_t kSendWqeMax = 64 * kWqeUnit;

/// Field ce of the control segment.
using WqeCompletion = spec::connectx::wqe_completion;
constexpr bool is_signaled(WqeCompletion ce) {
  return ce == WqeCompletion::CQE || ce == WqeCompletion::CQE_AND_EQE;
}
/// True if the CQE counts as solicited.
constexpr bool has_event(WqeCompletion ce) { return ce == WqeCompletion::CQE_AND_EQE; }

/// A decoded control segment.
struct SendWqeControl {
  std::uint16_t index;
  spec::connectx::wqe_opcode opcode;  ///< may be outside the enumeration
  Qpn qpn;                            ///< or an SQN, of the same number space
  std::uint32_t units;                ///< of 16 bytes, with the control segment; 0 is a fault
  WqeCompletion completion;

  /// @pre wqe.size() >= 16
  static SendWqeControl parse(std::span<const std::byte> wqe) {
    using Ctrl = spec::connectx::wqe_ctrl_segment;
    const util::View<Ctrl> ctrl(wqe);
    return {.index = static_cast<std::uint16_t>(ctrl.get(Ctrl::wqe_index)),
            .opcode = static_cast<spec::connectx::wqe_opcode>(ctrl.get(Ctrl::opcode)),
            .qpn = Qpn(ctrl.get(Ctrl::sq_number)),
            .units = ctrl.get(Ctrl::ds),
            .completion = completion_of(ctrl)};
  }
  static WqeCompletion completion_of(util::View<spec::connectx::wqe_ctrl_segment> ctrl) {
    return static_cast<WqeCompletion>(ctrl.get(spec::connectx::wqe_ctrl_segment::ce));
  }
  /// True if the signature is right. PRM Table 26: "The signature covers (XOR) entire WQE Should
  /// result in 0xff." `wqe`: the whole WQE.
  static bool is_signed(std::span<const std::byte> wqe) {
    std::byte sum{};
    for (const auto byte : wqe) sum ^= byte;
    return sum == std::byte{0xFF};
  }
  std::uint32_t basic_blocks() const {
    const auto bytes = units * kWqeUnit;
    return units == 0 ? 1 : static_cast<std::uint32_t>((bytes - 1) / kWqeBasicBlock + 1);
  }
};

}  // namespace softhca::connectx
