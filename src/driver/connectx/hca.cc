#include "driver/connectx/hca.h"

#include <algorithm>

#include "driver/connectx/completion_queue.h"
#include "spec/connectx/vport.h"

namespace softhca::driver::connectx {

using spec::command_opcode;

util::Result<bool> Hca::link_is_up() {
  const auto out = commands_->execute<spec::query_vport_state_out>(
      Request<spec::query_vport_state_in>(command_opcode::QUERY_VPORT_STATE));
  if (!out) return tl::unexpected(out.error());
  const auto state = static_cast<spec::vport_state>(out->get(spec::query_vport_state_out::state));
  return state == spec::vport_state::UP;
}

util::Result<std::uint32_t> Hca::qkey_violations() {
  const auto out = commands_->execute<spec::query_nic_vport_context_out>(
      Request<spec::query_nic_vport_context_in>(command_opcode::QUERY_NIC_VPORT_CONTEXT));
  if (!out) return tl::unexpected(out.error());
  return out->get(spec::query_nic_vport_context_out::nic_vport_context)
      .get(spec::nic_vport_context::qkey_violation_counter);
}

util::Result<void> Hca::set_roce_address(std::uint8_t index, const RoceAddress& address) {
  using spec::roce_address;
  Request<spec::set_roce_address_in> in(command_opcode::SET_ROCE_ADDRESS);
  in.set(spec::set_roce_address_in::roce_address_index, index);
  in.set(spec::set_roce_address_in::vhca_port_num, 1);
  const auto entry = in.sub(spec::set_roce_address_in::roce_address);
  std::ranges::copy(address.gid.bytes, entry.sub(roce_address::source_l3_address).begin());
  std::ranges::copy(address.mac.bytes, entry.sub(roce_address::source_mac).begin());
  if (address.vlan) {
    entry.set(roce_address::vlan_valid, 1);
    entry.set(roce_address::vlan_id, *address.vlan);
  }
  const auto type = address.gid.is_ipv4() ? spec::roce_l3_type::IPV4 : spec::roce_l3_type::IPV6;
  entry.set(roce_address::roce_l3_type, static_cast<std::uint32_t>(type));
  entry.set(roce_address::roce_version,
            static_cast<std::uint32_t>(address.roce_v2 ? spec::roce_version::V2
                                                       : spec::roce_version::V1));
  return commands_->run(in);
}

util::Result<void> Hca::clear_roce_address(std::uint8_t index) {
  Request<spec::set_roce_address_in> in(command_opcode::SET_ROCE_ADDRESS);
  in.set(spec::set_roce_address_in::roce_address_index, index);
  in.set(spec::set_roce_address_in::vhca_port_num, 1);
  return commands_->run(in);
}

util::Result<std::optional<Event>> Hca::poll_event() {
  while (auto event = events_->poll()) {
    if (event->type != spec::event_type::PAGE_REQUEST) return event;
    using spec::event_data_page_request;
    const auto count = event->as<event_data_page_request>().get(event_data_page_request::num_pages);
    const auto served = pages_->handle_request(static_cast<std::int32_t>(count));
    if (!served) return tl::unexpected(served.error());
  }
  return std::optional<Event>();
}

CompletionQueue* Hca::poll_completion_event(unsigned vector) {
  using spec::event_data_completion;
  while (const auto event = completion_events(vector).poll()) {
    if (event->type != spec::event_type::COMPLETION) continue;
    const auto cqn = event->as<event_data_completion>().get(event_data_completion::cqn);
    const auto found = cqs_.find(cqn);
    if (found == cqs_.end()) continue;  // destroyed meanwhile
    found->second->handle_event();
    return found->second;
  }
  return nullptr;
}

}  // namespace softhca::driver::connectx
