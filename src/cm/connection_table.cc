#include "cm/connection_table.h"

#include <sys/random.h>

#include "cm/message.h"

namespace softhca::cm {

std::uint32_t random_number() {
  std::uint32_t number = 0;
  (void)!::getrandom(&number, sizeof number, 0);
  return number;
}

/// Random, so that another host cannot guess it and pose as the peer.
std::uint32_t ConnectionTable::new_number(std::uint8_t block) const {
  // no format: a range of numbers
  constexpr unsigned kBlockShift = 24;
  constexpr std::uint32_t kBelow = (std::uint32_t{1} << kBlockShift) - 1;  // no format: as above
  std::uint32_t number = 0;
  do {
    number = random_number();
    // no format: as above
    if (block != 0) number = std::uint32_t{block} << kBlockShift | (number & kBelow);
  } while (number == 0 || by_comm_id_.contains(number));
  return number;
}

void ConnectionTable::renumber(Connection& connection, std::uint8_t block) {
  if (block == 0) return;
  auto& number = connection.exchange.local_comm_id;
  by_comm_id_.erase(number);
  number = new_number(block);
  by_comm_id_[number] = &connection;
}

void ConnectionTable::add(Connection& connection) {
  auto& exchange = connection.exchange;
  exchange.local_comm_id = new_number(0);
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
