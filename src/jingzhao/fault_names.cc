#include "jingzhao/fault_names.h"

#include "hca/named_values.h"
#include "spec/jingzhao/command.h"
#include "spec/jingzhao/registers.h"
#include "spec/jingzhao/wqe.h"

namespace softhca::jingzhao {
namespace {

using hca::FaultAction;
using spec::jingzhao::wqe_opcode;

constexpr std::string_view kRd = "a status of RD, which the device does not have";

/// Without the opcodes that only error CQEs have.
std::vector<hca::FaultName> requests() {
  auto names = hca::named_values<wqe_opcode>();
  std::erase_if(names, [](const hca::FaultName& name) {
    const auto opcode = wqe_opcode(name.value);
    return opcode == wqe_opcode::RECEIVE_ERROR || opcode == wqe_opcode::INVALID;
  });
  return names;
}

std::vector<hca::FaultGap> gaps() {
  using enum FaultAction;
  return {{kFailRequest, "status", "LOC_EEC_OP_ERR", kRd},
          {kFailRequest, "status", "LOC_RDD_VIOL_ERR", kRd},
          {kFailRequest, "status", "REM_INV_RD_REQ_ERR", kRd},
          {kFailRequest, "status", "INV_EECN_ERR", kRd},
          {kFailRequest, "status", "INV_EEC_STATE_ERR", kRd},
          {kFailRequest, "status", "REM_ABORT_ERR", "nothing aborts a request"},
          {kFailCommand, "syndrome", "", "the HCR reports a status alone (JingZhao table 3-1-4)"},
          {kInternalError, "syndrome", "", "LOCAL_CATAS_ERROR has no syndrome (JingZhao 3.2.4.1)"}};
}

std::vector<hca::FaultNote> notes() {
  using enum FaultAction;
  return {{kStallCq, "an overrun is a CQ_ERROR with syndrome 1, and a WQ_CATAS_ERROR of the QPs"},
          {kFailRequest, "the syndrome of table 3-3-3; `vendor_err` of the CQE is 156"},
          {kHangCommand,
           "`go` of the HCR stays set. There is one HCR, so no other command can be issued. The "
           "reset register ends the command with BAD_SYS_STATE"},
          {kFailCommand, "with a status of table 3-1-5"},
          {kInternalError,
           "a LOCAL_CATAS_ERROR event; then no command ends and all objects stop. It ends with a "
           "reset of the function, also by the reset register"},
          {kRemove, "the port's link stays as it is"}};
}

}  // namespace

const hca::FaultDialect& fault_dialect() {
  static const hca::FaultDialect dialect{
      .device = "a JingZhao",
      .names = {.requests = requests(),
                .commands = hca::named_values<spec::jingzhao::command_opcode>(),
                .statuses = hca::named_values<spec::jingzhao::hcr_status>(),
                .syndromes = {}},
      .only_named_statuses = true,
      .gaps = gaps(),
      .notes = notes()};
  return dialect;
}

}  // namespace softhca::jingzhao
