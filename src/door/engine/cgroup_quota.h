// The CPU quota of this process's cgroups.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

namespace softhca::door {

/// Whole processors, by the lowest quota between the process's cgroup and the root. `root`:
/// /sys/fs/cgroup; `self`: content of /proc/self/cgroup. Nothing: no limit is known.
std::optional<unsigned> cgroup_quota(const std::filesystem::path& root, std::string_view self);

}  // namespace softhca::door
