#include "datagram_qp.h"

#include <algorithm>
#include <atomic>

#include "spec/connectx/init_segment.h"
#include "spec/connectx/qp.h"
#include "spec/connectx/resources.h"

namespace softhca::guest {

using namespace spec::connectx;  // NOLINT(google-build-using-namespace): of this file alone
using driver::connectx::Request;
using neighbours::must;

namespace {

constexpr std::size_t kBlock = 64, kEntry = 16;
constexpr std::size_t kReceiveSize = kEntry << DatagramQp::kLogSize;
constexpr std::size_t kSendSize = kBlock << DatagramQp::kLogSize;
constexpr unsigned kBlocksEach = 2;  // control, datagram (3 units), one piece

void describe(util::MutableView<qpc> context, Life& life) {
  context.set(qpc::st, static_cast<std::uint32_t>(service_type::UD));
  context.set(qpc::pm_state, static_cast<std::uint32_t>(pm_state::MIGRATED));
  context.set(qpc::pd, life.loop().pd());
}

}  // namespace

DatagramQp::DatagramQp(Life& life, const driver::connectx::CompletionQueue& cq)
    : life_(life),
      memory_(must(driver::DmaBuffer::allocate(life.host(),
                                               kReceiveSize + kSendSize + doorbell_record::kSize))),
      cqn_(cq.cqn()) {
  const auto ring_size = kReceiveSize + kSendSize;
  Request<create_qp_in> in(command_opcode::CREATE_QP, driver::connectx::page_list_size(ring_size));
  const auto context = in.sub(create_qp_in::qpc);
  describe(context, life);
  context.set(qpc::log_rq_size, kLogSize);
  context.set(qpc::log_sq_size, kLogSize);
  context.set(qpc::uar_page, life.loop().hca().uar());
  context.set(qpc::cqn_snd, cqn_);
  context.set(qpc::cqn_rcv, cqn_);
  context.set(qpc::dbr_addr, memory_.iova(ring_size));
  driver::connectx::store_page_list(in.all().subspan(create_qp_in::pas_offset), memory_);
  qpn_ = must(life.loop().hca().commands().execute<create_qp_out>(in)).get(create_qp_out::qpn);
  for (std::size_t i = 0; i != kReceiveSize / kEntry; ++i) {
    const util::MutableView<data_segment_pointer> entry(memory_.bytes().subspan(i * kEntry));
    entry.set(data_segment_pointer::byte_count, 4096);
    entry.set(data_segment_pointer::l_key, life.loop().key());
    entry.set(data_segment_pointer::local_address, life.loop().iova(1 << 20));
  }
  to_rts();
}

void DatagramQp::to_rts() {
  auto& commands = life_.loop().hca().commands();
  {
    Request<rst2init_qp_in> in(command_opcode::RST2INIT_QP);
    in.set(rst2init_qp_in::qpn, qpn_);
    const auto context = in.sub(rst2init_qp_in::qpc);
    describe(context, life_);
    context.set(qpc::cqn_snd, cqn_);
    context.set(qpc::cqn_rcv, cqn_);
    context.set(qpc::dbr_addr, memory_.iova(kReceiveSize + kSendSize));
    context.set(qpc::q_key, kKey);
    context.sub(qpc::primary_address_path).set(ads::vhca_port_num, 1);
    must(commands.run(in));
  }
  {
    Request<init2rtr_qp_in> in(command_opcode::INIT2RTR_QP);
    in.set(init2rtr_qp_in::qpn, qpn_);
    const auto context = in.sub(init2rtr_qp_in::qpc);
    describe(context, life_);
    context.set(qpc::mtu, static_cast<std::uint32_t>(qp_mtu::BYTES_4K));
    context.set(qpc::log_msg_max, 12);
    must(commands.run(in));
  }
  Request<rtr2rts_qp_in> in(command_opcode::RTR2RTS_QP);
  in.set(rtr2rts_qp_in::qpn, qpn_);
  describe(in.sub(rtr2rts_qp_in::qpc), life_);
  must(commands.run(in));
}

util::MutableView<doorbell_record> DatagramQp::record() const {
  return util::MutableView<doorbell_record>(memory_.bytes().subspan(kReceiveSize + kSendSize));
}

void DatagramQp::post(std::uint32_t destination, const driver::Gid& gid, const driver::Mac& mac,
                      std::uint32_t length, std::uint32_t lkey) {
  const auto at = memory_.bytes().subspan(
      kReceiveSize + (posted_ & ((1u << kLogSize) - 1)) * kBlock, kBlocksEach * kBlock);
  std::ranges::fill(at, std::byte{0});
  const util::MutableView<wqe_ctrl_segment> control(at);
  control.set(wqe_ctrl_segment::opcode, static_cast<std::uint32_t>(wqe_opcode::SEND));
  control.set(wqe_ctrl_segment::wqe_index, posted_);
  control.set(wqe_ctrl_segment::sq_number, qpn_);
  control.set(wqe_ctrl_segment::ds, 5);
  const util::MutableView<wqe_datagram_segment> to(at.subspan(wqe_ctrl_segment::kSize));
  to.set(wqe_datagram_segment::qkey, kKey);
  to.set(wqe_datagram_segment::ext, 1);
  to.set(wqe_datagram_segment::destination_qp_dct, destination);
  to.set(wqe_datagram_segment::grh, 1);
  to.set(wqe_datagram_segment::hop_limit, 1);
  to.set(wqe_datagram_segment::rlid_udp_sport, 0xc000);
  std::ranges::copy(mac.bytes, to.sub(wqe_datagram_segment::rmac).begin());
  std::ranges::copy(gid.bytes, to.sub(wqe_datagram_segment::rgid_rip).begin());
  const util::MutableView<data_segment_pointer> piece(
      at.subspan(wqe_ctrl_segment::kSize + wqe_datagram_segment::kSize));
  piece.set(data_segment_pointer::byte_count, length);
  piece.set(data_segment_pointer::l_key, lkey);
  piece.set(data_segment_pointer::local_address, life_.loop().iova());
  posted_ = static_cast<std::uint16_t>(posted_ + kBlocksEach);
}

void DatagramQp::ring() {
  claim_sends(posted_);
  const auto last = static_cast<std::uint16_t>(posted_ - kBlocksEach);
  life_.write64(Life::uar(life_.loop().hca().uar()) + uar_page::db_blueflame_buffer0_even.kOffset,
                std::uint64_t{last} << 40 | std::uint64_t{0xa} << 32 | qpn_ << 8 | 5);
}

void DatagramQp::receive(unsigned count) {
  received_ = static_cast<std::uint16_t>(received_ + count);
  std::atomic_thread_fence(std::memory_order_release);
  record().set(doorbell_record::receive_counter, received_);
}

void DatagramQp::claim_sends(std::uint16_t counter) const {
  std::atomic_thread_fence(std::memory_order_release);
  record().set(doorbell_record::send_counter, counter);
  std::atomic_thread_fence(std::memory_order_release);
}

bool DatagramQp::from_error_to_rts() {
  Request<sqerr2rts_qp_in> in(command_opcode::SQERR2RTS_QP);
  in.set(sqerr2rts_qp_in::qpn, qpn_);
  describe(in.sub(sqerr2rts_qp_in::qpc), life_);
  return life_.loop().hca().commands().run(in).has_value();
}

void DatagramQp::restart() {
  Request<qp_2rst_in> in(command_opcode::QP_2RST);
  in.set(qp_2rst_in::qpn, qpn_);
  must(life_.loop().hca().commands().run(in));
  posted_ = received_ = 0;
  std::ranges::fill(record().bytes().first<doorbell_record::kSize>(), std::byte{0});
  to_rts();
}

void DatagramQp::attach_to(const driver::Gid& group) {
  Request<attach_to_mcg_in> in(command_opcode::ATTACH_TO_MCG);
  in.set(attach_to_mcg_in::qpn, qpn_);
  std::ranges::copy(group.bytes, in.sub(attach_to_mcg_in::multicast_gid).begin());
  must(life_.loop().hca().commands().run(in));
}

}  // namespace softhca::guest
