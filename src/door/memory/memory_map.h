// The kernel's view of a page of this process. Safe in signal handlers: nothing is allocated, and
// no libc function that takes a lock is called.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>

namespace softhca::door {

/// The protection (of mprotect()) of the mapping at `address`. Nothing if there is none. Linux 6.11
/// finds the mapping by a query; older kernels need a read of /proc/self/maps up to it.
std::optional<int> protection_of(std::uint64_t address);
/// By reading /proc/self/maps.
std::optional<int> protection_by_reading(std::uint64_t address);
/// By query; -1 if the kernel lacks it.
int protection_by_query(std::uint64_t address, std::optional<int>& protection);

/// Whether a file is one that the caller looks for.
using IsFile = std::function<bool(dev_t device, ino_t inode)>;

/// Whether such a file is mapped in [begin, end), which has no holes. Before Linux 6.11 the file is
/// missed if neither the first nor the last page is a page of a file.
bool maps_file(std::uint64_t begin, std::uint64_t end, const IsFile& is_wanted);
/// The same by reading /proc/self/maps: it misses none.
bool maps_file_by_reading(std::uint64_t begin, std::uint64_t end, const IsFile& is_wanted);
/// The same by query; -1 if the kernel lacks it.
int maps_file_by_query(std::uint64_t begin, std::uint64_t end, const IsFile& is_wanted,
                       bool& found);
/// Whether this file alone is mapped in all of [begin, end). Nothing if the kernel does not report
/// its mappings: without /proc, or without a free descriptor.
std::optional<bool> maps_only(std::uint64_t begin, std::uint64_t end, dev_t device, ino_t inode);
/// By reading /proc/self/maps.
std::optional<bool> maps_only_by_reading(std::uint64_t begin, std::uint64_t end, dev_t device,
                                         ino_t inode);
/// Whether the page of `address` may be a page of a file, or shared.
bool may_be_of_file(std::uint64_t address);

}  // namespace softhca::door
