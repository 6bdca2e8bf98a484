#include "vfio_user/region_access.h"

#include <algorithm>

#include "vfio_user/message_stream.h"

namespace softhca::vfio_user {
namespace {

using namespace protocol;

/// The largest access that a Function accepts at a time.
constexpr std::size_t kBarAccessMax = 64;

template <class T>
void append(std::vector<std::byte>& to, const T& value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  to.insert(to.end(), bytes.begin(), bytes.end());
}

}  // namespace

std::uint64_t region_size(const pcie::Function& function, std::uint32_t index) {
  if (index < kBarRegions) return function.bar(index).size;
  return index == kConfigRegion ? pcie::ConfigSpace::kSize : 0;
}

MessageResult region_info(const pcie::Function& function, const RegionInfo& request,
                          std::vector<std::byte>& reply, int* fd) {
  if (request.argsz < sizeof request) return refuse(EINVAL, "argsz below the structure's size");
  if (request.index >= kRegionCount) return refuse(EINVAL, "no such region");
  RegionInfo info{.argsz = sizeof(RegionInfo),
                  .flags = 0,
                  .index = request.index,
                  .cap_offset = 0,
                  .size = region_size(function, request.index),
                  .offset = 0};
  if (info.size != 0) info.flags = kRegionFlagRead | kRegionFlagWrite;
  const auto shared =
      request.index < kBarRegions ? function.shared_memory(request.index) : std::nullopt;
  if (!shared) {
    append(reply, info);
    return kDone;
  }
  info.flags |= kRegionFlagMmap | kRegionFlagCaps;
  info.cap_offset = sizeof info;
  info.argsz += static_cast<std::uint32_t>(sizeof(SparseMmapCapability) +
                                           shared->areas.size() * sizeof(SparseArea));
  append(reply, info);
  // "In that case, the full payload is not included in the reply, but the argsz field in the reply
  // indicates the needed size": the client asks again.
  if (request.argsz < info.argsz) return kDone;
  append(reply, SparseMmapCapability{.id = kSparseMmapId,
                                     .version = kSparseMmapVersion,
                                     .next = 0,
                                     .nr_areas = static_cast<std::uint32_t>(shared->areas.size()),
                                     .reserved = 0});
  for (const auto& area : shared->areas) append(reply, SparseArea{area.offset, area.size});
  *fd = shared->fd;
  return kDone;
}

MessageResult check_access(const pcie::Function& function, const RegionAccess& access) {
  if (access.count == 0) return refuse(EINVAL, "count 0");
  if (access.count > kMaxDataXferSize) return refuse(EINVAL, "count above max_data_xfer_size");
  const auto size = region_size(function, access.region);
  if (access.offset >= size || access.count > size - access.offset) {
    return refuse(EINVAL, "outside of the region");
  }
  return kDone;
}

void read_region(pcie::Function& function, std::uint32_t index, std::uint64_t offset,
                 std::span<std::byte> out) {
  if (index == kConfigRegion) return function.read_config(static_cast<std::uint32_t>(offset), out);
  while (!out.empty()) {
    const auto part = out.first(std::min(out.size(), kBarAccessMax));
    function.read_bar(index, offset, part);
    out = out.subspan(part.size());
    offset += part.size();
  }
}

void write_region(pcie::Function& function, std::uint32_t index, std::uint64_t offset,
                  std::span<const std::byte> in) {
  if (index == kConfigRegion) return function.write_config(static_cast<std::uint32_t>(offset), in);
  while (!in.empty()) {
    const auto part = in.first(std::min(in.size(), kBarAccessMax));
    function.write_bar(index, offset, part);
    in = in.subspan(part.size());
    offset += part.size();
  }
}

}  // namespace softhca::vfio_user
