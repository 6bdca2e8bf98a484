#include "door/engine/cgroup_quota.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "door/engine/free_processors.h"
#include "os/unique_fd.h"

namespace softhca::door {
namespace {

std::string first_line(const std::filesystem::path& file) {
  auto text = read_small_file(file);
  text.resize(std::min(text.size(), text.find('\n')));
  return text;
}

/// The quota of one cgroup: version 2 has one file, version 1 two. "max" and "-1" mean no limit,
/// and are not parsed as numbers.
std::optional<unsigned> quota_of(const std::filesystem::path& group, bool is_first_version) {
  if (!is_first_version) return processors_of_quota(first_line(group / "cpu.max"));
  return processors_of_quota(first_line(group / "cpu.cfs_quota_us") + " " +
                             first_line(group / "cpu.cfs_period_us"));
}

/// Walks from the process's cgroup to the root of its hierarchy.
std::optional<unsigned> lowest_quota(const std::filesystem::path& hierarchy, std::string_view group,
                                     bool is_first_version) {
  std::optional<unsigned> lowest;
  std::filesystem::path inner(group);
  inner = inner.relative_path();
  for (;; inner = inner.parent_path()) {
    const auto quota = quota_of(hierarchy / inner, is_first_version);
    if (quota && (!lowest || *quota < *lowest)) lowest = quota;
    if (inner.empty()) return lowest;
  }
}

}  // namespace

std::string read_small_file(const std::filesystem::path& file) {
  const os::UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text(4096, '\0');
  const auto size = ::read(fd.get(), text.data(), text.size());
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  return text;
}

std::optional<unsigned> cgroup_quota(const std::filesystem::path& root, std::string_view self) {
  std::optional<unsigned> lowest;
  // Lines are "number:controllers:path"; for version 2 "0::path".
  while (!self.empty()) {
    const auto line = self.substr(0, self.find('\n'));
    self.remove_prefix(std::min(self.size(), line.size() + 1));
    const auto first = line.find(':');
    const auto second = first == line.npos ? first : line.find(':', first + 1);
    if (second == line.npos) continue;
    const auto controllers = line.substr(first + 1, second - first - 1);
    const bool is_first_version = !controllers.empty();
    if (is_first_version &&
        ("," + std::string(controllers) + ",").find(",cpu,") == std::string::npos)
      continue;
    const auto quota =
        lowest_quota(root / std::string(controllers), line.substr(second + 1), is_first_version);
    if (quota && (!lowest || *quota < *lowest)) lowest = quota;
  }
  return lowest;
}

}  // namespace softhca::door
