#include "connectx/command/command_table.h"

#include <algorithm>
#include <array>

#include "connectx/command/commands.h"
#include "spec/connectx/caps.h"
#include "spec/connectx/cq.h"
#include "spec/connectx/dct.h"
#include "spec/connectx/eq.h"
#include "spec/connectx/flow_table.h"
#include "spec/connectx/hca.h"
#include "spec/connectx/mkey.h"
#include "spec/connectx/qp.h"
#include "spec/connectx/raw_queues.h"
#include "spec/connectx/resources.h"
#include "spec/connectx/srq.h"
#include "spec/connectx/vport.h"

namespace softhca::connectx {

namespace {

using namespace spec::connectx;
using Op = command_opcode;

constexpr std::uint8_t bit(HcaState state) {
  return static_cast<std::uint8_t>(1u << static_cast<unsigned>(state));
}
constexpr std::uint8_t kBeforeEnable = bit(HcaState::kDisabled);
constexpr std::uint8_t kBeforeInit = bit(HcaState::kEnabled);
constexpr std::uint8_t kAfterInit = bit(HcaState::kInitialized);
constexpr std::uint8_t kAfterEnable = kBeforeInit | kAfterInit;
constexpr std::uint8_t kAlways = kBeforeEnable | kAfterEnable;

/// The section of commands that only the driver has.
constexpr std::string_view kDriver = "mlx5 driver interface";
/// The section of commands that mlx5 of Linux 3.11 has
/// (drivers/net/ethernet/mellanox/mlx5/core/qp.c), and today's drivers do not.
constexpr std::string_view kEarlyDriver = "early mlx5 drivers";
/// Minimum input length: the fixed part, or less if some drivers send less. Missing bytes count as
/// zeros. Exception: in SET_HCA_CAP, a missing capability keeps its value.
template <class In>
constexpr std::uint32_t kLeastInput = In::kSize;
/// iPXE and mlx5 of Linux 3.11 send the first 256 bytes of the capabilities.
template <>
constexpr std::uint32_t kLeastInput<set_hca_cap_in> = set_hca_cap_in::capability.kOffset;
/// In commands with a QP context, these two end the input after the context.
template <class In>
constexpr std::uint32_t kWithQpContext = In::qpc.kOffset + qpc::kSize;
template <>
constexpr std::uint32_t kLeastInput<rst2init_qp_in> = kWithQpContext<rst2init_qp_in>;
template <>
constexpr std::uint32_t kLeastInput<init2init_qp_in> = kWithQpContext<init2init_qp_in>;
template <>
constexpr std::uint32_t kLeastInput<init2rtr_qp_in> = kWithQpContext<init2rtr_qp_in>;
template <>
constexpr std::uint32_t kLeastInput<rtr2rts_qp_in> = kWithQpContext<rtr2rts_qp_in>;
template <>
constexpr std::uint32_t kLeastInput<rts2rts_qp_in> = kWithQpContext<rts2rts_qp_in>;
template <>
constexpr std::uint32_t kLeastInput<sqerr2rts_qp_in> = kWithQpContext<sqerr2rts_qp_in>;
template <>
constexpr std::uint32_t kLeastInput<rts2sqd_qp_in> = kWithQpContext<rts2sqd_qp_in>;
template <>
constexpr std::uint32_t kLeastInput<sqd2rts_qp_in> = kWithQpContext<sqd2rts_qp_in>;
template <>
constexpr std::uint32_t kLeastInput<sqd2sqd_qp_in> = kWithQpContext<sqd2sqd_qp_in>;
/// Snabb ends the input after the first dword of the last destination.
template <class In>
constexpr std::uint32_t kEntry = 1;
template <>
constexpr std::uint32_t kEntry<set_flow_table_entry_in> = flow_context::destination_size;
/// Minimum output length: the fixed part, or the length that the manual prints if that is shorter.
template <class Out>
constexpr std::uint32_t kLeastOutput = Out::kSize;
template <>
constexpr std::uint32_t kLeastOutput<enable_hca_out> = 0x0C;
template <>
constexpr std::uint32_t kLeastOutput<disable_hca_out> = 0x0C;
template <>
constexpr std::uint32_t kLeastOutput<query_special_contexts_out> = 0x10;
/// Processes (DevX) read only the capabilities that they use.
template <>
constexpr std::uint32_t kLeastOutput<query_hca_cap_out> = query_hca_cap_out::capability.kOffset;

/// True for commands whose handler checks op_mod. For others, the documents define only 0.
constexpr bool reads_op_mod(Op opcode) {
  switch (opcode) {
    case Op::QUERY_HCA_CAP:
    case Op::SET_HCA_CAP:
    case Op::QUERY_PAGES:
    case Op::MANAGE_PAGES:
    case Op::QUERY_MKEY:
    case Op::MODIFY_CQ:
    case Op::ARM_RQ:
    case Op::ARM_XRC_SRQ:
    case Op::QUERY_VPORT_STATE:
    case Op::MODIFY_VPORT_STATE:
    case Op::QUERY_VPORT_COUNTER:
    case Op::ACCESS_REG:
    case Op::SET_FLOW_TABLE_ROOT:
    case Op::SET_FLOW_TABLE_ENTRY:
      return true;
    default:
      return false;
  }
}

constexpr auto kCommandTable = std::to_array<CommandSpec>({
#define IMPLEMENTED(opcode, name, section, coverage, when, words) \
  {Op::opcode,                                                    \
   section,                                                       \
   coverage,                                                      \
   words,                                                         \
   name##_in::kSize,                                              \
   kLeastInput<name##_in>,                                        \
   kEntry<name##_in>,                                             \
   kLeastOutput<name##_out>,                                      \
   name,                                                          \
   reads_op_mod(Op::opcode),                                      \
   when},
#define DONE(opcode, name, section, when) \
  IMPLEMENTED(opcode, name, section, Coverage::kDone, when, "")
#define PARTLY(opcode, name, section, when, missing) \
  IMPLEMENTED(opcode, name, section, Coverage::kPartly, when, missing)
#define ABSENT(opcode, section, why) \
  {Op::opcode, section, Coverage::kAbsent, why, 0, 0, 1, 0, nullptr, false, 0},
#define REFUSED(opcode, section, why) \
  {Op::opcode, section, Coverage::kRefused, why, 0, 0, 1, 0, nullptr, false, 0},
#include "connectx/command/command_list.inc"
#undef IMPLEMENTED
});

static_assert(std::ranges::adjacent_find(kCommandTable, std::ranges::greater_equal(),
                                         &CommandSpec::opcode) == kCommandTable.end());

}  // namespace

std::string_view to_string(Coverage coverage) {
  switch (coverage) {
    case Coverage::kDone:
      return "done";
    case Coverage::kPartly:
      return "partly";
    case Coverage::kAbsent:
      return "absent";
    case Coverage::kRefused:
      return "refused";
  }
  return "";
}

std::span<const CommandSpec> command_table() { return kCommandTable; }

const CommandSpec* find_command(std::uint16_t opcode) {
  const auto at =
      std::ranges::lower_bound(kCommandTable, static_cast<Op>(opcode), {}, &CommandSpec::opcode);
  return at != kCommandTable.end() && at->opcode == static_cast<Op>(opcode) ? &*at : nullptr;
}

}  // namespace softhca::connectx
