// The CPU quota of this process's cgroups.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace softhca::door {

/// The first 4 KiB of a file of /proc or /sys; empty if it cannot be read. No stream of libc: its
/// lock would stay taken in a child that is created meanwhile without fork(), and exit() needs it.
std::string read_small_file(const std::filesystem::path& file);

/// Whole processors, by the lowest quota between the process's cgroup and the root. `root`:
/// /sys/fs/cgroup; `self`: content of /proc/self/cgroup. Nothing: no limit is known.
std::optional<unsigned> cgroup_quota(const std::filesystem::path& root, std::string_view self);

}  // namespace softhca::door
