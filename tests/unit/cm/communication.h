// Two communication managers that exchange their messages in memory, on virtual time.
#pragma once

#include <gtest/gtest.h>
#include <rdma/ib_user_ioctl_verbs.h>

#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "cm/connections.h"
#include "cm/message.h"

namespace softhca::cm {

inline constexpr std::uint64_t kService = 0x106'1234;
inline const wire::Gid kClient = wire::Gid::from_ipv4(198, 18, 0, 1);
inline const wire::Gid kServer = wire::Gid::from_ipv4(198, 18, 0, 2);

/// A host with one port, which serves kService and records the events of its connections.
class Host final : public Network, public EventSink, public Services {
 public:
  Host(const wire::Gid& own, std::deque<Received>& wire) : own_(own), wire_(wire) {}

  bool send(const Mad& mad, const LocalAddress& from, const wire::Gid& to) override {
    ++sent;
    wire_.push_back({{.mad = mad, .from = from.gid, .to = to}, 0});
    return true;
  }
  LocalAddress answers_from(const Received&) const override { return address(); }
  std::uint64_t node_guid(unsigned) const override { return 1; }
  std::uint8_t number_block(unsigned) const override { return block; }
  void handle(const Connection&, const Event& event) override {
    events.push_back(event.kind);
    status = event.status;
  }
  Response take(const Received& message, const RequestView& request, util::Time) override {
    if (request.service() != kService) return Response::kNoService;
    auto& connection = make(0);
    offer = manager.begin(connection, message, request);
    data.assign(reinterpret_cast<const char*>(offer.private_data.data()), 3);
    return Response::kNone;
  }
  /// A new connection. begin() sets the QP type of those that peers request.
  Connection& make(std::uint8_t qp_type) {
    auto& connection = *connections.emplace_back(std::make_unique<Connection>());
    connection.user = static_cast<std::uint32_t>(connections.size());
    connection.qp_type = qp_type;
    connection.local = address();
    connection.path.ack_timeout = kPacketLifetime + 1;
    table.add(connection);
    return connection;
  }
  LocalAddress address() const { return {.port = 0, .gid_index = 0, .gid = own_}; }

  std::uint8_t block = 0;  ///< of its numbers
  unsigned sent = 0;
  std::vector<Event::Kind> events;
  std::uint32_t status = 0;  ///< of the last event
  Offer offer;               ///< of the last request
  std::string data;          ///< the begin of its private data
  std::vector<std::unique_ptr<Connection>> connections;
  ConnectionTable table;
  Wakeup wakeup;
  Connections manager{*this, table, *this, *this, wakeup};

 private:
  wire::Gid own_;
  std::deque<Received>& wire_;
};

class Communication : public testing::Test {
 protected:
  /// A request that the client has sent.
  Connection& request(std::uint8_t qp_type, std::uint64_t service = kService) {
    auto& connection = client_.make(qp_type);
    connection.peer = kServer;
    connection.qp.local_qpn = 0x100;
    client_.manager.send_request(connection, service,
                                 {.responder_resources = 3,
                                  .initiator_depth = 5,
                                  .private_data = std::as_bytes(std::span("who", 3))},
                                 now_);
    return connection;
  }
  void deliver() {
    while (!wire_.empty()) {
      const auto message = wire_.front();
      wire_.pop_front();
      (message.to == kServer ? server_ : client_).manager.receive(message, now_);
    }
  }
  /// Lets the time pass until a host is due.
  void wait_for(Host& host) {
    now_ = host.wakeup.next();
    host.wakeup.clear();
    host.manager.tick(now_);
  }

  std::deque<Received> wire_;
  Host client_{kClient, wire_}, server_{kServer, wire_};
  util::Time now_{std::chrono::hours(1)};
};

}  // namespace softhca::cm
