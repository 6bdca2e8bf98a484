#include "server/isolate/groups.h"

#include <map>
#include <numeric>

namespace softhca::server {
namespace {

/// Disjoint sets of devices; the first device represents its set.
class Sets {
 public:
  explicit Sets(std::size_t devices) : before_(devices) {
    std::iota(before_.begin(), before_.end(), std::size_t{0});
  }
  std::size_t first_of(std::size_t device) const {
    while (before_[device] != device) device = before_[device];
    return device;
  }
  void join(std::size_t one, std::size_t other) {
    one = first_of(one);
    other = first_of(other);
    before_[std::max(one, other)] = std::min(one, other);
  }

 private:
  std::vector<std::size_t> before_;
};

bool is_data_mover(const DeviceSpec& spec) { return !is_nic(spec); }

}  // namespace

std::vector<DeviceGroup> group_devices(const std::vector<DeviceSpec>& specs,
                                       const std::vector<std::string>& guests) {
  Sets sets(specs.size());
  std::map<std::string, std::size_t> by_name, by_guest;
  for (std::size_t i = 0; i != specs.size(); ++i) {
    by_name[name_of(specs[i])] = i;
    if (const auto* vf = std::get_if<VirtualFunctionSpec>(&specs[i])) {
      sets.join(i, by_name.at(vf->pf));
      if (guests[i].empty()) continue;  // belongs to the PF's guest
    }
    // Data movers without a guest share the nameless guest.
    if (guests[i].empty() && !is_data_mover(specs[i])) continue;
    sets.join(i, by_guest.try_emplace(guests[i], i).first->second);
  }
  std::map<std::size_t, DeviceGroup> groups;
  for (std::size_t i = 0; i != specs.size(); ++i) groups[sets.first_of(i)].push_back(i);
  std::vector<DeviceGroup> out;
  for (auto& [first, group] : groups) out.push_back(std::move(group));
  return out;
}

}  // namespace softhca::server
