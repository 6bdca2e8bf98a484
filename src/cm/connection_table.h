// The connections by their numbers: that of the user, that of this side, and that of a peer's
// request.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>

#include "cm/connection.h"

namespace softhca::cm {

/// The key of a peer's request: the peer's own number for it.
struct PeersNumber {
  std::uint32_t number;
  bool datagram;
  std::array<std::byte, 16> peer;
  auto operator<=>(const PeersNumber&) const = default;
};

/// A number that another host cannot guess.
std::uint32_t random_number();

class ConnectionTable {
 public:
  /// Adds a new connection and sets this side's numbers. It must stay in its place until it is
  /// removed. @pre connection.user is set
  void add(Connection& connection);
  void remove(const Connection& connection);
  /// Gives it another number of this side, with these upper 8 bits unless they are 0. Before its
  /// first message.
  void renumber(Connection& connection, std::uint8_t block);

  /// By the numbers of the user.
  const std::map<std::uint32_t, Connection*>& all() const { return all_; }
  /// Finds a connection by this side's number. Null: there is none.
  Connection* find(std::uint32_t comm_id) const;

  /// Finds the connection that a request has begun. Null: there is none.
  Connection* find_request(const PeersNumber& key) const;
  /// @pre connection.exchange.remote_comm_id and connection.peer are known
  void add_request(Connection& connection);
  void forget_request(const Connection& connection);

 private:
  std::uint32_t new_number(std::uint8_t block) const;
  /// The key of the request that has begun a connection.
  static PeersNumber key_of(const Connection& connection) {
    return {connection.exchange.remote_comm_id, is_datagram(connection), connection.peer->bytes};
  }

  std::map<std::uint32_t, Connection*> all_;
  std::unordered_map<std::uint32_t, Connection*> by_comm_id_;
  std::map<PeersNumber, Connection*> requests_;
};

}  // namespace softhca::cm
