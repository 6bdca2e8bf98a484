// The function's BARs and config space as regions for a client.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "pcie/function.h"
#include "vfio_user/message_result.h"
#include "vfio_user/protocol.h"

namespace softhca::vfio_user {

/// Bytes of region `index`; 0 if the function has no such region.
std::uint64_t region_size(const pcie::Function& function, std::uint32_t index);

/// GET_REGION_INFO: fills `reply` with the structure and its capabilities, truncated to the
/// requested argsz, and `*fd` with the descriptor to send with it, or -1.
MessageResult region_info(const pcie::Function& function, const protocol::RegionInfo& request,
                          std::vector<std::byte>& reply, int* fd);

/// Checks that [offset, offset + count) is in the region, and at most what a message may transfer.
MessageResult check_access(const pcie::Function& function, const protocol::RegionAccess& access);

/// @pre check_access() of the same range
void read_region(pcie::Function& function, std::uint32_t index, std::uint64_t offset,
                 std::span<std::byte> out);
void write_region(pcie::Function& function, std::uint32_t index, std::uint64_t offset,
                  std::span<const std::byte> in);

}  // namespace softhca::vfio_user
