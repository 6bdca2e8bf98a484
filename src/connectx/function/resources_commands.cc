// PDs, UARs, transport domains, XRC domains and Q counters (PRM 12.3.13 to 12.3.19; the last two:
// mlx5 driver interface 7.10).

#include <limits>

#include "connectx/base/resources.h"
#include "connectx/command/commands.h"
#include "connectx/driver_state.h"
#include "connectx/queue/shared_doorbells.h"
#include "spec/connectx/resources.h"

namespace softhca::connectx {

namespace {

using namespace spec::connectx;

CommandResult none_left(std::string_view section) {
  return refuse(Status::NO_RESOURCES, section, "all numbers are in use");
}

CommandResult unknown(std::string_view section) {
  return refuse(Status::BAD_RESOURCE, section, "this number is not in use");
}

template <class Out, class Number, class Field>
CommandResult allocate(hca::NumberPool<Number>& pool, const Command& command, Field field,
                       std::string_view section) {
  const auto number = pool.allocate();
  if (!number) return none_left(section);
  command.output<Out>().set(field, number->value());
  return {};
}

template <class In, class Number, class Pool, class Field>
CommandResult release(Pool& pool, const Command& command, Field field, std::string_view section) {
  const Number number(command.input<In>().get(field));
  if (!pool.contains(number)) return unknown(section);
  if (pool.is_used(number)) {
    return refuse(Status::BAD_RES_STATE, section, "objects use this number");
  }
  pool.free(number);
  return {};
}

/// The value of a Q counter, which has 32 bits and wraps around.
std::uint32_t low(std::uint64_t value) { return static_cast<std::uint32_t>(value); }

void write_responder_counters(const QCounters& counters,
                              util::MutableView<query_q_counter_out> out) {
  using Out = query_q_counter_out;
  out.set(Out::rx_write_requests, low(counters.rx_write_requests));
  out.set(Out::rx_read_requests, low(counters.rx_read_requests));
  out.set(Out::rx_atomic_requests, low(counters.rx_atomic_requests));
  out.set(Out::rx_dct_connect, low(counters.rx_dct_connect));
  out.set(Out::out_of_buffer, low(counters.out_of_buffer));
  out.set(Out::out_of_sequence, low(counters.out_of_sequence));
  out.set(Out::duplicate_request, low(counters.duplicate_request));
  out.set(Out::resp_local_length_error, low(counters.resp_local_length_error));
  out.set(Out::resp_cqe_error, low(counters.resp_cqe_error));
  out.set(Out::resp_cqe_flush_error, low(counters.resp_cqe_flush_error));
  out.set(Out::resp_remote_access_errors, low(counters.resp_remote_access_errors));
  out.set(Out::resp_remote_invalid_request, low(counters.resp_remote_invalid_request));
}

void write_requester_counters(const QCounters& counters,
                              util::MutableView<query_q_counter_out> out) {
  using Out = query_q_counter_out;
  // Only RNR NAKs that caused a retry count. Exceeding the retry limit has another counter.
  out.set(Out::rnr_nak_retry_err, low(counters.rnr_naks_received - counters.rnr_retries_exceeded));
  out.set(Out::req_rnr_retries_exceeded, low(counters.rnr_retries_exceeded));
  out.set(Out::req_transport_retries_exceeded, low(counters.transport_retries_exceeded));
  out.set(Out::packet_seq_err, low(counters.packet_seq_err));
  out.set(Out::implied_nak_seq_err, low(counters.implied_nak_seq_err));
  out.set(Out::local_ack_timeout_err, low(counters.local_ack_timeout_err));
  out.set(Out::req_cqe_error, low(counters.req_cqe_error));
  out.set(Out::req_cqe_flush_error, low(counters.req_cqe_flush_error));
  out.set(Out::req_remote_invalid_request, low(counters.req_remote_invalid_request));
  out.set(Out::req_remote_access_errors, low(counters.req_remote_access_errors));
  out.set(Out::req_remote_operation_errors, low(counters.req_remote_operation_errors));
}

}  // namespace

CommandResult alloc_pd(DriverState& driver, const Command& command) {
  using Out = alloc_pd_out;
  return allocate<Out>(driver.resources().pds(), command, Out::pd, "PRM 12.3.13");
}

CommandResult dealloc_pd(DriverState& driver, const Command& command) {
  using In = dealloc_pd_in;
  return release<In, Pd>(driver.resources().pds(), command, In::pd, "PRM 12.3.14");
}

CommandResult alloc_uar(DriverState& driver, const Command& command) {
  using Out = alloc_uar_out;
  auto& resources = driver.resources();
  // The kernel gets no shared UARs: EQs have no doorbell record, so their doorbells must be
  // messages.
  const bool for_process = resources.user_contexts().contains(Uid(command.uid));
  const auto page = resources.uars().allocate(for_process);
  if (!page) return none_left("PRM 12.3.15");
  if (driver.shared_doorbells() != nullptr) driver.shared_doorbells()->clear(*page);
  command.output<Out>().set(Out::uar, page->value());
  return {};
}

CommandResult dealloc_uar(DriverState& driver, const Command& command) {
  using In = dealloc_uar_in;
  return release<In, UarPage>(driver.resources().uars(), command, In::uar, "PRM 12.3.16");
}

CommandResult alloc_transport_domain(DriverState& driver, const Command& command) {
  using Out = alloc_transport_domain_out;
  return allocate<Out>(driver.resources().transport_domains(), command, Out::transport_domain,
                       "PRM 12.3.18");
}

CommandResult dealloc_transport_domain(DriverState& driver, const Command& command) {
  using In = dealloc_transport_domain_in;
  return release<In, TransportDomain>(driver.resources().transport_domains(), command,
                                      In::transport_domain, "PRM 12.3.19");
}

CommandResult alloc_xrcd(DriverState& driver, const Command& command) {
  using Out = alloc_xrcd_out;
  return allocate<Out>(driver.resources().xrcds(), command, Out::xrcd,
                       "mlx5 driver interface: ALLOC_XRCD");
}

CommandResult dealloc_xrcd(DriverState& driver, const Command& command) {
  using In = dealloc_xrcd_in;
  return release<In, Xrcd>(driver.resources().xrcds(), command, In::xrcd,
                           "mlx5 driver interface: DEALLOC_XRCD");
}

CommandResult alloc_q_counter(DriverState& driver, const Command& command) {
  using Out = alloc_q_counter_out;
  const auto id = driver.resources().allocate_q_counter();
  if (!id) return none_left("mlx5 driver interface: ALLOC_Q_COUNTER");
  command.output<Out>().set(Out::counter_set_id, id->value());
  return {};
}

CommandResult dealloc_q_counter(DriverState& driver, const Command& command) {
  using In = dealloc_q_counter_in;
  const CounterSetId id(command.input<In>().get(In::counter_set_id));
  if (driver.resources().free_q_counter(id)) return {};
  return unknown("mlx5 driver interface: DEALLOC_Q_COUNTER");
}

CommandResult query_q_counter(DriverState& driver, const Command& command) {
  using In = query_q_counter_in;
  using Out = query_q_counter_out;
  constexpr std::string_view kSection = "mlx5 driver interface: QUERY_Q_COUNTER";
  const auto in = command.input<In>();
  if (in.get(In::other_vport) != 0 || in.get(In::vport_number) != 0 || in.get(In::aggregate) != 0) {
    return refuse(Status::BAD_PARAM, kSection,
                  "counters of another vport, or the sum of all sets, are not capabilities");
  }
  auto* counters = driver.resources().q_counter(CounterSetId(in.get(In::counter_set_id)));
  if (counters == nullptr) return unknown(kSection);
  const auto out = command.output<Out>();
  write_responder_counters(*counters, out);
  write_requester_counters(*counters, out);
  if (in.get(In::clear) != 0) *counters = {};
  return {};
}

}  // namespace softhca::connectx
