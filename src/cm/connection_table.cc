#include "cm/connection_table.h"

#include <sys/random.h>

#include "cm/message.h"

namespace softhca::cm {

std::uint32_t random_number() {
  std::uint32_t number = 0;
  (void)!::getrandom(&number, sizeof number, 0);
  return number;
}

void ConnectionTable::add(Connection& connection) {
  auto& exchange = connection.exchange;
  // Random, so that another host cannot guess it and pose as the peer.
  do {
    exchange.local_comm_id = random_number();
  } while (exchange.local_comm_id == 0 || by_comm_id_.contains(exchange.local_comm_id));
  exchange.repeats_max = kRepeats;
  exchange.response_timeout = timeout_of(kResponseTimeout);
  connection.qp.local_psn = random_number() & spec::kPsnMask;
  by_comm_id_[exchange.local_comm_id] = &connection;
  all_[connection.user] = &connection;
}

void ConnectionTable::remove(const Connection& connection) {
  forget_request(connection);
  by_comm_id_.erase(connection.exchange.local_comm_id);
  all_.erase(connection.user);
}

Connection* ConnectionTable::find(std::uint32_t comm_id) const {
  const auto at = by_comm_id_.find(comm_id);
  return at == by_comm_id_.end() ? nullptr : at->second;
}

Connection* ConnectionTable::find_request(const PeersNumber& key) const {
  const auto at = requests_.find(key);
  return at == requests_.end() ? nullptr : at->second;
}

void ConnectionTable::add_request(Connection& connection) {
  requests_[key_of(connection)] = &connection;
}

void ConnectionTable::forget_request(const Connection& connection) {
  if (!connection.passive || !connection.peer) return;
  const auto at = requests_.find(key_of(connection));
  if (at != requests_.end() && at->second == &connection) requests_.erase(at);
}

}  // namespace softhca::cm
