#include "connectx/qp/rdma_test_host.h"

#include <gtest/gtest.h>

#include <cstring>

#include "spec/connectx/caps.h"
#include "spec/connectx/eq.h"
#include "spec/connectx/hca.h"
#include "spec/connectx/raw_queues.h"
#include "spec/connectx/srq.h"
#include "spec/connectx/vport.h"

namespace softhca::connectx::test {

namespace {

using namespace spec::connectx;

constexpr unsigned kLogEvents = 8;

/// All queue events, but not those of commands, pages and the port, which would get in the way.
constexpr std::uint64_t kEvents = ~(1ull << static_cast<unsigned>(event_type::PORT_STATE_CHANGE) |
                                    1ull << static_cast<unsigned>(event_type::COMMAND_COMPLETION) |
                                    1ull << static_cast<unsigned>(event_type::PAGE_REQUEST) |
                                    1ull << static_cast<unsigned>(event_type::PAGE_FAULT));

HostOptions on_switch(HostOptions options) {
  options.on_switch = true;
  return options;
}

template <class Field>
std::uint32_t field(std::span<const std::byte> bytes, Field f) {
  return static_cast<std::uint32_t>(f.read(bytes.data()));
}

}  // namespace

RdmaTestHost::RdmaTestHost(HostOptions options) : FakeHost(on_switch(options)), mac(options.mac) {
  enable();
  // Sets the mode as Linux does. A model without atomics lacks this group.
  if (!options.big_endian_atomics) {
    (void)call<set_hca_cap_out, set_hca_cap_in>(
        Opcode::SET_HCA_CAP,
        [](auto in) {
          const util::MutableView<atomic_cap> image(in.sub(set_hca_cap_in::capability));
          image.set(atomic_cap::atomic_req_8B_endianness_mode, 1);
        },
        {}, static_cast<std::uint16_t>(static_cast<unsigned>(hca_cap_type::ATOMIC) << 1));
  }
  finish_start();
  pd = allocate_pd();
  EXPECT_EQ(create_key(pd), kKey);
  eqn = create_eq(kLogEvents, kEvents, 0);
  events_ = last_buffer;
  cq = create_cq(8);
  EXPECT_TRUE((call<modify_nic_vport_context_out, modify_nic_vport_context_in>(
      Opcode::MODIFY_NIC_VPORT_CONTEXT, [&](auto in) {
        in.sub(modify_nic_vport_context_in::field_select)
            .set(modify_nic_vport_field_select::roce_en, 1);
        in.sub(modify_nic_vport_context_in::nic_vport_context).set(nic_vport_context::roce_en, 1);
      })));
  EXPECT_TRUE(
      (call<set_roce_address_out, set_roce_address_in>(Opcode::SET_ROCE_ADDRESS, [&](auto in) {
        in.set(set_roce_address_in::roce_address_index, 3);
        const auto entry = in.sub(set_roce_address_in::roce_address);
        std::ranges::copy(gid.bytes, entry.sub(roce_address::source_l3_address).begin());
        std::ranges::copy(mac.bytes, entry.sub(roce_address::source_mac).begin());
        entry.set(roce_address::roce_version, static_cast<std::uint32_t>(roce_version::V2));
      })));
}

pcie::Iova RdmaTestHost::put_text(std::string_view text) {
  const auto address = allocate(text.size(), 64);
  std::memcpy(at(address), text.data(), text.size());
  return address;
}

// CQs and events -------------------------------------------------------------------------------

std::optional<HostCqe> RdmaTestHost::poll(HostCq& from) {
  const auto* entry = FakeHost::poll(from);
  if (entry == nullptr) return std::nullopt;
  using Layout = cqe64_responder;
  const std::span<const std::byte> bytes(entry, 64);
  HostCqe cqe{
      .opcode = static_cast<CqeOpcode>(field(bytes, Layout::opcode)),
      .qpn = field(bytes, Layout::qpn),
      .wqe_counter = static_cast<std::uint16_t>(field(bytes, Layout::wqe_counter)),
      .byte_count = field(bytes, Layout::byte_cnt),
      .user_index = field(bytes, Layout::srqn_user_index),
      .immediate = field(bytes, Layout::imm_inval_pkey),
      .syndrome = static_cast<Syndrome>(field(bytes, cqe_error::syndrome)),
      .vendor_syndrome = static_cast<std::uint8_t>(field(bytes, cqe_error::vendor_error_syndrome)),
      .reason = static_cast<std::uint8_t>(field(bytes, cqe_error::hw_error_syndrome)),
      .bytes = {},
      .in_front = {}};
  std::ranges::copy(bytes, cqe.bytes.begin());
  if (from.stride == 128) std::ranges::copy(std::span(entry - 64, 64), cqe.in_front.begin());
  return cqe;
}

std::vector<HostCqe> RdmaTestHost::poll_all(HostCq& from) {
  std::vector<HostCqe> all;
  while (auto cqe = poll(from)) all.push_back(*cqe);
  return all;
}

std::optional<HostEvent> RdmaTestHost::poll_event() {
  const auto index = events_consumed_ & ((1u << kLogEvents) - 1);
  const std::span<const std::byte> bytes(at(events_ + kEqeSize * index), kEqeSize);
  if (field(bytes, eqe::owner) != (events_consumed_ >> kLogEvents & 1)) return std::nullopt;
  ++events_consumed_;
  const auto data = util::View<eqe>(bytes).get(eqe::event_data);
  return HostEvent{static_cast<EventType>(field(bytes, eqe::event_type)),
                   field(data, event_data_qp_srq::qp_srq_n)};
}

HostRmp RdmaTestHost::create_rmp(unsigned log_size, wq_type type) {
  const auto size = std::size_t{64} << log_size;
  HostRmp rmp{.ring = allocate(size), .record = allocate(8, 64)};
  const auto reply = call<create_rmp_out, create_rmp_in>(
      Opcode::CREATE_RMP,
      [&](auto in) {
        const auto context = in.sub(create_rmp_in::rmp_context);
        context.set(rmp_context::state, static_cast<std::uint32_t>(rmp_state::RDY));
        const auto queue = context.sub(rmp_context::wq);
        queue.set(wq::wq_type, static_cast<std::uint32_t>(type));
        queue.set(wq::log_wq_sz, log_size);
        queue.set(wq::log_wq_stride, 6);
        queue.set(wq::pd, pd);
        queue.set(wq::dbr_addr, rmp.record);
      },
      page_list(rmp.ring, size));
  EXPECT_TRUE(reply) << reply.reason();
  rmp.rmpn = reply.as<create_rmp_out>().get(create_rmp_out::rmpn);
  return rmp;
}

// QPs ------------------------------------------------------------------------------------------

HostQp RdmaTestHost::allocate_qp(const QpOptions& options) {
  HostQp qp;
  qp.options = options;
  qp.ring = allocate(qp.send_offset() + (std::size_t{64} << options.log_sq));
  qp.record = allocate(8, 64);
  return qp;
}

void RdmaTestHost::fill_create(util::MutableView<create_qp_in> in, const HostQp& qp) {
  const auto context = in.sub(create_qp_in::qpc);
  const auto& options = qp.options;
  context.set(qpc::st, static_cast<std::uint32_t>(options.service));
  context.set(qpc::pd, options.pd != 0 ? options.pd : pd);
  context.set(qpc::uar_page, uar);
  const auto cqn = options.cqn != 0 ? options.cqn : cq.cqn;
  context.set(qpc::cqn_snd, cqn);
  context.set(qpc::cqn_rcv, cqn);
  context.set(qpc::cs_req, options.cs_req);
  context.set(qpc::cs_res, options.cs_res);
  context.set(qpc::wq_signature, options.wq_signature);
  context.set(qpc::dbr_addr, qp.record);
  context.set(qpc::log_sq_size, options.log_sq);
  context.set(qpc::user_index, options.user_index);
  context.set(qpc::fre, options.fre);
  if (options.srqn != 0) {
    context.set(qpc::rq_type, static_cast<std::uint32_t>(qp_rq_type::SRQ));
    context.set(qpc::srqn_rmpn_xrqn, options.srqn);
  } else {
    const auto type = options.no_receive_queue ? qp_rq_type::ZERO_LENGTH_RQ : qp_rq_type{};
    context.set(qpc::rq_type, static_cast<std::uint32_t>(type));
    context.set(qpc::log_rq_size, options.log_rq);
    context.set(qpc::log_rq_stride, 2);
  }
}

HostQp RdmaTestHost::create_qp(const QpOptions& options) {
  auto qp = allocate_qp(options);
  const auto out = call<create_qp_out, create_qp_in>(
      Opcode::CREATE_QP, [&](auto in) { fill_create(in, qp); },
      page_list(qp.ring, qp.send_offset() + (std::size_t{64} << options.log_sq)));
  EXPECT_TRUE(out) << out.reason();
  if (out) qp.qpn = out.as<create_qp_out>().get(create_qp_out::qpn);
  return qp;
}

Reply RdmaTestHost::modify(HostQp& qp, Opcode opcode, std::uint32_t mask,
                           const std::function<void(util::MutableView<qpc>)>& fill) {
  return call<rst2init_qp_out, rst2init_qp_in>(opcode, [&](auto in) {
    in.set(rst2init_qp_in::qpn, qp.qpn);
    in.set(rst2init_qp_in::opt_param_mask, mask);
    if (fill) fill(in.sub(rst2init_qp_in::qpc));
  });
}

Reply RdmaTestHost::to_init(HostQp& qp) {
  return modify(qp, Opcode::RST2INIT_QP, 0, [&](auto context) {
    context.set(qpc::st, static_cast<std::uint32_t>(qp.options.service));
    context.set(qpc::pd, qp.options.pd != 0 ? qp.options.pd : pd);
    context.set(qpc::cqn_snd, qp.options.cqn != 0 ? qp.options.cqn : cq.cqn);
    context.set(qpc::cqn_rcv, qp.options.cqn != 0 ? qp.options.cqn : cq.cqn);
    context.set(qpc::rre, 1);
    context.set(qpc::rwe, 1);
    context.set(qpc::rae, 1);
    context.set(qpc::atomic_mode, static_cast<std::uint32_t>(qp_atomic_mode::UP_TO_8B));
    context.set(qpc::q_key, kQkey);
    context.sub(qpc::primary_address_path).set(ads::vhca_port_num, 1);
  });
}

Reply RdmaTestHost::to_rtr(HostQp& qp, std::uint32_t remote_qpn) {
  return modify(qp, Opcode::INIT2RTR_QP, 0, [&](auto context) {
    context.set(qpc::mtu, static_cast<std::uint32_t>(qp_mtu::BYTES_1K));
    context.set(qpc::log_msg_max, qp.options.log_msg_max);
    context.set(qpc::remote_qpn, remote_qpn);
    context.set(qpc::next_rcv_psn, 0x1000);
    context.set(qpc::log_rra_max, 2);
    context.set(qpc::min_rnr_nak, 1);
    const auto path = context.sub(qpc::primary_address_path);
    path.set(ads::src_addr_index, 3);
    path.set(ads::hop_limit, 64);
    path.set(ads::udp_sport, kUdpPort);
    std::ranges::copy(mac.bytes, path.sub(ads::rmac).begin());
    std::ranges::copy(gid.bytes, path.sub(ads::rgid_rip).begin());
  });
}

Reply RdmaTestHost::to_rts(HostQp& qp) {
  return modify(qp, Opcode::RTR2RTS_QP, 0, [&](auto context) {
    context.set(qpc::next_send_psn, 0x1000);
    context.set(qpc::retry_count, 7);
    context.set(qpc::rnr_retry, 7);
    context.set(qpc::log_sra_max, 2);
    context.sub(qpc::primary_address_path).set(ads::ack_timeout, 14);
  });
}

Reply RdmaTestHost::to_error(HostQp& qp) { return modify(qp, Opcode::QP_2ERR); }

Reply RdmaTestHost::to_reset(HostQp& qp) {
  auto result = modify(qp, Opcode::QP_2RST);
  qp.send_producer = qp.receive_producer = 0;
  return result;
}

void RdmaTestHost::destroy(HostQp& qp) {
  EXPECT_TRUE((call<destroy_qp_out, destroy_qp_in>(
      Opcode::DESTROY_QP, [&](auto in) { in.set(destroy_qp_in::qpn, qp.qpn); })));
}

std::pair<HostQp, HostQp> RdmaTestHost::connected(const QpOptions& options,
                                                  const QpOptions& of_peer) {
  std::pair pair{create_qp(options), create_qp(of_peer)};
  for (const auto& [qp, peer] :
       {std::pair{&pair.first, &pair.second}, std::pair{&pair.second, &pair.first}}) {
    EXPECT_TRUE(to_init(*qp));
    EXPECT_TRUE(to_rtr(*qp, peer->qpn));
    EXPECT_TRUE(to_rts(*qp));
  }
  return pair;
}

HostQp RdmaTestHost::datagram_qp(QpOptions options) {
  auto qp = create_qp(options);
  EXPECT_TRUE(to_init(qp));
  EXPECT_TRUE(to_rtr(qp, 0));
  EXPECT_TRUE(to_rts(qp));
  return qp;
}

void RdmaTestHost::post_send(HostQp& qp, std::span<const std::byte> wqe) {
  const std::uint32_t blocks = 1u << qp.options.log_sq;
  const auto ring = qp.ring + qp.send_offset();
  for (std::size_t done = 0; done < wqe.size(); done += 64) {
    const auto n = std::min<std::size_t>(64, wqe.size() - done);
    std::memcpy(at(ring + std::uint64_t{64} * (qp.send_producer & (blocks - 1))), wqe.data() + done,
                n);
    ++qp.send_producer;
  }
  util::store_be32(at(qp.record + 4), qp.send_producer);
}

void RdmaTestHost::post_receive(HostQp& qp, pcie::Iova address, std::uint32_t length) {
  const std::uint32_t count = 1u << qp.options.log_rq;
  auto* wqe = at(qp.ring + std::uint64_t{64} * (qp.receive_producer & (count - 1)));
  util::store_be32(wqe, length);
  util::store_be32(wqe + 4, kKey);
  util::store_be64(wqe + 8, address);
  util::store_be32(wqe + 16, 0);
  util::store_be32(wqe + 20, 0x100);
  ++qp.receive_producer;
  util::store_be32(at(qp.record), qp.receive_producer);
}

std::uint32_t RdmaTestHost::query_state(const HostQp& qp) {
  const auto out = call<query_qp_out, query_qp_in>(
      Opcode::QUERY_QP, [&](auto in) { in.set(query_qp_in::qpn, qp.qpn); });
  if (!out) return ~0u;
  return out.as<query_qp_out>().get(query_qp_out::qpc).get(qpc::state);
}

util::Time RdmaTestHost::run_rdma() {
  util::WorkBudget work(pcie::Function::kRunWork);
  return device.driver().rdma().run(now, work);
}

}  // namespace softhca::connectx::test
