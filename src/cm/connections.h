// The communication manager: the connections of RC, UC and XRC QPs (IBTA 12.9), and the exchange of
// SIDR messages for UD QPs (IBTA 12.11).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <utility>

#include "cm/connection_table.h"
#include "cm/event_sink.h"
#include "cm/message_reader.h"
#include "cm/network.h"
#include "cm/offer.h"
#include "cm/services.h"
#include "cm/transitions.h"
#include "cm/transmitter.h"
#include "cm/wakeup.h"

namespace softhca::cm {

class Connections {
 public:
  Connections(Network& network, ConnectionTable& table, EventSink& events, Services& services,
              Wakeup& wakeup)
      : network_(network),
        table_(table),
        events_(events),
        services_(services),
        wakeup_(wakeup),
        transmitter_(network, wakeup) {}

  /// Any host may send messages, so messages that match nothing are ignored.
  void receive(const Received& message, util::Time now);
  /// Makes a new connection the passive side of a request. Returns what the peer offers.
  /// @pre connection.local is known
  Offer begin(Connection& connection, const Received& message, const RequestView& request);

  /// Handles a call of the program, or what the program reports about its QP. False: it does not
  /// fit the state of the connection.
  bool apply(Connection& connection, Input input, util::Time now) {
    return apply(connection, input, nullptr, now);
  }
  /// Sends a REQ or SIDR_REQ. @pre connection.peer and connection.local are known
  void send_request(Connection& connection, std::uint64_t service, const Offer& offer,
                    util::Time now);
  void send_rep(Connection& connection, const Offer& offer, util::Time now);
  void send_sidr_rep(Connection& connection, std::uint8_t status, std::uint32_t qkey,
                     std::span<const std::byte> private_data);
  /// Ends a connection that is not established yet, and sends a REJ.
  void reject(Connection& connection, std::uint16_t reason,
              std::span<const std::byte> private_data);
  /// Ends the connection without a message.
  void end(Connection& connection);
  /// Notifies the peer that the user removes the connection.
  void say_goodbye(Connection& connection, util::Time now);

  /// Retransmits messages, and ends TimeWait.
  void tick(util::Time now);
  /// Finds out that the process of a peer was killed. Either may be empty.
  struct Gone {
    /// Whether no process has the address any more.
    std::function<bool(const wire::Gid& peer)> address;
    /// Whether several processes share the address, and the one of this number has ended: the upper
    /// 8 bits of the peer's number identify it.
    std::function<bool(const wire::Gid& peer, std::uint32_t number)> number;
  };
  /// Disconnects peers whose process was killed. On Linux the peer's kernel would disconnect them.
  void find_dead_peers(const Gone& gone, util::Time now);

 private:
  void receive_request(const Received& message, bool datagram, util::Time now);
  /// Handles a REQ or SIDR_REQ that has begun the connection before.
  void receive_again(Connection& connection, const Mad& mad, util::Time now);
  void refuse(const Received& message, const RequestView& request, Response why);
  void receive_answer(const Received& message, Input input, util::Time now);
  void receive_sidr_rep(const Received& message);
  Connection* find_rejected(const Received& message) const;
  bool apply(Connection& connection, Input input, const Mad* mad, util::Time now);
  void act(Connection& connection, Action action, const Mad* mad, util::Time now);
  void wait_longer(Connection& connection, const Mad& mad, util::Time now);
  void wait_for_packets(Connection& connection, util::Time now);
  void send_rej(const Connection& connection, std::uint16_t reason,
                std::span<const std::byte> private_data);
  /// Results of find_dead_peers(), by peer and by the upper bits of its number.
  using Found = std::map<std::pair<std::array<std::byte, 16>, std::uint32_t>, bool>;
  static bool is_gone(const Connection& connection, const Gone& gone, Found& found);
  void handle_death(Connection& connection, util::Time now);

  Network& network_;
  ConnectionTable& table_;
  EventSink& events_;
  Services& services_;
  Wakeup& wakeup_;
  Transmitter transmitter_;
  util::Time peers_checked_{};
};

}  // namespace softhca::cm
