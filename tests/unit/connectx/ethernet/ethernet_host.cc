#include "connectx/ethernet/ethernet_host.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "connectx/ethernet/ethernet.h"
#include "connectx/memory/memory_keys.h"
#include "util/endian.h"

namespace softhca::connectx::test {

namespace {

using namespace spec::connectx;

HostOptions with_mac(HostOptions options) {
  options.mac = rdma::Mac::from_u64(EthernetHost::kMac);
  return options;
}

constexpr std::array<ModelCapability, 2> kNoInlineHeaders{
    {{"wqe_inline_mode", 2}, {"wqe_vlan_insert", 1}}};

}  // namespace

Model without_inline_headers() { return {.capabilities = kNoInlineHeaders}; }

EthernetHost::EthernetHost(HostOptions options) : FakeHost(with_mac(options)) {
  initialize();
  pd = allocate_pd();
  transport_domain = allocate_transport_domain();
  EXPECT_EQ(create_key(pd), kKey);
  eqn = create_eq(4, 0, 0);
}

// Objects ----------------------------------------------------------------------------------------

EthernetHost::Ring EthernetHost::make_ring(unsigned log_size, unsigned log_stride) {
  return {allocate(std::size_t{1} << (log_size + log_stride)), allocate(8), log_size, log_stride,
          0};
}

void EthernetHost::fill_wq(util::MutableView<wq> view, const Ring& ring) const {
  view.set(wq::wq_type, static_cast<std::uint8_t>(wq_type::CYCLIC));
  view.set(wq::pd, pd);
  view.set(wq::uar_page, uar);
  view.set(wq::dbr_addr, ring.record);
  view.set(wq::log_wq_stride, ring.log_stride);
  view.set(wq::log_wq_sz, ring.log_size);
}

Bytes EthernetHost::pas_of(const Ring& ring) {
  return page_list(ring.buffer, std::size_t{1} << (ring.log_size + ring.log_stride));
}

std::uint32_t EthernetHost::create_cq(unsigned log_size) {
  const auto cq = FakeHost::create_cq(log_size, eqn);
  cqs_[cq.cqn] = cq;
  return cq.cqn;
}

std::uint32_t EthernetHost::create_tis() {
  const auto answer = call<create_tis_out, create_tis_in>(Opcode::CREATE_TIS, [&](auto in) {
    in.sub(create_tis_in::tis_context).set(tis_context::transport_domain, transport_domain);
  });
  EXPECT_TRUE(answer.ok()) << answer.reason();
  return answer.as<create_tis_out>().get(create_tis_out::tisn);
}

std::uint32_t EthernetHost::create_sq(std::uint32_t cqn, unsigned log_size, bool ready,
                                      bool with_tis, bool with_signatures) {
  const auto ring = make_ring(log_size, 6);
  const auto tisn = !with_tis ? 0 : shared_tisn != 0 ? shared_tisn : create_tis();
  const auto answer = call<create_sq_out, create_sq_in>(
      Opcode::CREATE_SQ,
      [&](auto in) {
        const auto context = in.sub(create_sq_in::sq_context);
        context.set(sq_context::cqn, cqn);
        context.set(sq_context::tis_lst_sz, with_tis ? 1 : 0);
        context.set(sq_context::tis_num, tisn);
        context.set(sq_context::flush_in_error_en, 1);
        context.set(sq_context::user_index, 0xABCDE);
        context.set(sq_context::allow_multi_pkt_send_wqe, multi_packet_sends);
        fill_wq(context.sub(sq_context::wq), ring);
        context.sub(sq_context::wq).set(wq::wq_signature, with_signatures);
      },
      pas_of(ring));
  EXPECT_TRUE(answer.ok()) << answer.reason();
  const auto sqn = answer.as<create_sq_out>().get(create_sq_out::sqn);
  rings_[sqn] = ring;
  if (ready) {
    EXPECT_TRUE(modify_sq(sqn, sq_state::RST, sq_state::RDY).ok());
  }
  return sqn;
}

std::uint32_t EthernetHost::create_rq(std::uint32_t cqn, unsigned log_size, unsigned log_stride,
                                      bool ready, end_padding_mode padding) {
  const auto ring = make_ring(log_size, log_stride);
  const auto answer = call<create_rq_out, create_rq_in>(
      Opcode::CREATE_RQ,
      [&](auto in) {
        const auto context = in.sub(create_rq_in::rq_context);
        context.set(rq_context::cqn, cqn);
        context.set(rq_context::flush_in_error_en, 1);
        context.set(rq_context::user_index, 0x12345);
        fill_wq(context.sub(rq_context::wq), ring);
        context.sub(rq_context::wq).set(wq::end_padding_mode, static_cast<std::uint32_t>(padding));
        context.sub(rq_context::wq).set(wq::wq_signature, signed_receives);
      },
      pas_of(ring));
  EXPECT_TRUE(answer.ok()) << answer.reason();
  const auto rqn = answer.as<create_rq_out>().get(create_rq_out::rqn);
  rings_[rqn] = ring;
  if (ready) {
    EXPECT_TRUE(modify_rq(rqn, rq_state::RST, rq_state::RDY).ok());
  }
  return rqn;
}

std::uint32_t EthernetHost::create_direct_tir(std::uint32_t rqn) {
  const auto answer = call<create_tir_out, create_tir_in>(Opcode::CREATE_TIR, [&](auto in) {
    const auto context = in.sub(create_tir_in::tir_context);
    context.set(tir_context::inline_rqn, rqn);
    context.set(tir_context::transport_domain, transport_domain);
  });
  EXPECT_TRUE(answer.ok()) << answer.reason();
  return answer.as<create_tir_out>().get(create_tir_out::tirn);
}

std::uint32_t EthernetHost::create_rqt(const std::vector<std::uint32_t>& rqns) {
  Bytes list(4 * rqns.size());
  for (std::size_t i = 0; i < rqns.size(); ++i) util::store_be32(list.data() + 4 * i, rqns[i]);
  const auto answer = call<create_rqt_out, create_rqt_in>(
      Opcode::CREATE_RQT,
      [&](auto in) {
        const auto context = in.sub(create_rqt_in::rqt_context);
        context.set(rqt_context::rqt_max_size, static_cast<std::uint32_t>(rqns.size()));
        context.set(rqt_context::rqt_actual_size, static_cast<std::uint32_t>(rqns.size()));
      },
      list);
  EXPECT_TRUE(answer.ok()) << answer.reason();
  return answer.as<create_rqt_out>().get(create_rqt_out::rqtn);
}

std::uint32_t EthernetHost::create_table(std::uint8_t level, unsigned log_size,
                                         std::uint32_t miss) {
  using In = create_flow_table_in;
  const auto answer = call<create_flow_table_out, In>(Opcode::CREATE_FLOW_TABLE, [&](auto in) {
    in.set(In::table_type, static_cast<std::uint32_t>(table_type));
    const auto context = in.sub(In::flow_table_context);
    context.set(flow_table_context::level, level);
    context.set(flow_table_context::log_size, log_size);
    context.set(flow_table_context::table_miss_action, miss != 0);
    context.set(flow_table_context::table_miss_id, miss);
  });
  EXPECT_TRUE(answer.ok()) << answer.reason();
  return answer.as<create_flow_table_out>().get(create_flow_table_out::table_id);
}

std::uint32_t EthernetHost::create_group(std::uint32_t table, std::uint32_t first,
                                         std::uint32_t last,
                                         const Fill<fte_match_param>& criteria) {
  using In = create_flow_group_in;
  const auto answer = call<create_flow_group_out, In>(Opcode::CREATE_FLOW_GROUP, [&](auto in) {
    in.set(In::table_type, static_cast<std::uint32_t>(table_type));
    in.set(In::table_id, table);
    in.set(In::start_flow_index, first);
    in.set(In::end_flow_index, last);
    in.set(In::match_criteria_enable, criteria ? 1 : 0);
    if (criteria) criteria(in.sub(In::match_criteria));
  });
  EXPECT_TRUE(answer.ok()) << answer.reason();
  return answer.as<create_flow_group_out>().get(create_flow_group_out::group_id);
}

Reply EthernetHost::set_flow(std::uint32_t table, std::uint32_t group, std::uint32_t index,
                             const std::vector<Destination>& destinations,
                             const Fill<fte_match_param>& value, std::uint32_t flow_tag) {
  using In = set_flow_table_entry_in;
  static_assert(dest_format::kSize == flow_counter_list_entry::kSize);
  Bytes list(dest_format::kSize * (destinations.size() + flow_counters.size()));
  for (std::size_t i = 0; i < destinations.size(); ++i) {
    const auto rest = std::span(list).subspan(i * dest_format::kSize);
    const util::MutableView<dest_format> entry(rest);
    entry.set(dest_format::destination_type, static_cast<std::uint8_t>(destinations[i].type));
    entry.set(dest_format::destination_id, destinations[i].id);
  }
  for (std::size_t i = 0; i < flow_counters.size(); ++i) {
    const auto rest = std::span(list).subspan((destinations.size() + i) * dest_format::kSize);
    util::MutableView<flow_counter_list_entry>(rest).set(flow_counter_list_entry::flow_counter_id,
                                                         flow_counters[i]);
  }
  auto action =
      static_cast<std::uint32_t>(destinations.empty() ? flow_action::DROP : flow_action::FWD_DEST);
  if (!flow_counters.empty()) action |= static_cast<std::uint32_t>(flow_action::COUNT);
  return call<set_flow_table_entry_out, In>(
      Opcode::SET_FLOW_TABLE_ENTRY,
      [&](auto in) {
        in.set(In::table_type, static_cast<std::uint32_t>(table_type));
        in.set(In::table_id, table);
        in.set(In::flow_index, index);
        const auto context = in.sub(In::flow_context);
        context.set(flow_context::group_id, group);
        context.set(flow_context::flow_tag, flow_tag);
        context.set(flow_context::action, action);
        context.set(flow_context::flow_counter_list_size,
                    static_cast<std::uint32_t>(flow_counters.size()));
        context.set(flow_context::destination_list_size,
                    static_cast<std::uint32_t>(destinations.size()));
        if (value) value(context.sub(flow_context::match_value));
      },
      list);
}

void EthernetHost::set_root(std::uint32_t table) {
  using In = set_flow_table_root_in;
  const auto answer = call<set_flow_table_root_out, In>(Opcode::SET_FLOW_TABLE_ROOT, [&](auto in) {
    in.set(In::table_type, static_cast<std::uint32_t>(table_type));
    in.set(In::table_id, table);
  });
  EXPECT_TRUE(answer.ok()) << answer.reason();
}

void EthernetHost::steer_all_to(std::uint32_t tirn) {
  const auto table = create_table(10, 0);
  const auto group = create_group(table, 0, 0);
  EXPECT_TRUE(set_flow(table, group, 0, {{destination_type::TIR, tirn}}).ok());
  set_root(table);
}

Reply EthernetHost::modify_sq(std::uint32_t sqn, spec::connectx::sq_state from,
                              spec::connectx::sq_state to) {
  return call<modify_sq_out, modify_sq_in>(Opcode::MODIFY_SQ, [&](auto in) {
    in.set(modify_sq_in::sqn, sqn);
    in.set(modify_sq_in::sq_state, static_cast<std::uint32_t>(from));
    in.sub(modify_sq_in::sq_context).set(sq_context::state, static_cast<std::uint32_t>(to));
  });
}

Reply EthernetHost::modify_rq(std::uint32_t rqn, spec::connectx::rq_state from,
                              spec::connectx::rq_state to) {
  return call<modify_rq_out, modify_rq_in>(Opcode::MODIFY_RQ, [&](auto in) {
    in.set(modify_rq_in::rqn, rqn);
    in.set(modify_rq_in::rq_state, static_cast<std::uint32_t>(from));
    in.sub(modify_rq_in::rq_context).set(rq_context::state, static_cast<std::uint32_t>(to));
  });
}

spec::connectx::sq_state EthernetHost::sq_state(std::uint32_t sqn) {
  const auto answer = call<query_sq_out, query_sq_in>(
      Opcode::QUERY_SQ, [&](auto in) { in.set(query_sq_in::sqn, sqn); });
  EXPECT_TRUE(answer.ok()) << answer.reason();
  return spec::connectx::sq_state(
      answer.as<query_sq_out>().get(query_sq_out::sq_context).get(sq_context::state));
}

// Data path --------------------------------------------------------------------------------------

void EthernetHost::write_wqe(std::uint32_t sqn, std::span<const std::byte> wqe) {
  auto& ring = rings_.at(sqn);
  const auto mask = (std::uint64_t{64} << ring.log_size) - 1;
  for (std::size_t i = 0; i < wqe.size(); ++i) {
    at(ring.buffer)[(std::uint64_t{ring.posted} * 64 + i) & mask] = wqe[i];
  }
  ring.posted = static_cast<std::uint16_t>(ring.posted + (wqe.size() + 63) / 64);
  util::store_be32(at(ring.record) + 4, ring.posted);
}

void EthernetHost::post_send(std::uint32_t sqn, std::span<const std::byte> wqe) {
  write_wqe(sqn, wqe);
  ring_send(sqn);
  run();
}

void EthernetHost::post_receive_list(
    std::uint32_t rqn, const std::vector<std::pair<std::uint64_t, std::uint32_t>>& list) {
  auto& ring = rings_.at(rqn);
  const auto stride = std::size_t{1} << ring.log_stride;
  auto* wqe = receive_wqe(rqn, ring.posted & ((1u << ring.log_size) - 1));
  using Segment = receive_data_segment;
  for (std::size_t i = 0; i < stride / Segment::kSize; ++i) {
    const util::MutableView<Segment> segment(std::span(wqe + i * Segment::kSize, Segment::kSize));
    const bool used = i < list.size();
    segment.set(Segment::byte_count, used ? list[i].second : 0);
    segment.set(Segment::l_key, used ? kKey : MemoryKeys::kTerminator);
    segment.set(Segment::local_address, used ? list[i].first : 0);
  }
  ++ring.posted;
  util::store_be32(at(ring.record), ring.posted);
}

std::uint64_t EthernetHost::post_receive(std::uint32_t rqn, std::uint32_t size) {
  const auto buffer = allocate(size);
  post_receive_list(rqn, {{buffer, size}});
  return buffer;
}

std::byte* EthernetHost::receive_wqe(std::uint32_t rqn, unsigned entry) {
  const auto& ring = rings_.at(rqn);
  return at(ring.buffer) + (std::size_t{entry} << ring.log_stride);
}

std::uint32_t EthernetHost::received(std::uint32_t rqn) {
  const auto answer = call<query_rq_out, query_rq_in>(
      Opcode::QUERY_RQ, [&](auto in) { in.set(query_rq_in::rqn, rqn); });
  EXPECT_TRUE(answer.ok()) << answer.reason();
  const auto context = answer.as<query_rq_out>().get(query_rq_out::rq_context);
  return context.get(rq_context::wq).get(wq::hw_counter);
}

void EthernetHost::reset_ring(std::uint32_t number) {
  auto& ring = rings_.at(number);
  ring.posted = 0;
  std::memset(at(ring.record), 0, 8);
}

void EthernetHost::arrive(std::span<const std::byte> frame) {
  port.receiver->handle_frame(wire::Frame::from_bytes(frame));
}

void EthernetHost::return_looped() {
  for (const auto& [bytes, mark] : std::exchange(port.looped, {})) {
    port.receiver->handle_loopback(wire::Frame::from_bytes(bytes), mark);
  }
}

util::Time EthernetHost::run_ethernet() {
  util::WorkBudget work(pcie::Function::kRunWork);
  return device.driver().ethernet().run(device.now(), work);
}

void EthernetHost::run_later() {
  advance(std::chrono::milliseconds(10));
  run();
}

std::uint32_t EthernetHost::expect_error(std::uint32_t cqn, cqe_opcode opcode,
                                         std::uint16_t counter, cqe_syndrome syndrome,
                                         rdma::Reason reason) {
  const auto cqe = poll(cqn);
  EXPECT_FALSE(cqe.empty());
  if (cqe.empty()) return 0;
  const util::View<cqe_error> view(cqe);
  EXPECT_EQ(view.get(cqe_error::opcode), static_cast<unsigned>(opcode));
  EXPECT_EQ(view.get(cqe_error::syndrome), static_cast<unsigned>(syndrome));
  EXPECT_EQ(view.get(cqe_error::hw_error_syndrome), static_cast<unsigned>(reason));
  // The number that hardware uses, if it is known.
  auto vendor_error = static_cast<unsigned>(reason);
  if (syndrome == cqe_syndrome::LOCAL_PROTECTION_ERROR) {
    vendor_error = opcode == cqe_opcode::REQUESTER_ERROR ? 0x52 : 0x32;
  } else if (syndrome == cqe_syndrome::WORK_REQUEST_FLUSHED_ERROR) {
    vendor_error = 0xF9;
  }
  EXPECT_EQ(view.get(cqe_error::vendor_error_syndrome), vendor_error);
  EXPECT_EQ(view.get(cqe_error::wqe_counter), counter);
  return view.get(cqe_error::qpn);
}

Bytes EthernetHost::poll(std::uint32_t cqn) {
  const auto* cqe = FakeHost::poll(cqs_.at(cqn));
  return cqe == nullptr ? Bytes() : Bytes(cqe, cqe + 64);
}

}  // namespace softhca::connectx::test
