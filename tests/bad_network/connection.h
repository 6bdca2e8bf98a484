// A reliable connection of two hosts, with a flow in each direction. When it breaks, both queue
// pairs are drained, and after a rest connected again.
#pragma once

#include <array>
#include <cstdint>

#include "flow.h"
#include "site.h"

namespace softhca::bad_network {

/// Both ends of a connection, low host first.
class Connection {
 public:
  enum class State : std::uint8_t { kUp, kBroken, kDraining, kResting };

  Connection(Fleet& fleet, Site& low, Site& high, Random& random);

  State state() const { return state_; }
  Flow& flow_from(unsigned host) { return flows_[end_of(host)]; }
  /// Posts requests of `host`, as many as its window allows.
  void post(unsigned host, unsigned count, Random& random);
  /// Takes a completion of `host`'s send queue.
  void complete(unsigned host, const driver::Completion& done);
  /// Takes a completion of `host`'s receive queue.
  void receive(unsigned host, const driver::Completion& done);
  /// Posts the receives that are missing.
  void fill_receives();
  /// Goes on with a broken connection. True: it is drained, and settle() must follow.
  bool tend();
  /// Arguments: executed FETCH_ADDs of each flow to the shared counter that have no successful
  /// completion.
  void settle(std::uint64_t of_low, std::uint64_t of_high);
  /// When tend() has something to do besides taking completions.
  util::Time next() const { return state_ == State::kResting ? rest_until_ : util::kNever; }
  std::uint64_t breaks() const { return breaks_; }
  const std::array<Flow, 2>& flows() const { return flows_; }
  /// Checks that nothing waits for longer than any fault lasts.
  void check_progress() const;

 private:
  struct Receives {
    std::uint64_t posted = 0;
    std::uint64_t done = 0;
    bool starved = false;  ///< no receive is posted until fill_receives()
  };

  unsigned end_of(unsigned host) const { return host == sites_[0]->host ? 0 : 1; }
  driver::verbs::QueuePair make_qp(Site& site);
  void connect();
  void to_ready(unsigned end, unsigned mtu, std::uint8_t traffic_class);
  void fill_receives(unsigned end);

  Fleet& fleet_;
  Random& random_;
  std::array<Site*, 2> sites_;
  std::array<Flow, 2> flows_;
  std::array<driver::verbs::QueuePair, 2> qps_;
  std::array<Receives, 2> receives_{};
  std::array<std::uint32_t, 2> psns_{};
  State state_ = State::kUp;
  util::Time rest_until_{};
  util::Time broken_at_{};
  std::uint64_t breaks_ = 0;
};

}  // namespace softhca::bad_network
