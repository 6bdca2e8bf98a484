// The machine's own RDMA devices, shown beside those of the run: `softhca run --host-devices`.
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
  /// No devices.
  HostDevices() = default;
  /// The devices visible below the root directory `host`: RDMA devices, and the device files of
  /// uverbs, umad and issm. rdma_cm is left out: it serves the run's devices only.
  static HostDevices find(const std::filesystem::path& host = "/");

  bool empty() const { return links_.empty(); }
  /// The number of the run's first device: the lowest n above all uverbs<n> and mlx5_<n> of the
  /// host.
  unsigned first_free() const { return first_free_; }
  /// Identifies this set of devices: 16 hexadecimal digits.
  std::string mark() const;
  /// Adds links to them, in a tree whose directories write_tree() has created.
  util::Result<void> link_into(const std::filesystem::path& root) const;

 private:
  void add_names(const std::filesystem::path& host, std::string_view directory,
                 std::string_view beginning);

  unsigned first_free_ = 0;
  /// (path in the tree, path on the host)
  std::vector<std::pair<std::string, std::string>> links_;
};

}  // namespace softhca::door
