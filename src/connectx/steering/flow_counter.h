// Flow counters (PRM 7.11.2.8): "the number of packets matching the flow and their total Byte
// count".
#pragma once

#include <cstdint>
#include <vector>

#include "connectx/base/numbers.h"
#include "hca/use.h"
#include "util/budget.h"

namespace softhca::connectx {

class FlowCounter : public hca::Used {
 public:
  explicit FlowCounter(FlowCounterId id) : id_(id) {}

  FlowCounterId id() const { return id_; }
  std::uint64_t packets() const { return packets_; }
  std::uint64_t octets() const { return octets_; }
  /// Counts a packet of `octets` bytes, from its Ethernet header on, without FCS.
  void count(std::uint64_t octets) {
    ++packets_;
    octets_ += octets;
  }
  void clear() { packets_ = octets_ = 0; }

 private:
  FlowCounterId id_;
  std::uint64_t packets_ = 0;
  std::uint64_t octets_ = 0;
};

/// The counters of a flow, charged to a budget of all flows.
struct FlowCounterList {
  struct Entry {
    FlowCounter* counter = nullptr;
    hca::Use use;
  };
  std::vector<Entry> list;
  util::Budget::Reservation reservation;
};

}  // namespace softhca::connectx
