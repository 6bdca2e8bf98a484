// CREATE_DCT, DESTROY_DCT, DRAIN_DCT, QUERY_DCT, ARM_DCT_FOR_KEY_VIOLATION (mlx5 driver interface
// 7.10).
//
// Before drivers destroy a DCT, they drain it and wait for the event DCT_DRAINED.
#include <algorithm>
#include <utility>

#include "connectx/base/resources.h"
#include "connectx/command/commands.h"
#include "connectx/driver_state.h"
#include "connectx/event/completion_queue.h"
#include "connectx/function/capabilities.h"
#include "connectx/qp/rdma.h"
#include "spec/connectx/dct.h"
#include "spec/connectx/opcodes.h"

namespace softhca::connectx {

namespace {

using spec::connectx::arm_dct_for_key_violation_in;
using spec::connectx::create_dct_in;
using spec::connectx::create_dct_out;
using spec::connectx::dctc;
using spec::connectx::destroy_dct_in;
using spec::connectx::drain_dct_in;
using spec::connectx::hca_cap;
using spec::connectx::qp_mtu;
using spec::connectx::query_dct_in;
using spec::connectx::query_dct_out;

constexpr std::string_view kDctSection = "mlx5 driver interface 7.10";

CommandResult unknown_dct() { return refuse(Status::BAD_RESOURCE, kDctSection, "unknown DCT"); }

CommandResult check_values(util::View<dctc> context) {
  const auto mtu = static_cast<qp_mtu>(context.get(dctc::mtu));
  if (mtu < qp_mtu::BYTES_256 || mtu > qp_mtu::BYTES_4K) {
    return refuse(Status::BAD_PARAM, kDctSection, "mtu is not one of 256 to 4096 bytes");
  }
  if (to_string(static_cast<spec::connectx::qp_cs_res>(context.get(dctc::cs_res))).empty()) {
    return refuse(Status::BAD_PARAM, kDctSection, "unknown cs_res");
  }
  if (context.get(dctc::port) > 1) {
    return refuse(Status::BAD_PARAM, kDctSection, "the device has one port");
  }
  if (context.get(dctc::pkey_index) >= kPkeys) {
    return refuse(Status::BAD_INDEX, kDctSection, "pkey_index is beyond the table");
  }
  return {};
}

CommandResult use_references(DriverState& driver, util::View<dctc> context, Dct::Uses& uses) {
  const Pd pd(context.get(dctc::pd));
  if (!driver.resources().pds().contains(pd)) {
    return refuse(Status::BAD_RESOURCE, kDctSection, "unknown PD");
  }
  auto* cq = driver.completion_queues().find(Cqn(context.get(dctc::cqn)));
  if (cq == nullptr) return refuse(Status::BAD_RESOURCE, kDctSection, "unknown CQ");
  auto* srq = driver.rdma().shared_queues().find(Srqn(context.get(dctc::srqn_xrqn)));
  if (srq == nullptr) return refuse(Status::BAD_RESOURCE, kDctSection, "unknown SRQ");
  if (!srq->serves_qps()) {
    return refuse(Status::BAD_RESOURCE, kDctSection, "an XRC SRQ serves XRC QPs only");
  }
  uses.pd = driver.resources().pds().use(pd);
  uses.cq = cq->use();
  uses.srq = srq->use();
  return {};
}

}  // namespace

CommandResult create_dct(DriverState& driver, const Command& command) {
  const auto context = command.input<create_dct_in>().get(create_dct_in::dct_context_entry);
  if (driver.capabilities().general().get(hca_cap::dct) == 0) {
    return refuse(Status::BAD_OP, kDctSection, "dct is 0: the card has no DCTs");
  }
  if (auto checked = check_values(context); !checked) return checked;
  Dct::Uses uses;
  if (auto used = use_references(driver, context, uses); !used) return used;
  const auto* dct = driver.rdma().dcts().add(context, std::move(uses));
  if (dct == nullptr) return refuse(Status::EXCEED_LIM, kDctSection, "all DCTs are in use");
  command.output<create_dct_out>().set(create_dct_out::dctn, dct->dctn().value());
  return {};
}

CommandResult drain_dct(DriverState& driver, const Command& command) {
  auto* dct = driver.rdma().dcts().find(Qpn(command.input<drain_dct_in>().get(drain_dct_in::dctn)));
  if (dct == nullptr) return unknown_dct();
  command.unfinished = !driver.rdma().dcts().drain(*dct, command.work);
  return {};
}

CommandResult destroy_dct(DriverState& driver, const Command& command) {
  auto* dct =
      driver.rdma().dcts().find(Qpn(command.input<destroy_dct_in>().get(destroy_dct_in::dctn)));
  if (dct == nullptr) return unknown_dct();
  if (dct->state != Dct::State::DRAINED) {
    return refuse(Status::BAD_RES_STATE, kDctSection, "the DCT is not drained");
  }
  driver.rdma().dcts().remove(*dct);
  return {};
}

CommandResult query_dct(DriverState& driver, const Command& command) {
  const auto* dct =
      driver.rdma().dcts().find(Qpn(command.input<query_dct_in>().get(query_dct_in::dctn)));
  if (dct == nullptr) return unknown_dct();
  const auto out = command.output<query_dct_out>().sub(query_dct_out::dct_context_entry);
  std::ranges::copy(dct->context().bytes(), out.bytes().begin());
  out.set(dctc::state, static_cast<std::uint32_t>(dct->state));
  out.set(dctc::dc_access_key_violation_count, driver.rdma().dcts().key_violations(*dct));
  return {};
}

CommandResult arm_dct_for_key_violation(DriverState& driver, const Command& command) {
  using In = arm_dct_for_key_violation_in;
  auto* dct = driver.rdma().dcts().find(Qpn(command.input<In>().get(In::dct_number)));
  if (dct == nullptr) return unknown_dct();
  dct->armed = true;
  return {};
}

}  // namespace softhca::connectx
