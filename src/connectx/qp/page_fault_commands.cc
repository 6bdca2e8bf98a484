// PAGE_FAULT_RESUME (mlx5 driver interface 7.12).

#include "connectx/command/commands.h"
#include "connectx/driver_state.h"
#include "connectx/qp/rdma.h"
#include "spec/connectx/hca.h"

namespace softhca::connectx {

namespace {

using spec::connectx::page_fault_type;

constexpr std::string_view kPageFaultSection = "mlx5 driver interface: ODP";

bool is_known(page_fault_type type) { return !to_string(type).empty(); }

rdma::FaultSide side_of(page_fault_type type) {
  const bool requester =
      type == page_fault_type::REQ_SEND_OR_WRITE || type == page_fault_type::REQ_READ_OR_ATOMIC;
  return requester ? rdma::FaultSide::kRequester : rdma::FaultSide::kResponder;
}

}  // namespace

CommandResult page_fault_resume(DriverState& driver, const Command& command) {
  using In = spec::connectx::page_fault_resume_in;
  const auto in = command.input<In>();
  const auto type = static_cast<page_fault_type>(in.get(In::page_fault_type));
  if (!is_known(type)) {
    return refuse(Status::BAD_PARAM, kPageFaultSection, "no such page_fault_type");
  }
  auto& queues = driver.rdma();
  const Qpn token(in.get(In::token));
  auto* qp = queues.find_qp(token);
  auto* dct = queues.dcts().find(token);
  if (qp == nullptr && dct == nullptr) {
    return refuse(Status::BAD_RESOURCE, kPageFaultSection, "no QP has the token's number");
  }
  const auto number = in.get(In::wq_number);
  const bool of_srq = type == page_fault_type::RMP;
  if (of_srq ? queues.shared_queues().find(Srqn(number)) == nullptr : number != token.value()) {
    return refuse(Status::BAD_RESOURCE, kPageFaultSection, "the fault was not of this work queue");
  }
  const bool failed = in.get(In::error) != 0;
  // If the QP has changed its state since the event, it no longer waits. That is not an error.
  if (qp != nullptr) {
    (void)queues.resume(*qp, side_of(type), failed);
  } else if (side_of(type) == rdma::FaultSide::kResponder) {
    (void)queues.dcts().resume(*dct, failed);
  }
  return {};
}

}  // namespace softhca::connectx
