// The identifiers of a program by their numbers: that of the program, that of the connection, and
// that of a peer's request.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>

#include "rdma_cm/channel.h"
#include "rdma_cm/identifier.h"
#include "rdma_cm/options.h"

namespace softhca::rdma_cm {

/// The key of a peer's request: the peer's own number for it.
struct PeersNumber {
  std::uint32_t number;
  bool datagram;
  std::array<std::byte, 16> peer;
  auto operator<=>(const PeersNumber&) const = default;
};

/// A number that another host cannot guess.
std::uint32_t random_number();

class Identifiers {
 public:
  using Map = std::map<std::uint32_t, std::unique_ptr<Identifier>>;

  /// `local`: the source of its messages until it has a better one.
  Identifier& make(Channel& channel, const LocalAddress& local);
  void erase(const Identifier& id);

  const Map& all() const { return ids_; }
  /// Null: there is none.
  Identifier* find(std::uint32_t number) const;
  /// Finds the channel's identifier (ucma_get_ctx).
  Errno find(const Channel& channel, std::uint32_t number, Identifier*& id) const;
  /// Finds an identifier by this side's number of the connection. Null: there is none.
  Identifier* find_connection(std::uint32_t comm_id) const;

  /// Identifiers and memberships share their numbers.
  std::uint32_t next_number() { return ++last_number_; }
  std::uint32_t last_number() const { return last_number_; }

  /// Finds the identifier that was created for a request. Null: there is none.
  Identifier* find_request(const PeersNumber& key) const;
  /// @pre id.connection.exchange.remote_comm_id is known
  void add_request(Identifier& id);
  void forget_request(const Identifier& id);

 private:
  /// The key of the request that an accepted identifier was created for.
  static PeersNumber key_of(const Identifier& id) {
    return {id.connection.exchange.remote_comm_id, is_datagram(id.connection),
            id.connection.peer->bytes};
  }

  Map ids_;
  std::unordered_map<std::uint32_t, Identifier*> by_comm_id_;
  std::map<PeersNumber, Identifier*> requests_;  ///< accepted requests
  std::uint32_t last_number_ = 0;
};

}  // namespace softhca::rdma_cm
