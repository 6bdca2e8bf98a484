// The identifiers of a program by their numbers.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "cm/connection_table.h"
#include "rdma_cm/channel.h"
#include "rdma_cm/identifier.h"
#include "rdma_cm/options.h"

namespace softhca::rdma_cm {

class Identifiers {
 public:
  using Map = std::map<std::uint32_t, std::unique_ptr<Identifier>>;

  /// `connections`: gets those of the identifiers.
  explicit Identifiers(cm::ConnectionTable& connections) : connections_(connections) {}

  /// `local`: the source of its messages until it has a better one.
  Identifier& make(Channel& channel, const cm::LocalAddress& local);
  void erase(const Identifier& id);

  const Map& all() const { return ids_; }
  /// Null: there is none.
  Identifier* find(std::uint32_t number) const;
  /// Finds the channel's identifier (ucma_get_ctx).
  Errno find(const Channel& channel, std::uint32_t number, Identifier*& id) const;

  /// Identifiers and memberships share their numbers.
  std::uint32_t next_number() { return ++last_number_; }
  std::uint32_t last_number() const { return last_number_; }

 private:
  cm::ConnectionTable& connections_;
  Map ids_;
  std::uint32_t last_number_ = 0;
};

}  // namespace softhca::rdma_cm
