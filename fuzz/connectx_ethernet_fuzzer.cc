// Arbitrary send WQEs, frames and commands for the Ethernet side of a ConnectX. A driver's setup
// comes first: an SQ, RQs behind direct and hashing TIRs, two flow tables.
//
// A step of the input is one byte for the action and a few for its operands. Commands are those of
// the setup with a few words changed, so that they pass the first check.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "card.h"
#include "connectx/ethernet/ethernet_host.h"
#include "connectx_world.h"
#include "pcie/bus_master.h"
#include "util/endian.h"

namespace softhca::connectx::test {
namespace {

using namespace spec::connectx;
using fuzz::check;
using fuzz::Script;
using Op = command_opcode;
using Destinations = std::vector<EthernetHost::Destination>;

constexpr std::size_t kMemorySize = 1 << 18;

class World {
 public:
  World() {
    host_.turn = fuzz::run_turn;
    host_.on_execute = [this](std::span<const std::byte> in, std::size_t out_size) {
      recorded_.push_back({Bytes(in.begin(), in.end()), out_size});
    };
    host_.multi_packet_sends = fuzz::kMultiPacketSends;
    make_queues();
    make_receive_path();
    host_.on_execute = {};
  }

  void step(Script& in) {
    act(in);
    host_.return_looped();
    host_.run();
    for (const auto& frame : host_.port.sent) check(frame.size() >= 60);
    host_.port.sent.clear();
    while (!host_.poll(cqn_).empty()) {
    }
  }

 private:
  struct Recorded {
    Bytes in;
    std::size_t out_size;
  };

  /// A command that the setup did not send, with changes.
  template <class Out, class In, class Field>
  void keep(Op opcode, Field field, std::uint32_t number) {
    Input<In> in(opcode);
    in->set(field, number);
    recorded_.push_back({in.bytes(), Out::kSize + 16});
  }

  void make_queues() {
    using Sq = sq_state;
    using Rq = rq_state;
    cqn_ = host_.create_cq();
    sqn_ = host_.create_sq(cqn_);
    for (const auto& [from, to] :
         {std::pair{Sq::RDY, Sq::ERR}, {Sq::ERR, Sq::RST}, {Sq::RST, Sq::RDY}}) {
      check(host_.modify_sq(sqn_, from, to).ok());
    }
    rqn_ = host_.create_rq(cqn_, 4, 6);
    for (const auto& [from, to] :
         {std::pair{Rq::RDY, Rq::ERR}, {Rq::ERR, Rq::RST}, {Rq::RST, Rq::RDY}}) {
      check(host_.modify_rq(rqn_, from, to).ok());
    }
    (void)host_.sq_state(sqn_);
    (void)host_.received(rqn_);
    keep<destroy_sq_out, destroy_sq_in>(Op::DESTROY_SQ, destroy_sq_in::sqn, sqn_);
    keep<destroy_rq_out, destroy_rq_in>(Op::DESTROY_RQ, destroy_rq_in::rqn, rqn_);
    keep<destroy_tis_out, destroy_tis_in>(Op::DESTROY_TIS, destroy_tis_in::tisn,
                                          host_.create_tis());
  }

  void make_receive_path() {
    const auto rqtn = host_.create_rqt({rqn_, rqn_, rqn_, rqn_});
    const auto made = host_.call<create_tir_out, create_tir_in>(Op::CREATE_TIR, [&](auto in) {
      const auto context = in.sub(create_tir_in::tir_context);
      context.set(tir_context::disp_type, 1);
      context.set(tir_context::indirect_table, rqtn);
      context.set(tir_context::rx_hash_fn, 2);
      context.set(tir_context::transport_domain, host_.transport_domain);
      context.sub(tir_context::rx_hash_field_selector_outer)
          .set(rx_hash_field_select::selected_fields, 15);
    });
    check(made.ok());
    const auto tirn = made.as<create_tir_out>().get(create_tir_out::tirn);
    const EthernetHost::Destination tir{destination_type::TIR, tirn};
    const auto last = make_table(20, {tir});
    const auto first = make_table(10, {{destination_type::FLOW_TABLE, last}, tir});
    host_.set_root(first);
    keep<destroy_tir_out, destroy_tir_in>(Op::DESTROY_TIR, destroy_tir_in::tirn, tirn);
    keep<query_tir_out, query_tir_in>(Op::QUERY_TIR, query_tir_in::tirn, tirn);
    keep<modify_tir_out, modify_tir_in>(Op::MODIFY_TIR, modify_tir_in::tirn, tirn);
    keep<modify_rqt_out, modify_rqt_in>(Op::MODIFY_RQT, modify_rqt_in::rqtn, rqtn);
    keep<query_rqt_out, query_rqt_in>(Op::QUERY_RQT, query_rqt_in::rqtn, rqtn);
    keep<destroy_rqt_out, destroy_rqt_in>(Op::DESTROY_RQT, destroy_rqt_in::rqtn, rqtn);
    keep<modify_flow_table_out, modify_flow_table_in>(Op::MODIFY_FLOW_TABLE,
                                                      modify_flow_table_in::table_id, first);
    keep<destroy_flow_table_out, destroy_flow_table_in>(Op::DESTROY_FLOW_TABLE,
                                                        destroy_flow_table_in::table_id, last);
    keep<destroy_flow_group_out, destroy_flow_group_in>(Op::DESTROY_FLOW_GROUP,
                                                        destroy_flow_group_in::table_id, last);
    keep<query_flow_group_out, query_flow_group_in>(Op::QUERY_FLOW_GROUP,
                                                    query_flow_group_in::table_id, last);
    keep<delete_flow_table_entry_out, delete_flow_table_entry_in>(
        Op::DELETE_FLOW_TABLE_ENTRY, delete_flow_table_entry_in::table_id, last);
    keep<query_flow_table_entry_out, query_flow_table_entry_in>(
        Op::QUERY_FLOW_TABLE_ENTRY, query_flow_table_entry_in::table_id, first);
  }

  /// A table with an empty group for the destination address, and a flow for all other frames.
  std::uint32_t make_table(std::uint8_t level, const Destinations& destinations) {
    const auto id = host_.create_table(level, 4);
    (void)host_.create_group(id, 0, 3, [](auto criteria) {
      std::ranges::fill(
          criteria.sub(fte_match_param::outer_headers).sub(fte_match_set_lyr_2_4::dmac),
          std::byte{0xFF});
    });
    check(host_.set_flow(id, host_.create_group(id, 4, 7), 4, destinations).ok());
    return id;
  }

  // Steps ----------------------------------------------------------------------------------------

  void act(Script& in) {
    switch (in.byte() % 8) {
      case 0:
      case 1:
        return post_send(in);
      case 2:
        return post_receive(in);
      case 3:
        return host_.arrive(in.take(in.below(2000)));
      case 4:
        return arrive_made(in);
      case 5:
        return command(in);
      case 6:
        return host_.advance(std::chrono::milliseconds(in.below(5)));
      case 7:
        return disturb(in);
    }
  }
  void post_send(Script& in) {
    const auto taken = in.take(16 + in.below(300));
    Bytes wqe(std::max<std::size_t>(64, (taken.size() + 63) / 64 * 64));
    std::ranges::copy(taken, wqe.begin());
    const util::MutableView<wqe_ctrl_segment> control(wqe);
    const auto how = in.byte();
    if (how % 4 != 0) {
      constexpr std::array kOpcodes{wqe_opcode::SEND, wqe_opcode::LSO, wqe_opcode::NOP};
      control.set(wqe_ctrl_segment::opcode, static_cast<std::uint8_t>(kOpcodes[how / 4 % 3]));
      control.set(wqe_ctrl_segment::wqe_index, host_.posted(sqn_));
      control.set(wqe_ctrl_segment::sq_number, sqn_);
      control.set(wqe_ctrl_segment::ds, 2 + in.below(14));
    }
    if (how % 8 == 5) {
      // A readable data segment, at a place where one may stand.
      const auto place = 32 + 16 * in.below(2);
      util::store_be32(wqe.data() + place, in.below(3000));
      util::store_be32(wqe.data() + place + 4, EthernetHost::kKey);
      util::store_be64(wqe.data() + place + 8, EthernetHost::kMemoryAt + in.below(60000));
    }
    host_.post_send(sqn_, wqe);
  }
  void post_receive(Script& in) {
    const auto entry = host_.posted(rqn_) % 16u;
    const auto length = in.below(4000);
    host_.post_receive_list(rqn_, {{EthernetHost::kMemoryAt + 65536 + in.below(60000), length}});
    if (in.byte() % 4 == 0) std::ranges::copy(in.take(64), host_.receive_wqe(rqn_, entry));
  }
  /// A TCP frame over IPv4 with some bytes changed.
  void arrive_made(Script& in) {
    Bytes frame(60 + in.below(1500));
    constexpr std::array<unsigned char, 24> kHeader{2,    0, 0,    0, 0, 1, 2, 0, 0,    0, 0,  2,
                                                    0x08, 0, 0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, 6};
    std::memcpy(frame.data(), kHeader.data(), kHeader.size());
    util::store_be16(frame.data() + 16, static_cast<std::uint16_t>(frame.size() - 14));
    frame[46] = std::byte{0x50};
    for (auto n = in.byte() % 8; n > 0; --n) {
      const auto place = in.below(60);
      frame[place] = std::byte{in.byte()};
    }
    arrive(frame);
  }
  void arrive(std::span<const std::byte> frame) {
    const fuzz::Turn turn;
    host_.arrive(frame);
  }
  void command(Script& in) {
    auto change = recorded_[in.below(static_cast<std::uint32_t>(recorded_.size()))];
    for (auto n = in.byte() % 4; n > 0; --n) {
      const auto place = in.below(static_cast<std::uint32_t>(change.in.size() / 4)) * 4;
      util::store_be32(change.in.data() + place, in.dword());
    }
    using Header = command_input_header;
    util::MutableView<Header>(change.in).set(Header::op_mod, in.byte() % 3u);
    (void)host_.execute(change.in, change.out_size);
  }
  void disturb(Script& in) {
    const auto what = in.byte() % 5;
    if (what == 1) return pcie::set_bus_master(host_.device, (in.byte() & 1) != 0);
    if (what == 0) {
      mapped_ ? host_.unmap() : host_.map();
      mapped_ = !mapped_;
      return;
    }
    // The guest overwrites memory that the device uses.
    const auto words = in.take(16);
    std::ranges::copy(words, host_.at(EthernetHost::kMemoryAt + in.below(1 << 16)));
  }

  EthernetHost host_{fuzz::card({.memory_size = kMemorySize})};
  std::vector<Recorded> recorded_;
  bool mapped_ = true;
  std::uint32_t cqn_ = 0, sqn_ = 0, rqn_ = 0;
};

}  // namespace
}  // namespace softhca::connectx::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  softhca::fuzz::prepare_connectx();
  return softhca::fuzz::run_input([&] {
    softhca::fuzz::Script script(data, size);
    softhca::connectx::test::World world;
    for (int i = 0; i < 200 && !script.empty(); ++i) world.step(script);
  });
}
