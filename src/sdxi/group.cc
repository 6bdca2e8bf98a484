#include "sdxi/group.h"

#include <algorithm>
#include <cassert>

#include "sdxi/faults.h"

namespace softhca::sdxi {

FunctionGroup::FunctionGroup() : faults_(std::make_unique<Faults>()) {}
FunctionGroup::~FunctionGroup() = default;

void FunctionGroup::join(GroupMember& member, GroupMember* pf, std::uint16_t sfunc,
                         std::uint16_t vf_num) {
  assert(sfunc == 0 || find(sfunc) == nullptr);
  const pcie::Paused paused(&workers_.gate());
  members_.push_back({&member, {.sfunc = sfunc, .pf = pf, .vf_num = vf_num}});
}

void FunctionGroup::leave(GroupMember& member) {
  const pcie::Paused paused(&workers_.gate());
  std::erase_if(members_, [&member](const Entry& entry) { return entry.member == &member; });
  for (auto& entry : members_) {
    if (entry.seat.pf == &member) entry.seat.pf = nullptr;
  }
}

std::uint16_t FunctionGroup::free_sfunc() const {
  std::uint16_t sfunc = 1;
  while (find(sfunc) != nullptr) ++sfunc;
  return sfunc;
}

std::uint16_t FunctionGroup::next_vf(const GroupMember& pf) const {
  std::uint16_t vf_num = 0;
  while (vf_of(pf, vf_num) != nullptr) ++vf_num;
  return vf_num;
}

GroupMember* FunctionGroup::find(std::uint16_t sfunc) const {
  if (sfunc == 0) return nullptr;
  for (const auto& entry : members_) {
    if (entry.seat.sfunc == sfunc) return entry.member;
  }
  return nullptr;
}

GroupMember* FunctionGroup::vf_of(const GroupMember& pf, std::uint16_t vf_num) const {
  for (const auto& entry : members_) {
    if (entry.seat.pf == &pf && entry.seat.vf_num == vf_num) return entry.member;
  }
  return nullptr;
}

void FunctionGroup::propagate_probe(const GroupMember& from, bool probe) const {
  for (const auto& entry : members_) {
    if (entry.member != &from && !entry.member->is_vf()) entry.member->set_probe(probe);
  }
}

}  // namespace softhca::sdxi
