#include "rdma_cm/identifiers.h"

#include <sys/random.h>

#include <cerrno>
#include <utility>

#include "rdma_cm/message.h"

namespace softhca::rdma_cm {

std::uint32_t random_number() {
  std::uint32_t number = 0;
  (void)!::getrandom(&number, sizeof number, 0);
  return number;
}

Identifier& Identifiers::make(Channel& channel, const LocalAddress& local) {
  auto id = std::make_unique<Identifier>();
  id->number = next_number();
  id->channel = &channel;
  // Random, so that another host cannot guess it and pose as the peer.
  do {
    id->connection.exchange.local_comm_id = random_number();
  } while (id->connection.exchange.local_comm_id == 0 ||
           by_comm_id_.contains(id->connection.exchange.local_comm_id));
  id->connection.local = local;
  id->connection.qp.local_psn = random_number() & spec::kPsnMask;
  id->connection.exchange.repeats_max = kRepeats;
  id->connection.exchange.response_timeout = cm_time(kResponseTimeout);
  by_comm_id_[id->connection.exchange.local_comm_id] = id.get();
  return *ids_.emplace(id->number, std::move(id)).first->second;
}

void Identifiers::erase(const Identifier& id) {
  forget_request(id);
  by_comm_id_.erase(id.connection.exchange.local_comm_id);
  ids_.erase(ids_.find(id.number));
}

Identifier* Identifiers::find(std::uint32_t number) const {
  const auto at = ids_.find(number);
  return at == ids_.end() ? nullptr : at->second.get();
}

Errno Identifiers::find(const Channel& channel, std::uint32_t number, Identifier*& id) const {
  auto* const found = find(number);
  if (found == nullptr) return ENOENT;
  if (found->channel != &channel) return EINVAL;
  id = found;
  return 0;
}

Identifier* Identifiers::find_connection(std::uint32_t comm_id) const {
  const auto at = by_comm_id_.find(comm_id);
  return at == by_comm_id_.end() ? nullptr : at->second;
}

Identifier* Identifiers::find_request(const PeersNumber& key) const {
  const auto at = requests_.find(key);
  return at == requests_.end() ? nullptr : at->second;
}

void Identifiers::add_request(Identifier& id) { requests_[key_of(id)] = &id; }

void Identifiers::forget_request(const Identifier& id) {
  if (!id.connection.passive || !id.connection.peer) return;
  const auto at = requests_.find(key_of(id));
  if (at != requests_.end() && at->second == &id) requests_.erase(at);
}

}  // namespace softhca::rdma_cm
