// The virtual port's commands (PRM 12.16, 12.17).

#include <algorithm>

#include "connectx/command/commands.h"
#include "connectx/driver_state.h"
#include "connectx/port/network_port.h"
#include "connectx/port/vport.h"
#include "connectx/qp/rdma.h"
#include "spec/infiniband/constants.h"

namespace softhca::connectx {

namespace {

using namespace spec::connectx;

/// Refuses commands for another vport: the function has only its own.
template <class Layout>
CommandResult check_vport(util::View<Layout> in, std::string_view section) {
  if (in.get(Layout::other_vport) == 0 && in.get(Layout::vport_number) == 0) return {};
  return refuse(Status::BAD_PARAM, section, "the function has no other vports");
}

void write(util::MutableView<traffic_counter> out, const TrafficCounter& counter) {
  out.set(traffic_counter::packets, counter.packets);
  out.set(traffic_counter::octets, counter.octets);
}

}  // namespace

CommandResult query_vport_state(DriverState& driver, const Command& command) {
  using In = query_vport_state_in;
  using Out = query_vport_state_out;
  using State = vport_state;
  constexpr std::string_view kSection = "PRM 12.16.1";
  if (command.op_mod != static_cast<std::uint16_t>(vport_state_op_mod::VNIC_VPORT)) {
    return refuse(Status::BAD_OP, kSection, "op_mod is not vnic_vport");
  }
  if (auto result = check_vport(command.input<In>(), kSection); !result) return result;
  const auto state = [](bool up) {
    return static_cast<std::uint8_t>(up ? State::UP : State::DOWN);
  };
  const auto out = command.output<Out>();
  const bool admin_up = driver.vport().admin_up();
  driver.network_port().state().look_at_link();
  out.set(Out::admin_state, state(admin_up));
  out.set(Out::state, state(driver.network_port().state().vport_is_up()));
  return {};
}

CommandResult modify_vport_state(DriverState& driver, const Command& command) {
  using In = modify_vport_state_in;
  using State = vport_state;
  constexpr std::string_view kSection = "PRM 12.16.2";
  if (command.op_mod != static_cast<std::uint16_t>(vport_state_op_mod::VNIC_VPORT)) {
    return refuse(Status::BAD_OP, kSection, "op_mod is not nic_vport");
  }
  const auto in = command.input<In>();
  if (auto result = check_vport(in, kSection); !result) return result;
  const auto wanted = static_cast<State>(in.get(In::admin_state));
  if (wanted != State::UP && wanted != State::DOWN) {
    return refuse(Status::BAD_PARAM, kSection, "admin_state is neither up nor down");
  }
  driver.vport().set_admin_up(wanted == State::UP);
  return {};
}

CommandResult query_nic_vport_context(DriverState& driver, const Command& command) {
  using In = query_nic_vport_context_in;
  using Out = query_nic_vport_context_out;
  constexpr std::string_view kSection = "PRM 12.16.3";
  const auto in = command.input<In>();
  if (auto result = check_vport(in, kSection); !result) return result;
  const auto type = static_cast<allowed_list_type>(in.get(In::allowed_list_type));
  if (type > allowed_list_type::VLAN_LIST) {
    return refuse(Status::BAD_PARAM, kSection, "no such allowed_list_type");
  }
  const auto context = command.output<Out>().sub(Out::nic_vport_context);
  driver.vport().write_context(context, command.out.subspan(Out::kSize), type);
  // The counter saturates, like PortInfo:QKeyViolations (IBTA 14.2.5.6).
  context.set(nic_vport_context::qkey_violation_counter,
              static_cast<std::uint32_t>(
                  std::min<std::uint64_t>(driver.rdma().counters().dropped_for(rdma::Drop::kQkey),
                                          nic_vport_context::qkey_violation_counter.kMax)));
  return {};
}

CommandResult modify_nic_vport_context(DriverState& driver, const Command& command) {
  using In = modify_nic_vport_context_in;
  const auto in = command.input<In>();
  if (auto result = check_vport(in, "PRM 12.16.4"); !result) return result;
  return driver.vport().modify(in.get(In::field_select), in.get(In::nic_vport_context),
                               command.in_tail(In::kSize));
}

CommandResult query_hca_vport_pkey(DriverState&, const Command& command) {
  using In = query_hca_vport_pkey_in;
  using Out = query_hca_vport_pkey_out;
  using Entry = pkey_entry;
  constexpr std::string_view kSection = "mlx5 driver interface: QUERY_HCA_VPORT_PKEY";
  constexpr std::uint32_t kWholeTable = 0xFFFF;
  using spec::infiniband::kDefaultPkey;
  const auto in = command.input<In>();
  if (auto result = check_vport(in, kSection); !result) return result;
  const auto index = in.get(In::pkey_index);
  if (index >= kPkeys && index != kWholeTable) {
    return refuse(Status::BAD_INDEX, kSection, "pkey_index is beyond the table");
  }
  // RoCE has only the default partition, in entry 0. The other entries are empty.
  const auto room = command.out.subspan(Out::pkey_offset);
  if (room.size() < Out::pkey_size) {
    return refuse(Status::BAD_OUTPUT_LEN, kSection, "no room for a pkey");
  }
  if (index == 0 || index == kWholeTable) {
    util::MutableView<Entry>(room).set(Entry::pkey, kDefaultPkey);
  }
  return {};
}

CommandResult query_vport_counter(DriverState& driver, const Command& command) {
  using In = query_vport_counter_in;
  using Out = query_vport_counter_out;
  constexpr std::string_view kSection = "PRM 12.17.1";
  if (command.op_mod != 0) return refuse(Status::BAD_OP, kSection, "op_mod is not vport_counters");
  const auto in = command.input<In>();
  if (auto result = check_vport(in, kSection); !result) return result;
  const auto out = command.output<Out>();
  const auto counters = driver.vport().counters();
  write(out.sub(Out::received_errors), counters.received_errors);
  write(out.sub(Out::transmit_errors), counters.transmit_errors);
  // The vport counts frames that cross the wire and frames that loop back.
  const auto received = [&](Service service, Cast cast) {
    return counters.rx(service, Way::kWire).of(cast) +
           counters.rx(service, Way::kLoopback).of(cast);
  };
  const auto transmitted = [&](Service service, Cast cast) {
    return counters.tx(service, Way::kWire).of(cast) +
           counters.tx(service, Way::kLoopback).of(cast);
  };
  using enum Service;
  using enum Cast;
  write(out.sub(Out::received_ib_unicast), received(kRdma, kUnicast));
  write(out.sub(Out::transmitted_ib_unicast), transmitted(kRdma, kUnicast));
  write(out.sub(Out::received_ib_multicast), received(kRdma, kMulticast));
  write(out.sub(Out::transmitted_ib_multicast), transmitted(kRdma, kMulticast));
  write(out.sub(Out::received_eth_broadcast), received(kEthernet, kBroadcast));
  write(out.sub(Out::transmitted_eth_broadcast), transmitted(kEthernet, kBroadcast));
  write(out.sub(Out::received_eth_unicast), received(kEthernet, kUnicast));
  write(out.sub(Out::transmitted_eth_unicast), transmitted(kEthernet, kUnicast));
  write(out.sub(Out::received_eth_multicast), received(kEthernet, kMulticast));
  write(out.sub(Out::transmitted_eth_multicast), transmitted(kEthernet, kMulticast));
  write(out.sub(Out::local_loopback), counters.rx(kEthernet, Way::kLoopback).total() +
                                          counters.rx(kRdma, Way::kLoopback).total());
  if (in.get(In::clear) != 0) driver.vport().clear_counters();
  return {};
}

}  // namespace softhca::connectx
