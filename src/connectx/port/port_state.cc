#include "connectx/port/port_state.h"

#include <algorithm>

namespace softhca::connectx {

PortState::PortState(const fabric::Port& wire, TrafficCounters& counters)
    : wire_(wire), counters_(counters), link_(wire.link_up()) {
  update_limit();
}

void PortState::set_admin_status(AdminStatus status) {
  admin_ = status;
  failed_ = false;
  look_at_link();
}

PortState::OperStatus PortState::oper_status() const {
  if (admin_ == AdminStatus::DOWN) return OperStatus::DOWN;
  if (failed_) return OperStatus::DOWN_BY_FAILURE;
  return wire_.link_up() ? OperStatus::UP : OperStatus::DOWN;
}

void PortState::look_at_link() {
  const bool link = wire_.link_up();
  if (link_ && !link) {
    ++counters_.link_downs;
    // "if the port goes up and then down, the operational status should go to 'down by port
    // failure' and can only go back up upon explicit command".
    failed_ = failed_ || admin_ == AdminStatus::UP_ONCE;
  }
  link_ = link;
  update_limit();
}

void PortState::set_mtu(std::uint16_t mtu) {
  mtu_ = mtu;
  update_limit();
}

void PortState::set_vport_up(bool up) {
  vport_up_ = up;
  update_limit();
}

void PortState::set_vport_mtu(std::uint16_t mtu) {
  vport_mtu_ = mtu;
  update_limit();
}

void PortState::update_limit() {
  passes_ = vport_up_ && oper_status() == OperStatus::UP;
  passing_sizes_ = 0;
  if (!passes_) return;
  const std::size_t mtu = vport_mtu_ == 0 ? mtu_ : std::min(mtu_, vport_mtu_);
  if (mtu >= kHeader + kFcs) passing_sizes_ = mtu - kFcs - kHeader + 1;
}

}  // namespace softhca::connectx
