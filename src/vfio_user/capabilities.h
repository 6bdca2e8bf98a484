// The contents of VERSION (the protocol, "VFIO_USER_VERSION").
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "vfio_user/message_result.h"
#include "vfio_user/protocol.h"

namespace softhca::vfio_user {

/// The page size of DMA maps (capability pgsizes): addresses and sizes are multiples of it.
inline constexpr std::uint64_t kDmaPageSize = 4096;
/// The most DMA maps at a time (capability max_dma_maps): Linux's limit of mappings per process.
inline constexpr std::size_t kMaxDmaMaps = 65535;

/// Limits of the client.
struct ClientCapabilities {
  std::uint64_t max_data_xfer_size = protocol::kDefaultMaxDataXferSize;
  std::uint64_t max_msg_fds = protocol::kDefaultMaxMsgFds;
};

/// Checks the payload of a client's VERSION and builds the payload of the reply: the server's
/// version, and its value for each known capability that the client proposed; `max_dma_maps` is one
/// of them.
MessageResult negotiate_version(std::span<const std::byte> request, std::size_t max_dma_maps,
                                ClientCapabilities* client, std::string* reply);

}  // namespace softhca::vfio_user
