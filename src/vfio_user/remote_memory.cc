#include "vfio_user/remote_memory.h"

#include <algorithm>

namespace softhca::vfio_user {

using protocol::Command;

void ClientRemoteMemory::set_capabilities(const ClientCapabilities& client) {
  part_max_ = static_cast<std::size_t>(
      std::min<std::uint64_t>(client.max_data_xfer_size, kMaxDataXferSize));
}

bool ClientRemoteMemory::usable() const {
  return !handling_ && (rest_until_ == util::Time{} || util::monotonic_now() >= rest_until_);
}

bool ClientRemoteMemory::dma_read(pcie::Iova from, std::span<std::byte> out) {
  while (!out.empty()) {
    const auto part = out.first(std::min(out.size(), part_max_));
    if (!usable() || !read_part(from, part)) return false;
    out = out.subspan(part.size());
    from += part.size();
  }
  return true;
}

bool ClientRemoteMemory::dma_write(pcie::Iova to, std::span<const std::byte> in) {
  while (!in.empty()) {
    const auto part = in.first(std::min(in.size(), part_max_));
    if (!usable() || !write_part(to, part)) return false;
    in = in.subspan(part.size());
    to += part.size();
  }
  return true;
}

bool ClientRemoteMemory::read_part(pcie::Iova from, std::span<std::byte> out) {
  if (!send(Command::kDmaRead, {.address = from, .count = out.size()}, {})) return false;
  const auto reply = await_reply(Command::kDmaRead);
  const auto good = reply && reply->payload.size() == sizeof(protocol::DmaAccess) + out.size();
  if (good)
    std::memcpy(out.data(), reply->payload.data() + sizeof(protocol::DmaAccess), out.size());
  if (reply) stream_.drop_reply();
  signal_queued();
  return good;
}

bool ClientRemoteMemory::write_part(pcie::Iova to, std::span<const std::byte> in) {
  if (!send(Command::kDmaWrite, {.address = to, .count = in.size()}, in)) return false;
  const auto reply = await_reply(Command::kDmaWrite);
  if (reply) stream_.drop_reply();
  signal_queued();
  return reply.has_value();
}

bool ClientRemoteMemory::send(Command command, const protocol::DmaAccess& access,
                              std::span<const std::byte> data) {
  const protocol::Header header{.message_id = ++message_id_,
                                .command = static_cast<std::uint16_t>(command),
                                .message_size = static_cast<std::uint32_t>(
                                    sizeof(protocol::Header) + sizeof access + data.size()),
                                .flags = protocol::kTypeCommand,
                                .error = 0};
  if (stream_.send(header, std::as_bytes(std::span(&access, 1)), data)) return true;
  // Half a message may be out. The loop finds the end of the connection when it next looks.
  stream_.shutdown();
  return false;
}

std::optional<Message> ClientRemoteMemory::await_reply(Command command) {
  const auto deadline = util::monotonic_now() + timeout_;
  for (;;) {
    if (auto reply = stream_.find_reply(message_id_)) {
      if (reply->header.command == static_cast<std::uint16_t>(command) &&
          !(reply->header.flags & protocol::kFlagError)) {
        return reply;
      }
      stream_.drop_reply();
      return std::nullopt;
    }
    if (stream_.broken()) break;
    if (!stream_.wait_readable(deadline)) {
      rest_until_ = util::monotonic_now() + kRestAfterTimeout;
      return std::nullopt;
    }
    const auto received = stream_.receive();
    if (received == MessageStream::Received::kClosed ||
        received == MessageStream::Received::kBroken) {
      break;
    }
  }
  stream_.shutdown();
  return std::nullopt;
}

void ClientRemoteMemory::signal_queued() {
  const std::uint64_t one = 1;
  if (queued_ < 0) return;
  [[maybe_unused]] const auto written = ::write(queued_, &one, sizeof one);
}

}  // namespace softhca::vfio_user
