// A device and the memory of its host, for tests of the Ethernet side: commands are handed to their
// handlers, doorbells are rung in BAR0, frames that the device sends are kept.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "connectx/command/command_table.h"
#include "connectx/device.h"
#include "connectx/event/completion_queue.h"
#include "connectx/steering/flow_table.h"
#include "fabric/port.h"
#include "spec/connectx/cqe.h"
#include "spec/connectx/flow_table.h"
#include "spec/connectx/opcodes.h"
#include "spec/connectx/raw_queues.h"
#include "spec/connectx/wqe.h"
#include "util/field.h"

namespace softhca::connectx::test {

using Bytes = std::vector<std::byte>;
using Opcode = spec::connectx::command_opcode;

Bytes bytes_of(const wire::Frame& frame);

class RecordingPort final : public fabric::Port {
 public:
  std::uint64_t transmit(const wire::Frame& frame) override {
    sent.push_back(bytes_of(frame));
    return 0;
  }
  std::uint64_t loop_back(const wire::Frame& frame, std::uint32_t mark) override {
    looped.emplace_back(bytes_of(frame), mark);
    return 0;
  }
  std::uint64_t released() const override { return 0; }
  void set_receiver(fabric::Receiver* to) override { receiver = to; }
  bool link_up() const override { return up; }

  bool up = true;
  std::vector<Bytes> sent;
  std::vector<std::pair<Bytes, std::uint32_t>> looped;  ///< not yet returned, with their marks
  fabric::Receiver* receiver = nullptr;
};

/// What a command answered.
struct Answer {
  Status status = Status::OK;
  std::string_view reason;
  Bytes out;

  bool ok() const { return status == Status::OK; }
  template <class Layout>
  util::View<Layout> as() const {
    return util::View<Layout>(out);
  }
};

/// A send WQE under construction.
class Wqe {
 public:
  Wqe(spec::connectx::wqe_opcode opcode, std::uint32_t sqn, std::uint16_t index);
  /// Eth segment; `header` goes inline.
  Wqe& eth(std::span<const std::byte> header, bool checksums = false, std::uint16_t mss = 0);
  Wqe& insert_vlan(std::uint16_t tci);
  Wqe& pointer(std::uint32_t key, std::uint64_t address, std::uint32_t size);
  Wqe& inline_data(std::span<const std::byte> data);
  Wqe& unsignaled();
  /// With DS as it must be.
  Bytes finish();

 private:
  Bytes bytes_;
};

class EthernetHost {
 public:
  static constexpr std::uint64_t kMemoryAt = 0x1'0000'0000;
  static constexpr std::uint64_t kMemorySize = 8u << 20;
  static constexpr std::uint32_t kKey = 0x5500;
  static constexpr std::uint64_t kMac = 0x0200000000AA;  ///< from which make_frame() sends

  EthernetHost();

  template <class In>
  using Fill = std::function<void(util::MutableView<In>)>;
  template <class Out, class In>
  Answer call(Opcode opcode, const Fill<In>& fill, std::span<const std::byte> tail = {},
              std::uint16_t op_mod = 0, std::size_t out_tail = 0) {
    Bytes in(In::kSize);
    fill(util::MutableView<In>(in));
    in.insert(in.end(), tail.begin(), tail.end());
    return execute(opcode, op_mod, in, Out::kSize + out_tail);
  }
  Answer execute(Opcode opcode, std::uint16_t op_mod, std::span<const std::byte> in,
                 std::size_t out_size);

  // Memory
  std::uint64_t allocate(std::size_t size);
  std::byte* at(std::uint64_t iova) { return memory_.data() + (iova - kMemoryAt); }
  Bytes read(std::uint64_t iova, std::size_t size) { return {at(iova), at(iova) + size}; }

  // Objects as mlx5e makes them. Each expects success.
  std::uint32_t create_cq(unsigned log_size = 6);
  std::uint32_t create_tis();
  std::uint32_t create_sq(std::uint32_t cqn, unsigned log_size = 4, bool ready = true,
                          bool with_tis = true);
  std::uint32_t create_rq(
      std::uint32_t cqn, unsigned log_size = 3, unsigned log_stride = 5, bool ready = true,
      spec::connectx::end_padding_mode padding = spec::connectx::end_padding_mode::END_PAD_NONE);
  std::uint32_t create_direct_tir(std::uint32_t rqn);
  std::uint32_t create_rqt(const std::vector<std::uint32_t>& rqns);
  std::uint32_t create_table(std::uint8_t level, unsigned log_size,
                             std::uint32_t miss = 0);  ///< 0: default action
  std::uint32_t create_group(std::uint32_t table, std::uint32_t first, std::uint32_t last,
                             const Fill<spec::connectx::fte_match_param>& criteria = {});
  struct Destination {
    spec::connectx::destination_type type;
    std::uint32_t id;
  };
  Answer set_flow(std::uint32_t table, std::uint32_t group, std::uint32_t index,
                  const std::vector<Destination>& destinations,
                  const Fill<spec::connectx::fte_match_param>& value = {},
                  std::uint32_t flow_tag = 0);
  void set_root(std::uint32_t table);
  /// Everything goes to `tirn`.
  void steer_all_to(std::uint32_t tirn);

  Answer modify_sq(std::uint32_t sqn, spec::connectx::sq_state from, spec::connectx::sq_state to);
  Answer modify_rq(std::uint32_t rqn, spec::connectx::rq_state from, spec::connectx::rq_state to);
  spec::connectx::sq_state sq_state(std::uint32_t sqn);

  // Data path
  /// Writes a WQE behind those posted, updates the doorbell record, rings, runs.
  void post_send(std::uint32_t sqn, std::span<const std::byte> wqe);
  void write_wqe(std::uint32_t sqn, std::span<const std::byte> wqe);
  void ring(std::uint32_t sqn);
  /// Posts a receive WQE with one buffer of `size` bytes; returns the buffer.
  std::uint64_t post_receive(std::uint32_t rqn, std::uint32_t size);
  void post_receive_list(std::uint32_t rqn,
                         const std::vector<std::pair<std::uint64_t, std::uint32_t>>& list);
  /// The guest changes a WQE that is posted.
  void overwrite_key(std::uint32_t rqn, unsigned entry, std::uint32_t key);
  void arrive(std::span<const std::byte> frame);
  /// Returns what the device has looped back to itself, as the fabric does.
  void return_looped();
  void run();
  /// Runs after everything that is due later has become due.
  void run_later();
  /// How many WQEs an RQ has consumed.
  std::uint32_t received(std::uint32_t rqn);
  /// The next CQE of a CQ, or an empty vector.
  Bytes poll(std::uint32_t cqn);
  std::uint16_t posted(std::uint32_t number) { return rings_.at(number).posted; }
  /// Zero counters and record, as a driver does when it takes a queue back to RST.
  void reset_ring(std::uint32_t number);

  RecordingPort port;
  Device device;
  std::uint32_t pd = 0;
  std::uint32_t transport_domain = 0;
  std::uint32_t uar = 0;

 private:
  struct Ring {
    std::uint64_t buffer = 0;
    std::uint64_t record = 0;
    unsigned log_size = 0;
    unsigned log_stride = 6;
    std::uint16_t posted = 0;
    std::uint32_t consumed = 0;
  };
  Ring make_ring(unsigned log_size, unsigned log_stride);
  void fill_wq(util::MutableView<spec::connectx::wq> wq, const Ring& ring) const;
  Bytes pas_of(const Ring& ring) const;

  Bytes memory_;
  std::uint64_t next_ = kMemoryAt;
  util::Time now_{std::chrono::hours(1)};
  std::vector<Ring> rings_;  ///< SQs and RQs by number
  std::vector<Ring> cqs_;    ///< by CQN
};

// Frames -----------------------------------------------------------------------------------------

struct FrameSpec {
  std::uint64_t destination = 0x020000000001;
  std::uint64_t source = EthernetHost::kMac;
  bool ipv6 = false;
  bool udp = false;
  std::uint16_t source_port = 1000;
  std::uint16_t destination_port = 2000;
  std::uint32_t source_ip = 0x0A000001;
  std::uint32_t destination_ip = 0x0A000002;
  std::uint32_t tcp_sequence = 100;
  int vlan_tci = -1;
  std::size_t payload = 100;
};
/// Ethernet, IP, TCP or UDP, without checksums, and `payload` bytes of a pattern.
Bytes make_frame(const FrameSpec& spec);
std::size_t header_size(const FrameSpec& spec);
/// Independent of the device's code: word by word (RFC 1071).
std::uint16_t slow_sum(std::span<const std::byte> bytes, std::uint32_t start = 0);
/// Puts right checksums into a frame of make_frame().
void fix_checksums(Bytes& frame, const FrameSpec& spec);

}  // namespace softhca::connectx::test
