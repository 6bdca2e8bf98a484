// The events of connections, as the program gets them.
#pragma once

#include <rdma/rdma_user_cm.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "cm/event_sink.h"
#include "rdma_cm/identifiers.h"

namespace softhca::rdma_cm {

/// Copies the peer's private data into an event.
template <class Param>
void put_private_data(Param& to, std::span<const std::byte> data) {
  to.private_data_len = static_cast<std::uint8_t>(data.size());
  std::ranges::copy(data, std::as_writable_bytes(std::span(to.private_data)).begin());
}

/// Copies the peer's offer into the event that reports it.
void put_offer(rdma_ucm_event_resp& to, const cm::Offer& offer);

class ConnectionEvents final : public cm::EventSink {
 public:
  explicit ConnectionEvents(const Identifiers& identifiers) : identifiers_(identifiers) {}

  void handle(const cm::Connection& connection, const cm::Event& event) override;

 private:
  const Identifiers& identifiers_;
};

}  // namespace softhca::rdma_cm
