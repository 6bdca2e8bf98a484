// The RDMA devices that this machine has of its own, to be shown beside ours: `softhca run
// --host-devices`.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "util/result.h"

namespace softhca::door {

class HostDevices {
 public:
  /// None.
  HostDevices() = default;
  /// Those that `host`, a root directory, shows now: its RDMA devices, and the device files of
  /// uverbs, umad and issm. Not rdma_cm, which answers for our devices alone.
  static HostDevices find(const std::filesystem::path& host = "/");

  bool empty() const { return links_.empty(); }
  /// The first n of which neither uverbs<n> nor mlx5_<n> is theirs, nor any higher one: ours begin
  /// there.
  unsigned first_free() const { return first_free_; }
  /// Tells them from other devices: 16 hexadecimal digits.
  std::string mark() const;
  /// Links to them, in a tree of which write_tree() has made the directories.
  util::Result<void> link_into(const std::filesystem::path& root) const;

 private:
  void add_names(const std::filesystem::path& host, std::string_view directory,
                 std::string_view beginning);

  unsigned first_free_ = 0;
  /// From a path of the tree to one of the host.
  std::vector<std::pair<std::string, std::string>> links_;
};

}  // namespace softhca::door
