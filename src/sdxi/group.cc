#include "sdxi/group.h"

#include <algorithm>
#include <cassert>

#include "sdxi/faults.h"

namespace softhca::sdxi {

FunctionGroup::FunctionGroup(util::TimeSource clock)
    : faults_(std::make_unique<Faults>()), workers_(std::move(clock)) {}
FunctionGroup::~FunctionGroup() = default;

void FunctionGroup::join(GroupMember& member, const Seat& seat) {
  assert(seat.sfunc == 0 || seated(seat.sfunc) == nullptr);
  const pcie::Paused paused(&workers_.gate());
  members_.push_back({&member, seat});
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
  while (seated(sfunc) != nullptr) ++sfunc;
  return sfunc;
}

std::uint16_t FunctionGroup::next_vf(const GroupMember& pf) const {
  std::uint16_t vf_num = 0;
  while (vf_of(pf, vf_num) != nullptr) ++vf_num;
  return vf_num;
}

const FunctionGroup::Entry* FunctionGroup::seated(std::uint16_t sfunc) const {
  const auto found =
      std::ranges::find(members_, sfunc, [](const Entry& entry) { return entry.seat.sfunc; });
  return found == members_.end() ? nullptr : &*found;
}

GroupMember* FunctionGroup::find(const GroupMember& from, std::uint16_t sfunc) const {
  const auto* entry = sfunc == 0 ? nullptr : seated(sfunc);
  const bool reached = entry != nullptr && entry->member->group_name() == from.group_name();
  return reached ? entry->member : nullptr;
}

GroupMember* FunctionGroup::vf_of(const GroupMember& pf, std::uint16_t vf_num) const {
  for (const auto& entry : members_) {
    if (entry.seat.pf == &pf && entry.seat.vf_num == vf_num) return entry.member;
  }
  return nullptr;
}

void FunctionGroup::propagate_probe(const GroupMember& from, bool probe) const {
  for (const auto& entry : members_) {
    const bool in_group = entry.member->group_name() == from.group_name();
    if (in_group && entry.member != &from && !entry.member->is_vf()) entry.member->set_probe(probe);
  }
}

}  // namespace softhca::sdxi
