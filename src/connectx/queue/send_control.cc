#include "connectx/queue/send_control.h"

#include "spec/connectx/wqe.h"
#include "util/field.h"

namespace softhca::connectx {

SendWqeControl SendWqeControl::parse(std::span<const std::byte> wqe) {
  using Ctrl = spec::connectx::wqe_ctrl_segment;
  const util::View<Ctrl> ctrl(wqe);
  const auto ce = static_cast<spec::connectx::wqe_completion>(ctrl.get(Ctrl::ce));
  SendWqeControl control;
  control.index = static_cast<std::uint16_t>(ctrl.get(Ctrl::wqe_index));
  control.opcode = static_cast<spec::connectx::wqe_opcode>(ctrl.get(Ctrl::opcode));
  control.qpn = Qpn(ctrl.get(Ctrl::sq_number));
  control.units = ctrl.get(Ctrl::ds);
  control.event = ce == spec::connectx::wqe_completion::CQE_AND_EQE;
  control.signaled = control.event || ce == spec::connectx::wqe_completion::CQE;
  return control;
}

}  // namespace softhca::connectx
