// Datagrams (UD) between all hosts: each request has one completion, and whatever arrives was sent.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "site.h"

namespace softhca::bad_network {

class Datagrams {
 public:
  /// Peer number of their completions.
  static constexpr unsigned kPeer = 0xff;

  Datagrams(Fleet& fleet, std::vector<std::unique_ptr<Site>>& sites);

  void post(unsigned host, Random& random);
  void complete(unsigned host, const driver::Completion& done);
  void receive(unsigned host, const driver::Completion& done);

  std::uint64_t posted() const { return posted_; }
  std::uint64_t completed() const { return completed_; }
  std::uint64_t received() const { return received_; }
  /// Arrivals of a datagram that had arrived before.
  std::uint64_t duplicates() const { return duplicates_; }

 private:
  struct Sent {
    std::uint32_t id = 0;
    unsigned from = 0;
    unsigned to = 0;
    std::uint32_t source = 0;
    std::uint32_t length = 0;
    bool arrived = false;
  };
  struct End {
    driver::verbs::QueuePair qp;
    std::uint64_t next_send = 0;
    std::uint64_t next_done = 0;
    std::uint64_t receives_posted = 0;
    std::uint64_t receives_done = 0;
    std::vector<driver::AddressForm> paths = {};  ///< by host
  };

  void fill_receives(unsigned host);

  std::vector<std::unique_ptr<Site>>& sites_;
  std::vector<End> ends_;
  std::array<Sent, 4096> recent_{};  ///< by the low bits of the number
  std::uint32_t next_ = 1;
  std::uint64_t posted_ = 0;
  std::uint64_t completed_ = 0;
  std::uint64_t received_ = 0;
  std::uint64_t duplicates_ = 0;
};

}  // namespace softhca::bad_network
