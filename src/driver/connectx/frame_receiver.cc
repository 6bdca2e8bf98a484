#include "driver/connectx/frame_receiver.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <utility>

#include "driver/connectx/queue_sizes.h"
#include "spec/connectx/flow_table.h"
#include "spec/connectx/qp.h"
#include "spec/connectx/raw_queues.h"
#include "spec/connectx/wqe.h"
#include "util/log.h"

namespace softhca::driver::connectx {

using spec::command_opcode;
using spec::doorbell_record;
using spec::rq_context;
using spec::rq_state;
using spec::wq;

FrameReceiver::FrameReceiver(ProtectionDomain& pd, TransportDomain& domain, const Options& options)
    : pd_(pd), domain_(domain), hca_(pd.hca()), host_(pd.hca().host()), options_(options) {
  const auto& receive = options.receive;
  stride_ =
      std::bit_ceil(std::max<std::size_t>(receive.pieces, 1)) * spec::receive_data_segment::kSize;
  ring_size_ = std::bit_ceil(std::max<std::size_t>(receive.requests, 1)) * stride_;
}

util::Result<std::unique_ptr<FrameReceiver>> FrameReceiver::create(ProtectionDomain& pd,
                                                                   TransportDomain& domain,
                                                                   const Options& options) {
  std::unique_ptr<FrameReceiver> receiver(new FrameReceiver(pd, domain, options));
  if (auto done = receiver->create_on_device(); !done) return tl::unexpected(done.error());
  return receiver;
}

util::Result<void> FrameReceiver::create_on_device() {
  if (ring_size_ / stride_ > kEntriesMax) {
    return util::fail("CREATE_RQ: more requests than a queue can have (2^15)");
  }
  auto memory = DmaBuffer::allocate(host_, ring_size_ + doorbell_record::kSize);
  if (!memory) return tl::unexpected(memory.error());
  memory_ = std::move(*memory);
  if (auto done = create_rq(); !done) return done;
  if (auto done = create_tir(); !done) return done;
  queue_.attach(memory_.bytes().first(ring_size_), stride_, options_.receive);
  return start();
}

util::Result<void> FrameReceiver::create_rq() {
  const auto user_index = hca_.completion_targets().insert(*this);
  if (!user_index) return util::fail("CREATE_RQ: no user index left");
  user_index_ = *user_index;
  Request<spec::create_rq_in> in(command_opcode::CREATE_RQ, page_list_size(ring_size_));
  const auto context = in.sub(spec::create_rq_in::rq_context);
  context.set(rq_context::vlan_strip_disable, 1);
  context.set(rq_context::flush_in_error_en, 1);
  context.set(rq_context::user_index, user_index_);
  context.set(rq_context::cqn, options_.cq.cqn());
  const auto ring = context.sub(rq_context::wq);
  ring.set(wq::wq_type, static_cast<std::uint32_t>(spec::wq_type::CYCLIC));
  ring.set(wq::pd, pd_.pd());
  ring.set(wq::dbr_addr, memory_.iova(ring_size_));
  ring.set(wq::log_wq_stride, log2_of(stride_));
  ring.set(wq::log_wq_sz, log2_of(ring_size_ / stride_));
  store_page_list(in.all().subspan(spec::create_rq_in::kSize), memory_);
  const auto out = hca_.commands().execute<spec::create_rq_out>(in);
  if (!out) {
    hca_.completion_targets().erase(user_index_);
    return tl::unexpected(out.error());
  }
  number_ = out->get(spec::create_rq_out::rqn);
  exists_ = true;
  return {};
}

util::Result<void> FrameReceiver::create_tir() {
  Request<spec::create_tir_in> in(command_opcode::CREATE_TIR);
  const auto context = in.sub(spec::create_tir_in::tir_context);
  context.set(spec::tir_context::disp_type,
              static_cast<std::uint32_t>(spec::tir_disp_type::DIRECT));
  context.set(spec::tir_context::inline_rqn, number_);
  context.set(spec::tir_context::transport_domain, domain_.number());
  const auto out = hca_.commands().execute<spec::create_tir_out>(in);
  if (!out) return tl::unexpected(out.error());
  tirn_ = out->get(spec::create_tir_out::tirn);
  has_tir_ = true;
  return {};
}

/// RST to RDY (PRM Table 57).
util::Result<void> FrameReceiver::start() {
  using In = spec::modify_rq_in;
  Request<In> in(command_opcode::MODIFY_RQ);
  in.set(In::rqn, number_);
  in.set(In::rq_state, static_cast<std::uint32_t>(rq_state::RST));
  in.sub(In::rq_context).set(rq_context::state, static_cast<std::uint32_t>(rq_state::RDY));
  return hca_.commands().run(in);
}

util::Result<void> FrameReceiver::take_all_frames() {
  if (auto done = create_table(); !done) return done;
  return create_flow();
}

/// Creates a table of level 0, which is the root (PRM 7.11.3.2), with one flow that matches every
/// frame.
util::Result<void> FrameReceiver::create_table() {
  Request<spec::create_flow_table_in> in(command_opcode::CREATE_FLOW_TABLE);
  const auto table = hca_.commands().execute<spec::create_flow_table_out>(in);
  if (!table) return tl::unexpected(table.error());
  table_ = table->get(spec::create_flow_table_out::table_id);
  has_table_ = true;
  Request<spec::create_flow_group_in> group_in(command_opcode::CREATE_FLOW_GROUP);
  group_in.set(spec::create_flow_group_in::table_id, table_);
  const auto group = hca_.commands().execute<spec::create_flow_group_out>(group_in);
  if (!group) return tl::unexpected(group.error());
  group_ = group->get(spec::create_flow_group_out::group_id);
  has_group_ = true;
  return {};
}

util::Result<void> FrameReceiver::create_flow() {
  using In = spec::set_flow_table_entry_in;
  Request<In> in(command_opcode::SET_FLOW_TABLE_ENTRY, spec::dest_format::kSize);
  in.set(In::table_id, table_);
  const auto context = in.sub(In::flow_context);
  context.set(spec::flow_context::group_id, group_);
  context.set(spec::flow_context::action, static_cast<std::uint32_t>(spec::flow_action::FWD_DEST));
  context.set(spec::flow_context::destination_list_size, 1);
  const util::MutableView<spec::dest_format> destination(in.all().subspan(In::kSize));
  destination.set(spec::dest_format::destination_type,
                  static_cast<std::uint32_t>(spec::destination_type::TIR));
  destination.set(spec::dest_format::destination_id, tirn_);
  auto done = hca_.commands().run(in);
  has_flow_ = done.has_value();
  return done;
}

FrameReceiver::~FrameReceiver() {
  if (const auto done = destroy(); !done) {
    util::log(util::LogLevel::kWarning, "RQ {:#x}: {}", number_, done.error().message);
  }
}

util::Result<void> FrameReceiver::destroy() {
  util::Result<void> first;
  const auto run = [&](bool& exists, auto& in) {
    if (!std::exchange(exists, false)) return;
    auto done = hca_.commands().run(in);
    if (first) first = std::move(done);
  };
  Request<spec::delete_flow_table_entry_in> flow(command_opcode::DELETE_FLOW_TABLE_ENTRY);
  flow.set(spec::delete_flow_table_entry_in::table_id, table_);
  run(has_flow_, flow);
  Request<spec::destroy_flow_group_in> group(command_opcode::DESTROY_FLOW_GROUP);
  group.set(spec::destroy_flow_group_in::table_id, table_);
  group.set(spec::destroy_flow_group_in::group_id, group_);
  run(has_group_, group);
  Request<spec::destroy_flow_table_in> table(command_opcode::DESTROY_FLOW_TABLE);
  table.set(spec::destroy_flow_table_in::table_id, table_);
  run(has_table_, table);
  Request<spec::destroy_tir_in> tir(command_opcode::DESTROY_TIR);
  tir.set(spec::destroy_tir_in::tirn, tirn_);
  run(has_tir_, tir);
  if (!exists_) return first;
  Request<spec::destroy_rq_in> rq(command_opcode::DESTROY_RQ);
  rq.set(spec::destroy_rq_in::rqn, number_);
  run(exists_, rq);
  options_.cq.sweep(user_index_);
  hca_.completion_targets().erase(user_index_);
  return first;
}

PostStatus FrameReceiver::post(const ReceiveRequest& request) {
  const auto status = queue_.post(request);
  if (status != PostStatus::kOk) return status;
  // There is no doorbell register: the device reads the record when a frame arrives.
  const util::MutableView<doorbell_record> record(memory_.bytes().subspan(ring_size_));
  std::atomic_thread_fence(std::memory_order_release);
  record.set(doorbell_record::receive_counter, queue_.producer());
  return status;
}

}  // namespace softhca::driver::connectx
