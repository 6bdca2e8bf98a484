#include "vfio_user/remote_memory.h"

#include <algorithm>

namespace softhca::vfio_user {

using protocol::Command;

void ClientRemoteMemory::set_capabilities(const ClientCapabilities& client) {
  part_max_ = static_cast<std::size_t>(
      std::min<std::uint64_t>(client.max_data_xfer_size, kMaxDataXferSize));
}

bool ClientRemoteMemory::usable() const {
  const auto until = host_.waits.rest_until;
  return !handling_ && (until == util::Time{} || clock_() >= until);
}

bool ClientRemoteMemory::dma_read(pcie::Iova from, std::span<std::byte> out) {
  if (!usable()) return false;
  Patience patience{.deadline = clock_() + timeout_};
  const auto size = out.size();
  bool good = true;
  while (good && !out.empty()) {
    const auto part = out.first(std::min(out.size(), part_max_));
    good = read_part(from, part, patience);
    out = out.subspan(part.size());
    from += part.size();
  }
  count(patience, size);
  host_.queued();
  return good;
}

bool ClientRemoteMemory::dma_write(pcie::Iova to, std::span<const std::byte> in) {
  if (!usable()) return false;
  Patience patience{.deadline = clock_() + timeout_};
  const auto size = in.size();
  bool good = true;
  while (good && !in.empty()) {
    const auto part = in.first(std::min(in.size(), part_max_));
    good = write_part(to, part, patience);
    in = in.subspan(part.size());
    to += part.size();
  }
  count(patience, size);
  host_.queued();
  return good;
}

bool ClientRemoteMemory::read_part(pcie::Iova from, std::span<std::byte> out, Patience& patience) {
  if (!send(Command::kDmaRead, {.address = from, .count = out.size()}, {}, patience.deadline)) {
    return false;
  }
  const auto reply = await_reply(Command::kDmaRead, patience);
  if (!reply) return false;
  const auto good = reply->payload.size() == sizeof(protocol::DmaAccess) + out.size();
  if (good)
    std::memcpy(out.data(), reply->payload.data() + sizeof(protocol::DmaAccess), out.size());
  stream_.drop_reply();
  return good;
}

bool ClientRemoteMemory::write_part(pcie::Iova to, std::span<const std::byte> in,
                                    Patience& patience) {
  if (!send(Command::kDmaWrite, {.address = to, .count = in.size()}, in, patience.deadline)) {
    return false;
  }
  const auto reply = await_reply(Command::kDmaWrite, patience);
  if (reply) stream_.drop_reply();
  return reply.has_value();
}

bool ClientRemoteMemory::send(Command command, const protocol::DmaAccess& access,
                              std::span<const std::byte> data, util::Time deadline) {
  const protocol::Header header{.message_id = ++message_id_,
                                .command = static_cast<std::uint16_t>(command),
                                .message_size = static_cast<std::uint32_t>(
                                    sizeof(protocol::Header) + sizeof access + data.size()),
                                .flags = protocol::kTypeCommand,
                                .error = 0};
  // Drain earlier output first: a client that does not read gets no further messages.
  const bool good = stream_.drain(deadline, clock_) &&
                    stream_.send(header, std::as_bytes(std::span(&access, 1)), data) &&
                    stream_.drain(deadline, clock_);
  if (good) return true;
  if (clock_() >= deadline) {
    rest();
    return false;
  }
  // The loop finds the end of the connection at its next poll.
  stream_.shutdown();
  return false;
}

void ClientRemoteMemory::count(const Patience& patience, std::size_t bytes) {
  auto& waits = host_.waits;
  const auto now = clock_();
  const auto begin = patience.deadline - timeout_;
  const auto waited = now - begin - kHonestAnswer - std::chrono::nanoseconds(bytes);
  if (waited <= util::Duration::zero()) return;
  if (now >= waits.window_end) {
    waits.window_end = now + kWindow;
    waits.counted = {};
  }
  waits.counted += waited;
  if (waits.counted < kBudget || now < waits.rest_until) return;
  rest("its accesses together took too much of the time of others");
}

void ClientRemoteMemory::rest() { rest("an access took too long"); }

void ClientRemoteMemory::rest(const char* why) {
  host_.waits.rest_until = clock_() + kRest;
  host_.resting(why);
}

std::optional<Message> ClientRemoteMemory::await_reply(Command command, Patience& patience) {
  for (bool waited = false;; waited = true) {
    if (auto reply = stream_.find_reply(message_id_)) {
      if (reply->header.command == static_cast<std::uint16_t>(command) &&
          !(reply->header.flags & protocol::kFlagError)) {
        return reply;
      }
      stream_.drop_reply();
      return std::nullopt;
    }
    if (stream_.broken()) break;
    // A client that keeps sending, but no reply, is late too.
    const bool late = patience.looks == 0 || (waited && clock_() >= patience.deadline);
    if (late || !stream_.wait_readable(patience.deadline, clock_)) {
      rest();
      return std::nullopt;
    }
    // The first poll was counted as the access itself.
    if (patience.looks-- != kLooksMax) pcie::RemoteAccesses::add();
    const auto received = stream_.receive();
    if (received == MessageStream::Received::kClosed ||
        received == MessageStream::Received::kBroken) {
      break;
    }
  }
  stream_.shutdown();
  return std::nullopt;
}

}  // namespace softhca::vfio_user
