// Congestion control of RoCEv2 (IBTA Annex A17 17.9.3): a receiver that gets packets which a switch
// has marked (RFC 3168) tells their sender by a congestion notification packet (CNP), and the
// sender slows down and recovers. How it does is DCQCN ("Congestion Control for Large-Scale RDMA
// Deployments", SIGCOMM 2015); the parameters are those that NICs have for it.
//
// Only what QPs send as requesters is slowed down; READ responses and acknowledgements are not.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "rdma/types.h"
#include "util/clock.h"

namespace softhca::rdma {

class QueuePair;

/// Of the sender (reaction point). Rates are in Mb/s, times in us.
struct ReactionParameters {
  bool clamp_target_rate = false;            ///< each CNP makes the rate of now the target
  bool clamp_target_rate_after_time = true;  ///< it does after an increase by time
  std::uint32_t time_reset = 300;            ///< between increases by time; 0: there are none
  std::uint32_t byte_reset = 32767;          ///< sent between increases; 0: there are none
  std::uint32_t threshold = 1;               ///< increases of fast recovery
  std::uint32_t ai_rate = 5;                 ///< of an additive increase
  std::uint32_t max_rate = 0;                ///< 0: the port's
  std::uint32_t hai_rate = 50;               ///< of a hyper increase
  std::uint32_t min_dec_fac = 50;            ///< what a decrease leaves at least, in percent
  std::uint32_t min_rate = 1;
  std::uint32_t rate_to_set_on_first_cnp = 0;    ///< 0: the rate is decreased as by others
  std::uint32_t dce_tcp_g = 1019;                ///< what stays of alpha, in 1/1024
  std::uint32_t dce_tcp_rtt = 1;                 ///< between updates of alpha; 0: it stays
  std::uint32_t rate_reduce_monitor_period = 4;  ///< between decreases, at least
  std::uint32_t initial_alpha_value = 1023;      ///< in 1/1024
  std::uint32_t gd = 11;                         ///< a decrease takes alpha / 2^gd of the rate
};

/// Of the receiver (notification point).
struct NotificationParameters {
  std::uint32_t min_time_between_cnps = 4;  ///< us, of the port
  std::uint8_t cnp_dscp = 48;
  bool cnp_prio_mode = false;  ///< CNPs have the priority of the packet, not cnp_802p_prio
  std::uint8_t cnp_802p_prio = 6;
};

struct CongestionCounters {
  std::uint64_t cnp_handled = 0;         ///< that slowed a QP down
  std::uint64_t cnp_ignored = 0;         ///< of a priority that does not react, or beyond kFlowsMax
  std::uint64_t ecn_marked_packets = 0;  ///< that arrived
  std::uint64_t cnp_sent = 0;
};

class CongestionControl {
 public:
  static constexpr std::size_t kPriorities = 8;
  /// QPs that are slow at the same time.
  static constexpr std::size_t kFlowsMax = 1024;
  static constexpr std::uint32_t kLineRate = 100'000;  ///< Mb/s

  CongestionControl();

  ReactionParameters reaction;
  NotificationParameters notification;
  /// By priority: whether senders react, and whether receivers tell.
  std::array<bool, kPriorities> reacts;
  std::array<bool, kPriorities> notifies;
  CongestionCounters counters;

  // Notification point -------------------------------------------------------------------------

  /// A marked packet has arrived, of this priority. True: a CNP is to be sent for it.
  bool handle_mark(unsigned priority, util::Time now);

  // Reaction point -----------------------------------------------------------------------------

  /// A CNP has come for this QP, whose packets have this priority.
  void handle_cnp(QueuePair& qp, unsigned priority, util::Time now);
  /// Whether some QP is slow.
  bool active() const { return !flows_.empty(); }
  std::size_t flows() const { return flows_.size(); }
  /// Mb/s that the QP may send now.
  double rate(const QueuePair& qp, util::Time now);
  /// The QP has sent so much. Returns when it may send again: `now` if it is not slow.
  util::Time charge(QueuePair& qp, std::uint64_t bytes, util::Time now);
  /// The QP is reset, or goes.
  void forget(QueuePair& qp);
  /// Forgets those that are as fast as ever, now and then.
  void sweep(util::Time now);

 private:
  struct Flow {
    QueuePair* qp = nullptr;
    double rate = 0;           ///< Mb/s
    double target = 0;         ///< Mb/s, to which it recovers
    double alpha = 0;          ///< in 1/1024: how bad it is
    util::Time alpha_at{};     ///< of its last update
    util::Time increase_at{};  ///< of the last increase by time, or the last decrease
    util::Time decrease_at{};  ///< of the last decrease
    util::Time next_send{};
    std::uint64_t bytes = 0;  ///< sent since the last increase by bytes
    std::uint32_t by_time = 0;
    std::uint32_t by_bytes = 0;  ///< increases since the last decrease
  };

  Flow* find(const QueuePair& qp);
  bool is_recovered(const Flow& flow) const;
  void erase(std::size_t place);
  /// What time alone has changed.
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
