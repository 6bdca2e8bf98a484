// Arbitrary send WQEs, frames and commands to the Ethernet side of a ConnectX that is set up as a
// driver does it: an SQ, RQs behind direct and hashing TIRs, two flow tables.
//
// A step of the input is one byte for what happens and a few for how. Commands are those of the
// set-up with a few words changed, so that they get past the first check.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include "connectx/base/resources.h"
#include "connectx/command/command_table.h"
#include "connectx/device.h"
#include "connectx/event/completion_queue.h"
#include "connectx/memory/memory_keys.h"
#include "fabric/port.h"
#include "pcie/bus_master.h"
#include "spec/connectx/flow_table.h"
#include "spec/connectx/opcodes.h"
#include "spec/connectx/raw_queues.h"
#include "spec/connectx/wqe.h"
#include "util/endian.h"
#include "util/log.h"

namespace softhca::connectx {
namespace {

using namespace spec::connectx;
using Bytes = std::vector<std::byte>;
using Op = command_opcode;

constexpr std::uint64_t kMemoryAt = 0x100000;
constexpr std::size_t kMemorySize = 1 << 17;
constexpr std::uint32_t kKey = 0x5500;

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : at_(data), end_(data + size) {}
  bool empty() const { return at_ == end_; }
  template <class T>
  T take() {
    T value{};
    const auto n = std::min<std::size_t>(sizeof(T), static_cast<std::size_t>(end_ - at_));
    if (n != 0) std::memcpy(&value, at_, n);
    at_ += n;
    return value;
  }
  std::uint32_t below(std::uint32_t n) { return take<std::uint16_t>() % n; }
  Bytes bytes(std::size_t most) {
    Bytes out(std::min<std::size_t>(most, static_cast<std::size_t>(end_ - at_)));
    if (!out.empty()) std::memcpy(out.data(), at_, out.size());
    at_ += out.size();
    return out;
  }

 private:
  const std::uint8_t* at_;
  const std::uint8_t* end_;
};

class Sink final : public fabric::Port {
 public:
  std::uint64_t transmit(const wire::Frame& frame) override {
    // Reads all that the frame refers to, under the sanitizer's eyes.
    Bytes bytes(frame.size());
    frame.copy_to(bytes);
    if (bytes.size() < 60) __builtin_trap();
    return 0;
  }
  std::uint64_t loop_back(const wire::Frame& frame, std::uint32_t) override {
    return transmit(frame);
  }
  std::uint64_t released() const override { return 0; }
  void set_receiver(fabric::Receiver* to) override { receiver = to; }
  bool link_up() const override { return true; }
  fabric::Receiver* receiver = nullptr;
};

class World {
 public:
  World() : memory_(kMemorySize), device_(options(), port_) {
    map();
    pcie::set_bus_master(device_, true);
    pd_ = device_.resources().pds().allocate()->value();
    domain_ = device_.resources().transport_domains().allocate()->value();
    uar_ = device_.resources().uars().allocate()->value();
    rdma::MemoryKey::Attributes key;
    key.key = rdma::MKey(kKey);
    key.pd = rdma::Pd(pd_);
    key.access = rdma::kLocalRead | rdma::kLocalWrite;
    key.whole_space = true;
    device_.memory_keys().table().insert(key);
    make_queues();
    make_receive_path();
  }

  void step(Input& in) {
    switch (in.take<std::uint8_t>() % 8) {
      case 0:
      case 1:
        return post_send(in);
      case 2:
        return post_receive(in);
      case 3:
        return arrive(in.bytes(in.below(2000)));
      case 4:
        return arrive_made(in);
      case 5:
        return command(in);
      case 6:
        now_ += std::chrono::milliseconds(in.below(5));
        return run();
      case 7:
        return disturb(in);
    }
  }

 private:
  struct Recorded {
    Op opcode;
    Bytes in;
    std::size_t out_size;
  };

  DeviceOptions options() {
    DeviceOptions result;
    result.mac = rdma::Mac::from_u64(0x020000000001);
    result.node_guid = 1;
    result.clock = [this] { return now_; };
    return result;
  }
  void map() {
    mapped_ = device_.dma()
                  .map(kMemoryAt, memory_.size(), memory_.data(), pcie::DmaAccess::kReadWrite)
                  .has_value();
  }
  std::uint64_t allocate(std::size_t size) {
    const auto result = kMemoryAt + next_;
    next_ += (size + 4095) / 4096 * 4096;
    return result;
  }
  std::byte* at(std::uint64_t iova) { return memory_.data() + (iova - kMemoryAt); }

  Bytes execute(Op opcode, std::uint16_t op_mod, const Bytes& in, std::size_t out_size) {
    const auto* spec = find_command(static_cast<std::uint16_t>(opcode));
    Bytes out(out_size);
    (void)spec->handler(device_, {static_cast<std::uint16_t>(opcode), op_mod, 0, in, out});
    return out;
  }
  /// Executes a command, and keeps it to be executed again with changes.
  template <class Out, class In>
  Bytes set_up(Op opcode, const std::function<void(util::MutableView<In>)>& fill,
               const Bytes& tail = {}) {
    Bytes in(In::kSize);
    fill(util::MutableView<In>(in));
    in.insert(in.end(), tail.begin(), tail.end());
    recorded_.push_back({opcode, in, Out::kSize + 16});
    return execute(opcode, 0, in, Out::kSize + 16);
  }
  template <class Out, class In, class Field>
  void keep(Op opcode, Field field, std::uint32_t number) {
    Bytes in(In::kSize);
    util::MutableView<In>(in).set(field, number);
    recorded_.push_back({opcode, in, Out::kSize + 16});
  }
  static std::uint32_t number_of(const Bytes& out) { return util::load_be32(out.data() + 8); }

  void fill_wq(util::MutableView<wq> view, std::uint64_t record, unsigned log_stride) {
    view.set(wq::wq_type, 1);
    view.set(wq::pd, pd_);
    view.set(wq::uar_page, uar_);
    view.set(wq::dbr_addr, record);
    view.set(wq::log_wq_stride, log_stride);
    view.set(wq::log_wq_sz, 4);
  }
  static Bytes pas(std::uint64_t buffer) {
    Bytes list(8);
    util::store_be64(list.data(), buffer);
    return list;
  }
  std::uint32_t create_cq() {
    CompletionQueue::Attributes attributes;
    attributes.log_size = 6;
    attributes.overrun_ignore = true;
    attributes.queue = *device_.queue_mapper().map(
        {.size = 4096, .pas = pas(allocate(4096)), .dbr_addr = allocate(8)}, "");
    return device_.completion_queues().create(std::move(attributes))->cqn().value();
  }

  void make_queues() {
    cqn_ = create_cq();
    const auto tisn = number_of(set_up<create_tis_out, create_tis_in>(Op::CREATE_TIS, [&](auto in) {
      in.sub(create_tis_in::tis_context).set(tis_context::transport_domain, domain_);
    }));
    sq_ = allocate(4096);
    sq_record_ = allocate(8);
    sqn_ = number_of(set_up<create_sq_out, create_sq_in>(
        Op::CREATE_SQ,
        [&](auto in) {
          const auto context = in.sub(create_sq_in::sq_context);
          context.set(sq_context::cqn, cqn_);
          context.set(sq_context::tis_lst_sz, 1);
          context.set(sq_context::tis_num, tisn);
          context.set(sq_context::flush_in_error_en, 1);
          fill_wq(context.sub(sq_context::wq), sq_record_, 6);
        },
        pas(sq_)));
    for (const auto [from, to] : {std::pair{0, 1}, {1, 3}, {3, 0}, {0, 1}}) {
      set_up<modify_sq_out, modify_sq_in>(Op::MODIFY_SQ, [&, f = from, t = to](auto in) {
        in.set(modify_sq_in::sqn, sqn_);
        in.set(modify_sq_in::sq_state, static_cast<std::uint32_t>(f));
        in.sub(modify_sq_in::sq_context).set(sq_context::state, static_cast<std::uint32_t>(t));
      });
    }
    rq_ = allocate(4096);
    rq_record_ = allocate(8);
    rqn_ = number_of(set_up<create_rq_out, create_rq_in>(
        Op::CREATE_RQ,
        [&](auto in) {
          const auto context = in.sub(create_rq_in::rq_context);
          context.set(rq_context::cqn, cqn_);
          context.set(rq_context::flush_in_error_en, 1);
          fill_wq(context.sub(rq_context::wq), rq_record_, 6);
        },
        pas(rq_)));
    for (const auto [from, to] : {std::pair{0, 1}, {1, 3}, {3, 0}, {0, 1}}) {
      set_up<modify_rq_out, modify_rq_in>(Op::MODIFY_RQ, [&, f = from, t = to](auto in) {
        in.set(modify_rq_in::rqn, rqn_);
        in.set(modify_rq_in::rq_state, static_cast<std::uint32_t>(f));
        in.sub(modify_rq_in::rq_context).set(rq_context::state, static_cast<std::uint32_t>(t));
      });
    }
    keep<query_sq_out, query_sq_in>(Op::QUERY_SQ, query_sq_in::sqn, sqn_);
    keep<query_rq_out, query_rq_in>(Op::QUERY_RQ, query_rq_in::rqn, rqn_);
    keep<destroy_sq_out, destroy_sq_in>(Op::DESTROY_SQ, destroy_sq_in::sqn, sqn_);
    keep<destroy_rq_out, destroy_rq_in>(Op::DESTROY_RQ, destroy_rq_in::rqn, rqn_);
    keep<destroy_tis_out, destroy_tis_in>(Op::DESTROY_TIS, destroy_tis_in::tisn, tisn);
  }

  void make_receive_path() {
    Bytes list(16);
    for (std::size_t i = 0; i < 4; ++i) util::store_be32(list.data() + 4 * i, rqn_);
    const auto rqtn = number_of(set_up<create_rqt_out, create_rqt_in>(
        Op::CREATE_RQT,
        [&](auto in) {
          const auto context = in.sub(create_rqt_in::rqt_context);
          context.set(rqt_context::rqt_max_size, 4);
          context.set(rqt_context::rqt_actual_size, 4);
        },
        list));
    const auto tirn = number_of(set_up<create_tir_out, create_tir_in>(Op::CREATE_TIR, [&](auto in) {
      const auto context = in.sub(create_tir_in::tir_context);
      context.set(tir_context::disp_type, 1);
      context.set(tir_context::indirect_table, rqtn);
      context.set(tir_context::rx_hash_fn, 2);
      context.set(tir_context::transport_domain, domain_);
      context.sub(tir_context::rx_hash_field_selector_outer)
          .set(rx_hash_field_select::selected_fields, 15);
    }));
    const auto last = make_table(20, {2u << 24 | tirn});
    const auto first = make_table(10, {1u << 24 | last, 2u << 24 | tirn});
    set_up<set_flow_table_root_out, set_flow_table_root_in>(
        Op::SET_FLOW_TABLE_ROOT, [&](auto in) { in.set(set_flow_table_root_in::table_id, first); });
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

  /// A table with an empty group for the destination address, and a flow for everything behind it.
  std::uint32_t make_table(std::uint32_t level, const std::vector<std::uint32_t>& destinations) {
    const auto id = number_of(
        set_up<create_flow_table_out, create_flow_table_in>(Op::CREATE_FLOW_TABLE, [&](auto in) {
          const auto context = in.sub(create_flow_table_in::flow_table_context);
          context.set(flow_table_context::level, level);
          context.set(flow_table_context::log_size, 4);
        }));
    using Group = create_flow_group_in;
    set_up<create_flow_group_out, Group>(Op::CREATE_FLOW_GROUP, [&](auto in) {
      in.set(Group::table_id, id);
      in.set(Group::end_flow_index, 3);
      in.set(Group::match_criteria_enable, 1);
      std::ranges::fill(in.sub(Group::match_criteria)
                            .sub(fte_match_param::outer_headers)
                            .sub(fte_match_set_lyr_2_4::dmac),
                        std::byte{0xFF});
    });
    const auto group =
        number_of(set_up<create_flow_group_out, Group>(Op::CREATE_FLOW_GROUP, [&](auto in) {
          in.set(Group::table_id, id);
          in.set(Group::start_flow_index, 4);
          in.set(Group::end_flow_index, 7);
        }));
    Bytes list(8 * destinations.size());
    for (std::size_t i = 0; i < destinations.size(); ++i) {
      util::store_be32(list.data() + 8 * i, destinations[i]);
    }
    using Entry = set_flow_table_entry_in;
    set_up<set_flow_table_entry_out, Entry>(
        Op::SET_FLOW_TABLE_ENTRY,
        [&](auto in) {
          in.set(Entry::table_id, id);
          in.set(Entry::flow_index, 4);
          const auto context = in.sub(Entry::flow_context);
          context.set(flow_context::group_id, group);
          context.set(flow_context::action, 4);
          context.set(flow_context::destination_list_size,
                      static_cast<std::uint32_t>(destinations.size()));
        },
        list);
    return id;
  }

  // Steps ----------------------------------------------------------------------------------------

  void run() {
    for (int i = 0; i < 20 && device_.run(now_) <= now_; ++i) {
    }
  }
  void post_send(Input& in) {
    auto wqe = in.bytes(16 + in.below(300));
    wqe.resize(std::max<std::size_t>(64, (wqe.size() + 63) / 64 * 64));
    const util::MutableView<wqe_ctrl_segment> control(wqe);
    const auto how = in.take<std::uint8_t>();
    if (how % 4 != 0) {
      constexpr std::array kOpcodes{wqe_opcode::SEND, wqe_opcode::LSO, wqe_opcode::NOP};
      control.set(wqe_ctrl_segment::opcode, static_cast<std::uint8_t>(kOpcodes[how / 4 % 3]));
      control.set(wqe_ctrl_segment::ds, 2 + in.below(14));
    }
    if (how % 8 == 5) {
      // A data segment that can be read, where one may stand.
      const auto place = 32 + 16 * in.below(2);
      util::store_be32(wqe.data() + place, in.below(3000));
      util::store_be32(wqe.data() + place + 4, kKey);
      util::store_be64(wqe.data() + place + 8, kMemoryAt + in.below(60000));
    }
    for (std::size_t i = 0; i < wqe.size(); ++i) {
      at(sq_)[(posted_ * 64u + i) % 1024] = wqe[i];
    }
    posted_ = static_cast<std::uint16_t>(posted_ + wqe.size() / 64);
    util::store_be32(at(sq_record_) + 4, posted_);
    std::array<std::byte, 8> doorbell{};
    util::store_be32(doorbell.data() + 4, sqn_ << 8);
    device_.write_bar(0, uar_ * kUarPageSize + 0x800, doorbell);
    run();
  }
  void post_receive(Input& in) {
    auto* wqe = at(rq_) + received_ % 16 * 64;
    const auto raw = in.bytes(64);
    std::ranges::copy(raw, wqe);
    if (in.take<std::uint8_t>() % 4 != 0) {
      util::store_be32(wqe, in.below(4000));
      util::store_be32(wqe + 4, kKey);
      util::store_be64(wqe + 8, kMemoryAt + 65536 + in.below(60000));
    }
    util::store_be32(at(rq_record_), ++received_);
  }
  void arrive(const Bytes& frame) { port_.receiver->handle_frame(wire::Frame::from_bytes(frame)); }
  /// A TCP frame over IPv4 with some bytes changed.
  void arrive_made(Input& in) {
    Bytes frame(60 + in.below(1500));
    constexpr std::array<unsigned char, 24> kHeader{2,    0, 0,    0, 0, 1, 2, 0, 0,    0, 0,  2,
                                                    0x08, 0, 0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, 6};
    std::memcpy(frame.data(), kHeader.data(), kHeader.size());
    util::store_be16(frame.data() + 16, static_cast<std::uint16_t>(frame.size() - 14));
    frame[46] = std::byte{0x50};
    for (auto n = in.take<std::uint8_t>() % 8; n > 0; --n) {
      const auto place = in.below(60);
      frame[place] = in.take<std::byte>();
    }
    arrive(frame);
  }
  void command(Input& in) {
    auto change = recorded_[in.below(static_cast<std::uint32_t>(recorded_.size()))];
    for (auto n = in.take<std::uint8_t>() % 4; n > 0; --n) {
      const auto place = in.below(static_cast<std::uint32_t>(change.in.size() / 4)) * 4;
      util::store_be32(change.in.data() + place, in.take<std::uint32_t>());
    }
    execute(change.opcode, in.take<std::uint8_t>() % 3, change.in, change.out_size);
    run();
  }
  void disturb(Input& in) {
    const auto what = in.take<std::uint8_t>() % 5;
    if (what == 1) return pcie::set_bus_master(device_, in.take<std::uint8_t>() & 1);
    if (what == 0) {
      if (mapped_) {
        (void)device_.dma().unmap(kMemoryAt, memory_.size());
        mapped_ = false;
      } else {
        map();
      }
      return;
    }
    // The guest writes over what the device uses.
    const auto words = in.bytes(16);
    const auto place = in.below(static_cast<std::uint32_t>(next_ - words.size()));
    std::ranges::copy(words, memory_.data() + place);
  }

  Bytes memory_;
  std::size_t next_ = 0;
  bool mapped_ = false;
  util::Time now_{std::chrono::hours(1)};
  Sink port_;
  Device device_;
  std::vector<Recorded> recorded_;
  std::uint32_t pd_ = 0, domain_ = 0, uar_ = 0, cqn_ = 0, sqn_ = 0, rqn_ = 0;
  std::uint64_t sq_ = 0, sq_record_ = 0, rq_ = 0, rq_record_ = 0;
  std::uint16_t posted_ = 0;
  std::uint16_t received_ = 0;
};

}  // namespace
}  // namespace softhca::connectx

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const bool quiet = [] {
    softhca::util::set_log_sink([](softhca::util::LogLevel, std::string_view) {});
    return true;
  }();
  (void)quiet;
  softhca::connectx::World world;
  softhca::connectx::Input in(data, size);
  for (int i = 0; i < 200 && !in.empty(); ++i) world.step(in);
  return 0;
}
