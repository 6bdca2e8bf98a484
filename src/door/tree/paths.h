// The paths that the door serves, and their places in the tree that `softhca run` wrote
// (door/tree.h). Called inside open(), before constructors, in signal handlers and below
// allocators: nothing here allocates, locks or throws.
#pragma once

#include <linux/limits.h>

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace softhca::door {

/// A null-terminated path, as libc takes it.
using PathBuffer = std::array<char, PATH_MAX>;

/// The PCI domain of the run's functions, the first of which is 5348:00:00.0. No machine has this
/// domain, so no device of the host is hidden. (0000:00:1f.0, the address in kernel interface 2.5,
/// is a PC's ISA bridge.)
inline constexpr std::string_view kPciDomain = "5348:";

/// Whether `path` contains one of the words that every served path has. Most paths do not, and cost
/// no more than this check.
bool may_be_served(std::string_view path);

/// Maps the paths that programs use to the tree below one directory.
class PathMap {
 public:
  constexpr PathMap() = default;

  /// Sets the directory that holds sys/ and dev/. It must be absolute and without links, or `strip`
  /// will not find it. False and no change if it is not absolute or leaves no room for a path.
  bool set_root(std::string_view root);
  std::string_view root() const { return {root_.data(), root_size_}; }
  /// Sets the number of the run's first device. Device files of lower numbers belong to the host:
  /// the tree has links to them.
  void set_first(unsigned first) { first_ = first; }
  unsigned first() const { return first_; }

  /// Maps an absolute `path` that the door serves to its place in the tree, null-terminated in
  /// `served`. Returns its length, or 0 for all other paths, including those that are too long.
  /// "//", "/./" and "/../" are resolved as in the kernel, as if no directory outside the tree were
  /// a link. The rest behind the served directory is passed to the kernel as it is, since the tree
  /// has links: ".." of /sys/class/infiniband/mlx5_0 is in the PCI device. A path below the root
  /// counts as the path that it shows.
  std::size_t serve(std::string_view path, PathBuffer& served) const;

  /// The same for `path` relative to the directory `base`.
  std::size_t serve(std::string_view base, std::string_view path, PathBuffer& served) const;

  /// The device file that `served`, a result of `serve`, names: the number n of
  /// /dev/infiniband/uverbs<n> or /dev/char/231:<192 + n>, or kRdmaCmFile for
  /// /dev/infiniband/rdma_cm. Nothing for the host's.
  std::optional<unsigned> device_file(std::string_view served) const;

  /// Removes the root from the path `text` if it lies below the root. Returns the new length.
  std::size_t strip(char* text, std::size_t size) const;

 private:
  PathBuffer root_{};
  std::size_t root_size_ = 0;
  unsigned first_ = 0;
};

}  // namespace softhca::door
