// Memberships of identifiers in multicast groups.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace softhca::rdma_cm {

/// Membership of an identifier in a multicast group.
struct Membership {
  std::uint32_t number = 0;  ///< names the membership when the program leaves
  std::uint32_t id = 0;
  std::uint64_t uid = 0;  ///< the program's name for it
  std::uint32_t events_read = 0;
};

class Memberships {
 public:
  void add(const Membership& member) { members_.push_back(member); }
  /// Null: there is none.
  Membership* find(std::uint32_t number) {
    const auto at = std::ranges::find(members_, number, &Membership::number);
    return at == members_.end() ? nullptr : &*at;
  }
  void erase(std::uint32_t number) {
    std::erase_if(members_, [=](const Membership& one) { return one.number == number; });
  }
  /// Ends all memberships of an identifier.
  void forget(std::uint32_t id) {
    std::erase_if(members_, [=](const Membership& one) { return one.id == id; });
  }

 private:
  std::vector<Membership> members_;
};

}  // namespace softhca::rdma_cm
