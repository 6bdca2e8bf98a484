#include "uverbs/raw_packet_queues.h"

#include "spec/connectx/raw_queues.h"
#include "uverbs/device_command.h"
#include "uverbs/program_pages.h"
#include "uverbs/qp_attributes.h"

namespace softhca::uverbs {

using Op = spec::command_opcode;

namespace {

constexpr unsigned kLogSendBlock = 6;

}  // namespace

bool RawPacketQueues::make() {
  if (options_.send_blocks != 0 && !make_sender()) return false;
  return options_.receive_entries == 0 || make_receiver();
}

bool RawPacketQueues::make_sender() {
  using Tis = spec::create_tis_in;
  Command<Tis> tis(Op::CREATE_TIS);
  tis.set(Tis::uid, options_.uid);
  tis.sub(Tis::tis_context).set(spec::tis_context::transport_domain, options_.transport_domain);
  const auto tis_out = device_.commands().execute<spec::create_tis_out>(tis);
  if (!tis_out) return false;
  tisn_ = tis_out->get(spec::create_tis_out::tisn);

  using In = spec::create_sq_in;
  using Sq = spec::sq_context;
  const auto size = std::uint64_t{options_.send_blocks} << kLogSendBlock;
  Command<In> in(Op::CREATE_SQ, pages_of(options_.send_queue, size) * sizeof(std::uint64_t));
  in.set(In::uid, options_.uid);
  const auto context = in.sub(In::sq_context);
  context.set(Sq::flush_in_error_en, 1);
  context.set(Sq::user_index, options_.user_index);
  context.set(Sq::cqn, options_.send_cqn);
  context.set(Sq::tis_lst_sz, 1);
  context.set(Sq::tis_num, tisn_);
  const auto wq = context.sub(Sq::wq);
  wq.set(spec::wq::wq_type, static_cast<std::uint32_t>(spec::wq_type::CYCLIC));
  wq.set(spec::wq::pd, options_.pdn);
  wq.set(spec::wq::uar_page, options_.uar);
  wq.set(spec::wq::dbr_addr, Device::bus_address(options_.record));
  wq.set(spec::wq::log_wq_stride, kLogSendBlock);
  wq.set(spec::wq::log_wq_sz, log2_of(options_.send_blocks));
  wq.set(spec::wq::page_offset, page_offset_of(options_.send_queue));
  store_pages(in.all().subspan(In::kSize), options_.send_queue);
  const auto out = device_.commands().execute<spec::create_sq_out>(in);
  if (!out) return false;
  sqn_ = out->get(spec::create_sq_out::sqn);
  return true;
}

bool RawPacketQueues::make_receiver() {
  const bool made = receiver_.make({.uid = options_.uid,
                                    .pdn = options_.pdn,
                                    .cqn = options_.receive_cqn,
                                    .user_index = options_.user_index,
                                    .record = options_.record,
                                    .queue = options_.receive_queue,
                                    .entries = options_.receive_entries,
                                    .log_stride = options_.log_receive_stride,
                                    .strips_vlan = options_.strips_vlan});
  if (!made) return false;
  using Tir = spec::create_tir_in;
  Command<Tir> tir(Op::CREATE_TIR);
  tir.set(Tir::uid, options_.uid);
  const auto to = tir.sub(Tir::tir_context);
  to.set(spec::tir_context::disp_type, static_cast<std::uint32_t>(spec::tir_disp_type::DIRECT));
  to.set(spec::tir_context::inline_rqn, rqn());
  to.set(spec::tir_context::transport_domain, options_.transport_domain);
  to.set(spec::tir_context::self_lb_en_unicast, options_.hears_itself);
  to.set(spec::tir_context::self_lb_en_multicast, options_.hears_own_multicast);
  const auto tir_out = device_.commands().execute<spec::create_tir_out>(tir);
  if (!tir_out) return false;
  tirn_ = tir_out->get(spec::create_tir_out::tirn);
  return true;
}

RawPacketQueues::~RawPacketQueues() {
  device_.records().remove_send_queue(sqn_);
  const auto end = [&](auto& in, auto field, std::uint32_t number) {
    if (number == 0) return;
    in.set(field, number);
    report(device_.commands().run(in));
  };
  Command<spec::destroy_tir_in> tir(Op::DESTROY_TIR);
  end(tir, spec::destroy_tir_in::tirn, tirn_);
  Command<spec::destroy_sq_in> sq(Op::DESTROY_SQ);
  end(sq, spec::destroy_sq_in::sqn, sqn_);
  Command<spec::destroy_tis_in> tis(Op::DESTROY_TIS);
  end(tis, spec::destroy_tis_in::tisn, tisn_);
}

/// mlx5_ib names the states that it remembers from its last command or query. A card need not check
/// them (PRM Table 128), and DPDK resets a failed queue without a query: so the true states are
/// named here.
bool RawPacketQueues::change(std::uint8_t from, std::uint8_t to) {
  using spec::rq_state;
  using spec::sq_state;
  if (to == kQpReset) return change_receiver(rq_state::RST) && change_sender(sq_state::RST);
  if (to == kQpError) return change_receiver(rq_state::ERR) && change_sender(sq_state::ERR);
  if (from == kQpReset) return change_receiver(rq_state::RDY);
  return to != kQpRts || change_sender(sq_state::RDY);
}

bool RawPacketQueues::change_sender(spec::sq_state to) {
  if (sqn_ == 0 || to == send_state_) return true;
  using In = spec::modify_sq_in;
  Command<In> in(Op::MODIFY_SQ);
  in.set(In::sqn, sqn_);
  const auto from = sender_has_failed() ? spec::sq_state::ERR : send_state_;
  in.set(In::sq_state, static_cast<std::uint32_t>(from));
  in.sub(In::sq_context).set(spec::sq_context::state, static_cast<std::uint32_t>(to));
  if (!device_.commands().run(in)) return false;
  send_state_ = to;
  if (to == spec::sq_state::RST) device_.records().remove_send_queue(sqn_);
  if (to == spec::sq_state::RDY) {
    const auto* const record = reinterpret_cast<const std::uint32_t*>(options_.record + 4);
    device_.records().add_send_queue(sqn_, options_.uar, record);
  }
  return true;
}

spec::sq_state RawPacketQueues::sender_state() const {
  Command<spec::query_sq_in> in(Op::QUERY_SQ);
  in.set(spec::query_sq_in::sqn, sqn_);
  const auto out = device_.commands().execute<spec::query_sq_out>(in);
  if (!out) return spec::sq_state::ERR;
  const auto state = out->get(spec::query_sq_out::sq_context).get(spec::sq_context::state);
  return static_cast<spec::sq_state>(state);
}

}  // namespace softhca::uverbs
