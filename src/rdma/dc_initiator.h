// The connection of a DC initiator (README.md, "Dynamic connections"): each request names its
// target, and the initiator is connected to one target at a time. PSNs continue from one connection
// to the next. Its path is in the QP's attributes. Internal.
#pragma once

#include <cstdint>

#include "rdma/queue_pair.h"
#include "rdma/send_window.h"
#include "rdma/work_request.h"
#include "wire/ib_header.h"

namespace softhca::rdma {

class DcInitiator {
 public:
  DcInitiator(Engine& engine, const QueuePair& qp) : engine_(engine), qp_(qp) {}

  /// True if the connection leads to the target of this request.
  bool leads_to(const SendRequest& request) const {
    return open_ && to_ == request.ud && key_ == request.dc_key;
  }
  /// Opens a connection without a packet of its own: requests carry the connection data until the
  /// first of them, which has PSN `first`, is answered.
  void open(const SendRequest& request, std::uint64_t first);
  /// The initiator was idle, and its target may have dropped the connection or been recreated under
  /// its number: the request with PSN `first` may open the connection again.
  void open_again(std::uint64_t first) { first_psn_ = first; }
  /// The header of a request among `sends`.
  void fill(wire::DcEth& eth, const SendWindow& sends) const;
  /// True if there is a connection to end.
  bool is_open() const { return open_; }
  /// Ends the connection with a packet on `path`, unless that is null.
  void close(const wire::IbHeader* path, const SendWindow& sends);
  /// The same without a packet, as for a device that is reset.
  void forget() { open_ = false; }

 private:
  Engine& engine_;
  const QueuePair& qp_;
  UdDestination to_;
  std::uint64_t key_ = 0;
  std::uint64_t first_psn_ = 0;
  std::uint32_t session_ = 0;
  bool open_ = false;
};

}  // namespace softhca::rdma
