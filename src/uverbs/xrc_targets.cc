#include "uverbs/xrc_targets.h"

#include <utility>

#include "spec/connectx/qp.h"
#include "spec/connectx/resources.h"
#include "uverbs/device_command.h"

namespace softhca::uverbs {

using spec::command_opcode;

void destroy_qp(Device& device, std::uint32_t qpn) {
  Command<spec::qp_2rst_in> reset(command_opcode::QP_2RST);
  reset.set(spec::qp_2rst_in::qpn, qpn);
  report(device.commands().run(reset));
  Command<spec::destroy_qp_in> in(command_opcode::DESTROY_QP);
  in.set(spec::destroy_qp_in::qpn, qpn);
  report(device.commands().run(in));
}

SharedXrcDomain::~SharedXrcDomain() {
  Command<spec::dealloc_xrcd_in> in(command_opcode::DEALLOC_XRCD);
  in.set(spec::dealloc_xrcd_in::xrcd, number_);
  report(device_.commands().run(in));
}

std::shared_ptr<XrcTarget> SharedXrcDomain::find_target(std::uint32_t qpn) const {
  const auto at = targets_.find(qpn);
  return at == targets_.end() ? nullptr : at->second.lock();
}

std::shared_ptr<XrcTarget> XrcTarget::share(Device& device, std::uint32_t qpn,
                                            std::shared_ptr<SharedXrcDomain> domain) {
  auto& targets = domain->targets_;
  std::shared_ptr<XrcTarget> target(new XrcTarget(device, qpn, std::move(domain)));
  targets[qpn] = target;
  device.add_queue_target(qpn, *target);
  return target;
}

XrcTarget::~XrcTarget() {
  domain_->targets_.erase(qpn_);
  device_.remove_queue_target(qpn_);
  destroy_qp(device_, qpn_);
}

void XrcTarget::handle_event(spec::event_type type) {
  for (auto* opener : openers_) opener->handle_event(type);
}

}  // namespace softhca::uverbs
