// Congestion control of RoCEv2 (IBTA Annex A17 17.9.3). A switch marks packets (RFC 3168), their
// receiver sends a congestion notification packet (CNP) to the sender, and the sender slows down
// and recovers. The algorithm is DCQCN ("Congestion Control for Large-Scale RDMA Deployments",
// SIGCOMM 2015), with the parameters that NICs have for it.
//
// Only packets that QPs send as requesters are rate-limited; READ responses and acknowledgements
// are not.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "rdma/types.h"
#include "util/clock.h"

namespace softhca::rdma {

class QueuePair;

/// Parameters of the sender (reaction point). Rates are in Mb/s, times in us.
struct ReactionParameters {
  bool clamp_target_rate = false;            ///< each CNP makes the current rate the target
  bool clamp_target_rate_after_time = true;  ///< a CNP does so after an increase by time
  std::uint32_t time_reset = 300;            ///< interval of increases by time; 0: none
  std::uint32_t byte_reset = 32767;          ///< bytes sent between increases; 0: none
  std::uint32_t threshold = 1;               ///< increases of fast recovery
  std::uint32_t ai_rate = 5;                 ///< step of an additive increase
  std::uint32_t max_rate = 0;                ///< 0: the port's rate
  std::uint32_t hai_rate = 50;               ///< step of a hyper increase
  std::uint32_t min_dec_fac = 50;  ///< a decrease leaves at least this percentage of the rate
  std::uint32_t min_rate = 1;
  std::uint32_t rate_to_set_on_first_cnp = 0;  ///< 0: the first CNP decreases the rate like any
                                               ///< other
  std::uint32_t dce_tcp_g = 1019;              ///< weight that alpha keeps at an update, in 1/1024
  std::uint32_t dce_tcp_rtt = 1;               ///< interval of alpha updates; 0: alpha is constant
  std::uint32_t rate_reduce_monitor_period = 4;  ///< minimum time between decreases
  std::uint32_t initial_alpha_value = 1023;      ///< in 1/1024
  std::uint32_t gd = 11;                         ///< a decrease subtracts alpha / 2^gd of the rate
};

/// Parameters of the receiver (notification point).
struct NotificationParameters {
  std::uint32_t min_time_between_cnps = 4;  ///< us, for the whole port
  std::uint8_t cnp_dscp = 48;
  bool cnp_prio_mode = false;  ///< CNPs take the priority of the marked packet instead of
                               ///< cnp_802p_prio
  std::uint8_t cnp_802p_prio = 6;
};

struct CongestionCounters {
  std::uint64_t cnp_handled = 0;  ///< CNPs that slowed a QP down
  std::uint64_t cnp_ignored = 0;  ///< CNPs of a priority that does not react, or beyond kFlowsMax
  std::uint64_t ecn_marked_packets = 0;  ///< received packets with a mark
  std::uint64_t cnp_sent = 0;
};

class CongestionControl {
 public:
  static constexpr std::size_t kPriorities = 8;
  /// Most QPs that are rate-limited at the same time.
  static constexpr std::size_t kFlowsMax = 1024;
  static constexpr std::uint32_t kLineRate = 100'000;  ///< Mb/s

  CongestionControl();

  ReactionParameters reaction;
  NotificationParameters notification;
  /// By priority: whether senders react to CNPs, and whether receivers send them.
  std::array<bool, kPriorities> reacts;
  std::array<bool, kPriorities> notifies;
  CongestionCounters counters;

  // Notification point -------------------------------------------------------------------------

  /// A marked packet of this priority has arrived. True if the caller is to send a CNP for it.
  bool handle_mark(unsigned priority, util::Time now);

  // Reaction point -----------------------------------------------------------------------------

  /// A CNP for this QP has arrived. `priority`: that of the QP's packets.
  void handle_cnp(QueuePair& qp, unsigned priority, util::Time now);
  /// True if any QP is rate-limited.
  bool active() const { return !flows_.empty(); }
  std::size_t flows() const { return flows_.size(); }
  /// The current rate of the QP, in Mb/s.
  double rate(const QueuePair& qp, util::Time now);
  /// The QP has sent `bytes`. Returns when it may send again: `now` if it is not rate-limited.
  util::Time charge(QueuePair& qp, std::uint64_t bytes, util::Time now);
  /// The QP is reset or destroyed: drops its state.
  void forget(QueuePair& qp);
  /// Periodically drops the state of QPs that are back at full rate.
  void sweep(util::Time now);

 private:
  struct Flow {
    QueuePair* qp = nullptr;
    double rate = 0;           ///< Mb/s
    double target = 0;         ///< Mb/s that the rate recovers to
    double alpha = 0;          ///< in 1/1024: estimate of the congestion
    util::Time alpha_at{};     ///< last update of alpha
    util::Time increase_at{};  ///< last increase by time, or last decrease
    util::Time decrease_at{};  ///< last decrease
    util::Time next_send{};
    std::uint64_t bytes = 0;  ///< sent since the last increase by bytes
    std::uint32_t by_time = 0;
    std::uint32_t by_bytes = 0;  ///< by_time and by_bytes: increases since the last decrease
  };

  Flow* find(const QueuePair& qp);
  bool is_recovered(const Flow& flow) const;
  void erase(std::size_t place);
  /// Applies the updates that are due by time.
  void advance(Flow& flow, util::Time now) const;
  void decrease(Flow& flow, util::Time now) const;
  void increase(Flow& flow) const;
  bool wants_new_target(const Flow& flow) const;
  double max_rate() const;

  std::vector<Flow> flows_;
  util::Time next_cnp_{};
  util::Time next_sweep_{};
};

}  // namespace softhca::rdma
