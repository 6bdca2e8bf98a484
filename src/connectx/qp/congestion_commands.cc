// QUERY_CONG_STATUS to QUERY_CONG_STATISTICS: the port's congestion control (mlx5 driver interface
// 7.13; for the meaning of the parameters, see rdma/congestion.h).

#include <array>

#include "connectx/command/commands.h"
#include "connectx/driver_state.h"
#include "connectx/qp/rdma.h"
#include "rdma/congestion.h"
#include "spec/connectx/opcodes.h"
#include "spec/connectx/vport.h"
#include "util/bits.h"

namespace softhca::connectx {

namespace {

using namespace spec::connectx;
using rdma::CongestionControl;

constexpr std::string_view kCongestionSection = "mlx5 driver interface: congestion";

CongestionControl& congestion(DriverState& driver) {
  return driver.rdma().transport().congestion();
}

/// A parameter: its bit in field_select, its largest value, its field and its stored value.
template <class Layout, class Parameters>
struct Row {
  unsigned bit;
  std::uint32_t max;
  std::uint32_t (*read)(const Parameters& parameters);
  void (*keep)(Parameters& parameters, std::uint32_t value);
  std::uint32_t (*get)(util::View<Layout> view);
  void (*put)(util::MutableView<Layout> view, std::uint32_t value);
};

template <class Layout, class Parameters, auto Field, auto Member>
constexpr Row<Layout, Parameters> row(unsigned bit, std::uint32_t max = UINT32_MAX) {
  return {bit,
          max,
          [](const Parameters& p) { return static_cast<std::uint32_t>(p.*Member); },
          [](Parameters& p, std::uint32_t value) {
            p.*Member = static_cast<std::remove_reference_t<decltype(p.*Member)>>(value);
          },
          [](util::View<Layout> view) { return static_cast<std::uint32_t>(view.get(Field)); },
          [](util::MutableView<Layout> view, std::uint32_t value) { view.set(Field, value); }};
}

using Rp = cong_control_r_roce_ecn_rp;
using RpParameters = rdma::ReactionParameters;
template <auto Field, auto Member>
constexpr auto rp(unsigned bit, std::uint32_t max = UINT32_MAX) {
  return row<Rp, RpParameters, Field, Member>(bit, max);
}
constexpr std::uint32_t kRateMax = CongestionControl::kLineRate;
constexpr auto kReaction = std::to_array<Row<Rp, RpParameters>>({
    rp<Rp::clamp_tgt_rate, &RpParameters::clamp_target_rate>(1),
    rp<Rp::clamp_tgt_rate_after_time_inc, &RpParameters::clamp_target_rate_after_time>(2),
    rp<Rp::rpg_time_reset, &RpParameters::time_reset>(3),
    rp<Rp::rpg_byte_reset, &RpParameters::byte_reset>(4),
    rp<Rp::rpg_threshold, &RpParameters::threshold>(5, 31),
    rp<Rp::rpg_max_rate, &RpParameters::max_rate>(6, kRateMax),
    rp<Rp::rpg_ai_rate, &RpParameters::ai_rate>(7, kRateMax),
    rp<Rp::rpg_hai_rate, &RpParameters::hai_rate>(8, kRateMax),
    rp<Rp::rpg_min_dec_fac, &RpParameters::min_dec_fac>(9, 100),
    rp<Rp::rpg_min_rate, &RpParameters::min_rate>(10, kRateMax),
    rp<Rp::rate_to_set_on_first_cnp, &RpParameters::rate_to_set_on_first_cnp>(11, kRateMax),
    rp<Rp::dce_tcp_g, &RpParameters::dce_tcp_g>(12, 1023),
    rp<Rp::dce_tcp_rtt, &RpParameters::dce_tcp_rtt>(13, 131071),
    rp<Rp::rate_reduce_monitor_period, &RpParameters::rate_reduce_monitor_period>(14),
    rp<Rp::initial_alpha_value, &RpParameters::initial_alpha_value>(15, 1023),
    rp<Rp::rpg_gd, &RpParameters::gd>(16, 15),
});

using Np = cong_control_r_roce_ecn_np;
using NpParameters = rdma::NotificationParameters;
template <auto Field, auto Member>
constexpr auto np(unsigned bit, std::uint32_t max = UINT32_MAX) {
  return row<Np, NpParameters, Field, Member>(bit, max);
}
/// The two priority fields share one bit.
constexpr auto kNotification = std::to_array<Row<Np, NpParameters>>({
    np<Np::min_time_between_cnps, &NpParameters::min_time_between_cnps>(2, 131071),
    np<Np::cnp_dscp, &NpParameters::cnp_dscp>(3),
    np<Np::cnp_prio_mode, &NpParameters::cnp_prio_mode>(4),
    np<Np::cnp_802p_prio, &NpParameters::cnp_802p_prio>(4),
});

template <class Layout, class Parameters>
void write(std::span<const Row<Layout, Parameters>> rows, const Parameters& parameters,
           std::span<std::byte> out) {
  for (const auto& r : rows) r.put(util::MutableView<Layout>(out), r.read(parameters));
}

/// Sets all parameters that `select` names. If one is refused, sets none.
template <class Layout, class Parameters>
CommandResult take(std::span<const Row<Layout, Parameters>> rows, std::uint32_t select,
                   std::span<const std::byte> in, Parameters& parameters) {
  auto wanted = parameters;
  auto unknown = select;
  for (const auto& r : rows) {
    unknown &= ~(1u << r.bit);  // no format: a set of bits
    if (!util::has_bit(select, r.bit)) continue;
    const auto value = r.get(util::View<Layout>(in));
    if (value > r.max) {
      return refuse(Status::BAD_PARAM, kCongestionSection, "a parameter above its maximum");
    }
    r.keep(wanted, value);
  }
  if (unknown != 0) {
    return refuse(Status::BAD_PARAM, kCongestionSection, "field_select has unknown bits");
  }
  parameters = wanted;
  return {};
}

CommandResult unknown_protocol() {
  return refuse(Status::BAD_PARAM, kCongestionSection,
                "cong_protocol is neither r_roce_ecn_rp nor _np");
}

/// The switch of congestion control for a priority. Null if there is no such protocol or priority.
bool* status_of(CongestionControl& control, std::uint32_t protocol, std::uint32_t priority) {
  if (priority >= CongestionControl::kPriorities) return nullptr;
  switch (static_cast<cong_protocol>(protocol)) {
    case cong_protocol::R_ROCE_ECN_RP:
      return &control.reacts[priority];
    case cong_protocol::R_ROCE_ECN_NP:
      return &control.notifies[priority];
    default:
      return nullptr;
  }
}

CommandResult no_status() {
  return refuse(Status::BAD_PARAM, kCongestionSection, "no such cong_protocol or priority");
}

}  // namespace

CommandResult query_cong_status(DriverState& driver, const Command& command) {
  using In = query_cong_status_in;
  using Out = query_cong_status_out;
  const auto in = command.input<In>();
  const auto* enabled =
      status_of(congestion(driver), in.get(In::cong_protocol), in.get(In::priority));
  if (enabled == nullptr) return no_status();
  command.output<Out>().set(Out::enable, *enabled);
  return {};
}

CommandResult modify_cong_status(DriverState& driver, const Command& command) {
  using In = modify_cong_status_in;
  const auto in = command.input<In>();
  auto* enabled = status_of(congestion(driver), in.get(In::cong_protocol), in.get(In::priority));
  if (enabled == nullptr) return no_status();
  if (in.get(In::tag_enable) != 0) {
    return refuse(Status::BAD_PARAM, kCongestionSection,
                  "packets have the ECN bits of their path's tclass");
  }
  *enabled = in.get(In::enable) != 0;
  return {};
}

CommandResult query_cong_params(DriverState& driver, const Command& command) {
  using In = query_cong_params_in;
  using Out = query_cong_params_out;
  const auto& control = congestion(driver);
  const auto out = command.output<Out>().sub(Out::congestion_parameters);
  switch (static_cast<cong_protocol>(command.input<In>().get(In::cong_protocol))) {
    case cong_protocol::R_ROCE_ECN_RP:
      write<Rp, RpParameters>(kReaction, control.reaction, out);
      return {};
    case cong_protocol::R_ROCE_ECN_NP:
      write<Np, NpParameters>(kNotification, control.notification, out);
      return {};
    default:
      return unknown_protocol();
  }
}

CommandResult modify_cong_params(DriverState& driver, const Command& command) {
  using In = modify_cong_params_in;
  auto& control = congestion(driver);
  const auto in = command.input<In>();
  const auto select = in.get(In::field_select);
  const auto parameters = in.get(In::congestion_parameters);
  switch (static_cast<cong_protocol>(in.get(In::cong_protocol))) {
    case cong_protocol::R_ROCE_ECN_RP:
      return take<Rp, RpParameters>(kReaction, select, parameters, control.reaction);
    case cong_protocol::R_ROCE_ECN_NP:
      return take<Np, NpParameters>(kNotification, select, parameters, control.notification);
    default:
      return unknown_protocol();
  }
}

CommandResult query_cong_statistics(DriverState& driver, const Command& command) {
  using In = query_cong_statistics_in;
  using Out = query_cong_statistics_out;
  auto& control = congestion(driver);
  auto& counters = control.counters;
  const auto out = command.output<Out>();
  const auto flows = static_cast<std::uint32_t>(control.flows());
  out.set(Out::rp_cur_flows, flows);
  out.set(Out::sum_flows, flows);
  out.set(Out::rp_cnp_ignored, counters.cnp_ignored);
  out.set(Out::rp_cnp_handled, counters.cnp_handled);
  out.set(Out::np_ecn_marked_roce_packets, counters.ecn_marked_packets);
  out.set(Out::np_cnp_sent, counters.cnp_sent);
  if (command.input<In>().get(In::clear) != 0) counters = {};
  return {};
}

}  // namespace softhca::connectx
