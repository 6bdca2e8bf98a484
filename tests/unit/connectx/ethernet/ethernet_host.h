// A host for Ethernet tests. It adds a PD, a transport domain, a key, an EQ, and SQs, RQs, TIRs and
// flow tables as mlx5e makes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "connectx/ethernet/frames.h"
#include "connectx/ethernet/wqe.h"
#include "connectx/fake_host.h"
#include "rdma/reasons.h"
#include "spec/connectx/cqe.h"
#include "spec/connectx/flow_table.h"
#include "spec/connectx/raw_queues.h"
#include "spec/connectx/wqe.h"

namespace softhca::connectx::test {

using Opcode = spec::connectx::command_opcode;

/// A model whose SQs need no inline headers and insert VLAN tags. A ConnectX-4 is none.
Model without_inline_headers();

class EthernetHost : public FakeHost {
 public:
  static constexpr std::uint64_t kMac = 0x0200000000AA;  ///< source address of make_frame()

  explicit EthernetHost(HostOptions options = {});

  Bytes read(std::uint64_t iova, std::size_t size) { return {at(iova), at(iova) + size}; }

  // Objects as mlx5e makes them. Each call expects success.
  std::uint32_t create_cq(unsigned log_size = 6);
  std::uint32_t create_tis();
  std::uint32_t create_sq(std::uint32_t cqn, unsigned log_size = 4, bool ready = true,
                          bool with_tis = true, bool with_signatures = false);
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
  Reply set_flow(std::uint32_t table, std::uint32_t group, std::uint32_t index,
                 const std::vector<Destination>& destinations,
                 const Fill<spec::connectx::fte_match_param>& value = {},
                 std::uint32_t flow_tag = 0);
  void set_root(std::uint32_t table);
  /// Steers all frames to `tirn`.
  void steer_all_to(std::uint32_t tirn);

  Reply modify_sq(std::uint32_t sqn, spec::connectx::sq_state from, spec::connectx::sq_state to);
  Reply modify_rq(std::uint32_t rqn, spec::connectx::rq_state from, spec::connectx::rq_state to);
  spec::connectx::sq_state sq_state(std::uint32_t sqn);

  // Data path
  /// Writes a WQE after those posted, updates the doorbell record, rings, runs.
  void post_send(std::uint32_t sqn, std::span<const std::byte> wqe);
  void write_wqe(std::uint32_t sqn, std::span<const std::byte> wqe);
  /// Posts a receive WQE with one buffer of `size` bytes; returns the buffer.
  std::uint64_t post_receive(std::uint32_t rqn, std::uint32_t size);
  void post_receive_list(std::uint32_t rqn,
                         const std::vector<std::pair<std::uint64_t, std::uint32_t>>& list);
  /// Address of a receive WQE, for guests that change a posted one.
  std::byte* receive_wqe(std::uint32_t rqn, unsigned entry);
  void arrive(std::span<const std::byte> frame);
  /// Returns looped frames to the device, as the fabric does.
  void return_looped();
  /// Runs the Ethernet side once, with the work budget of a whole turn.
  util::Time run_ethernet();
  /// Advances the clock by 10 ms and runs, so that deferred work becomes due.
  void run_later();
  /// Number of WQEs that an RQ has consumed.
  std::uint32_t received(std::uint32_t rqn);
  /// Expects the next CQE of a CQ to report this error. Returns its QPN.
  std::uint32_t expect_error(std::uint32_t cqn, spec::connectx::cqe_opcode opcode,
                             std::uint16_t counter, spec::connectx::cqe_syndrome syndrome,
                             rdma::Reason reason);
  /// The next CQE of a CQ, or an empty vector.
  Bytes poll(std::uint32_t cqn);
  std::uint16_t posted(std::uint32_t number) { return rings_.at(number).posted; }
  /// Zeroes counters and record, as a driver does when it returns a queue to RST.
  void reset_ring(std::uint32_t number);

  std::uint32_t pd = 0;
  std::uint32_t transport_domain = 0;
  std::uint32_t eqn = 0;
  std::uint32_t shared_tisn = 0;    ///< TIS of the SQs that are created; 0: each has its own
  bool multi_packet_sends = false;  ///< creates SQs for multi-packet send WQEs
  bool signed_receives = false;     ///< creates RQs for receive WQEs with signatures
  /// Type of the tables that the functions above make and query.
  spec::connectx::flow_table_type table_type{};
  /// Flow counters that set_flow() attaches.
  std::vector<std::uint32_t> flow_counters;

 private:
  struct Ring {
    std::uint64_t buffer = 0;
    std::uint64_t record = 0;
    unsigned log_size = 0;
    unsigned log_stride = 6;
    std::uint16_t posted = 0;
  };
  Ring make_ring(unsigned log_size, unsigned log_stride);
  void fill_wq(util::MutableView<spec::connectx::wq> wq, const Ring& ring) const;
  static Bytes pas_of(const Ring& ring);

  std::map<std::uint32_t, Ring> rings_;  ///< SQs and RQs by number
  std::map<std::uint32_t, HostCq> cqs_;  ///< by CQN
};

}  // namespace softhca::connectx::test
