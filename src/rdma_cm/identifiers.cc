#include "rdma_cm/identifiers.h"

#include <cerrno>
#include <utility>

namespace softhca::rdma_cm {

Identifier& Identifiers::make(Channel& channel, const cm::LocalAddress& local) {
  auto id = std::make_unique<Identifier>();
  id->number = next_number();
  id->channel = &channel;
  id->connection.user = id->number;
  id->connection.local = local;
  connections_.add(id->connection);
  return *ids_.emplace(id->number, std::move(id)).first->second;
}

void Identifiers::erase(const Identifier& id) {
  connections_.remove(id.connection);
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

}  // namespace softhca::rdma_cm
