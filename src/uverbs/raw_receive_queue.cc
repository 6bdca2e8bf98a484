#include "uverbs/raw_receive_queue.h"

#include "spec/connectx/raw_queues.h"
#include "uverbs/command_status.h"
#include "uverbs/device_command.h"
#include "uverbs/program_pages.h"

namespace softhca::uverbs {

using Op = spec::command_opcode;

bool RawReceiveQueue::make(const Options& options) {
  using In = spec::create_rq_in;
  using Rq = spec::rq_context;
  const auto size = std::uint64_t{options.entries} << options.log_stride;
  Command<In> in(Op::CREATE_RQ, pages_of(options.queue, size) * sizeof(std::uint64_t));
  in.set(In::uid, options.uid);
  const auto context = in.sub(In::rq_context);
  context.set(Rq::vlan_strip_disable, !options.strips_vlan);
  context.set(Rq::flush_in_error_en, 1);
  context.set(Rq::user_index, options.user_index);
  context.set(Rq::cqn, options.cqn);
  const auto wq = context.sub(Rq::wq);
  wq.set(spec::wq::wq_type, static_cast<std::uint32_t>(spec::wq_type::CYCLIC));
  wq.set(spec::wq::wq_signature, options.is_signed);
  wq.set(spec::wq::pd, options.pdn);
  wq.set(spec::wq::dbr_addr, Device::bus_address(options.record));
  wq.set(spec::wq::log_wq_stride, options.log_stride);
  wq.set(spec::wq::log_wq_sz, log2_of(options.entries));
  wq.set(spec::wq::page_offset, page_offset_of(options.queue));
  store_pages(in.all().subspan(In::kSize), options.queue);
  const auto out = device_.commands().execute<spec::create_rq_out>(in);
  if (!out) return false;
  number_ = out->get(spec::create_rq_out::rqn);
  return true;
}

Errno RawReceiveQueue::end() {
  if (number_ == 0) return 0;
  Command<spec::destroy_rq_in> in(Op::DESTROY_RQ);
  in.set(spec::destroy_rq_in::rqn, number_);
  const auto wrong = execute_own(device_, in.all());
  if (wrong != 0) return wrong;
  number_ = 0;
  return 0;
}

spec::rq_state RawReceiveQueue::state() const {
  Command<spec::query_rq_in> in(Op::QUERY_RQ);
  in.set(spec::query_rq_in::rqn, number_);
  const auto out = device_.commands().execute<spec::query_rq_out>(in);
  if (!out) return spec::rq_state::ERR;
  const auto now = out->get(spec::query_rq_out::rq_context).get(spec::rq_context::state);
  return static_cast<spec::rq_state>(now);
}

bool RawReceiveQueue::change(spec::rq_state to) {
  if (number_ == 0) return true;
  const auto from = state();
  return to == from || device_.commands().run(modification(from, to)).has_value();
}

bool RawReceiveQueue::change(spec::rq_state to, bool strips_vlan) {
  using In = spec::modify_rq_in;
  auto in = modification(state(), to);
  in.set(In::modify_bitmask, 1u << static_cast<unsigned>(spec::modify_rq_bit::VLAN_STRIP_DISABLE));
  in.sub(In::rq_context).set(spec::rq_context::vlan_strip_disable, !strips_vlan);
  return device_.commands().run(in).has_value();
}

driver::connectx::Request<spec::modify_rq_in> RawReceiveQueue::modification(
    spec::rq_state from, spec::rq_state to) const {
  using In = spec::modify_rq_in;
  Command<In> in(Op::MODIFY_RQ);
  in.set(In::rqn, number_);
  in.set(In::rq_state, static_cast<std::uint32_t>(from));
  in.sub(In::rq_context).set(spec::rq_context::state, static_cast<std::uint32_t>(to));
  return in;
}

}  // namespace softhca::uverbs
