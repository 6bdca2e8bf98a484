#include "vfio_user/client.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace softhca::vfio_user {

using namespace protocol;

namespace {

template <class T>
std::span<const std::byte> bytes_of(const T& structure) {
  return std::as_bytes(std::span(&structure, 1));
}

std::vector<std::byte> join(std::span<const std::byte> first, std::span<const std::byte> second) {
  std::vector<std::byte> out(first.begin(), first.end());
  out.insert(out.end(), second.begin(), second.end());
  return out;
}

}  // namespace

util::Result<Client> Client::connect(const std::string& path, Options options) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    return util::fail(fmt::format("'{}': path too long", path));
  std::memcpy(address.sun_path, path.data(), path.size());
  os::UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) return util::fail_errno("vfio-user client: socket");
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return util::fail_errno(fmt::format("vfio-user client: connect to '{}'", path));
  }
  return Client(std::move(socket), std::move(options));
}

util::Result<std::string> Client::negotiate(const std::string& json) {
  const Version version{.major = kMajor, .minor = kMinor};
  const auto text = std::as_bytes(std::span(json.c_str(), json.size() + 1));
  auto reply = call(Command::kVersion, join(bytes_of(version), text));
  if (!reply) return tl::unexpected(reply.error());
  if (reply->error != 0)
    return util::fail(
        fmt::format("VERSION refused: {}", std::strerror(static_cast<int>(reply->error))));
  if (reply->payload.size() < sizeof version) return util::fail("VERSION reply too short");
  const auto data = std::span(reply->payload).subspan(sizeof version);
  if (data.empty()) return std::string();
  return std::string(reinterpret_cast<const char*>(data.data()), data.size() - 1);
}

int Client::map_dma(std::uint64_t address, std::uint64_t size, int fd, std::uint64_t offset,
                    std::uint32_t flags) {
  const DmaMap request{
      .argsz = sizeof request, .flags = flags, .offset = offset, .address = address, .size = size};
  return error_of(call(Command::kDmaMap, request, std::span(&fd, fd >= 0 ? 1 : 0)));
}

int Client::map_remote_dma(std::uint64_t address, std::span<std::byte> memory) {
  const int error = map_dma(address, memory.size(), -1, 0);
  if (error == 0) remote_memory_[address] = memory;
  return error;
}

int Client::unmap_dma(std::uint64_t address, std::uint64_t size) {
  const DmaUnmap request{.argsz = sizeof request, .flags = 0, .address = address, .size = size};
  const int error = error_of(call(Command::kDmaUnmap, request));
  if (error == 0) remote_memory_.erase(address);
  return error;
}

int Client::read_region(std::uint32_t region, std::uint64_t offset, std::span<std::byte> out) {
  const RegionAccess request{
      .offset = offset, .region = region, .count = static_cast<std::uint32_t>(out.size())};
  const auto reply = call(Command::kRegionRead, request);
  if (const int error = error_of(reply); error != 0) return error;
  if (reply->payload.size() != sizeof request + out.size()) return -1;
  std::memcpy(out.data(), reply->payload.data() + sizeof request, out.size());
  return 0;
}

int Client::write_region(std::uint32_t region, std::uint64_t offset,
                         std::span<const std::byte> in) {
  const RegionAccess request{
      .offset = offset, .region = region, .count = static_cast<std::uint32_t>(in.size())};
  return error_of(call(Command::kRegionWrite, join(bytes_of(request), in)));
}

bool Client::post_region(std::uint32_t region, std::uint64_t offset,
                         std::span<const std::byte> in) {
  const RegionAccess request{
      .offset = offset, .region = region, .count = static_cast<std::uint32_t>(in.size())};
  const Header header{
      .message_id = ++message_id_,
      .command = static_cast<std::uint16_t>(Command::kRegionWrite),
      .message_size = static_cast<std::uint32_t>(sizeof header + sizeof request + in.size()),
      .flags = kFlagNoReply,
      .error = 0};
  return send(header, bytes_of(request), in);
}

int Client::set_irqs(std::uint32_t flags, std::uint32_t index, std::uint32_t start,
                     std::uint32_t count, std::span<const std::byte> data,
                     std::span<const int> fds) {
  const IrqSet request{.argsz = static_cast<std::uint32_t>(sizeof request + data.size()),
                       .flags = flags,
                       .index = index,
                       .start = start,
                       .count = count};
  return error_of(call(Command::kDeviceSetIrqs, join(bytes_of(request), data), fds));
}

int Client::reset() { return error_of(call(Command::kDeviceReset, std::span<const std::byte>())); }

util::Result<Client::Reply> Client::call(Command command, std::span<const std::byte> payload,
                                         std::span<const int> fds, std::uint32_t flags) {
  const Header header{.message_id = ++message_id_,
                      .command = static_cast<std::uint16_t>(command),
                      .message_size = static_cast<std::uint32_t>(sizeof header + payload.size()),
                      .flags = flags,
                      .error = 0};
  if (!send(header, payload, {}, fds)) return util::fail_errno("vfio-user client: send");
  return receive_reply();
}

bool Client::send_raw(std::span<const std::byte> bytes, std::span<const int> fds) {
  return stream_.send_raw(bytes, fds) && drain();
}

bool Client::send(const Header& header, std::span<const std::byte> first,
                  std::span<const std::byte> second, std::span<const int> fds) {
  return stream_.send(header, first, second, fds) && drain();
}

bool Client::drain() {
  const auto deadline = util::monotonic_now() + options_.timeout;
  if (!options_.pump) return stream_.drain(deadline);
  while (stream_.has_output()) {
    options_.pump();
    if (!stream_.flush() || util::monotonic_now() >= deadline) return false;
  }
  return true;
}

/// Lets the server work. True if data arrived before `deadline`.
bool Client::wait(util::Time deadline) {
  if (!options_.pump) return stream_.wait_readable(deadline);
  do {
    options_.pump();
    if (stream_.wait_readable(util::Time{})) return true;
  } while (util::monotonic_now() < deadline);
  return false;
}

util::Result<Client::Reply> Client::receive_reply() {
  const auto deadline = util::monotonic_now() + options_.timeout;
  for (;;) {
    while (auto message = stream_.next()) {
      if (!message->is_reply()) {
        answer(*message);
        continue;
      }
      Reply reply;
      reply.error = message->header.flags & kFlagError ? message->header.error : 0;
      reply.payload.assign(message->payload.begin(), message->payload.end());
      for (auto& fd : message->fds) reply.fds.push_back(std::move(fd));
      return reply;
    }
    if (!wait(deadline)) return util::fail("vfio-user client: no reply");
    const auto received = stream_.receive();
    if (received == MessageStream::Received::kClosed)
      return util::fail("vfio-user client: server gone");
    if (received == MessageStream::Received::kBroken)
      return util::fail("vfio-user client: broken stream");
  }
}

bool Client::wait_closed() {
  const auto deadline = util::monotonic_now() + options_.timeout;
  while (wait(deadline)) {
    const auto received = stream_.receive();
    if (received == MessageStream::Received::kClosed) return true;
    if (received == MessageStream::Received::kBroken) return false;
    while (stream_.next()) {
    }
  }
  return false;
}

bool Client::serve() {
  if (!stream_.wait_readable(util::Time{})) return true;
  const auto received = stream_.receive();
  if (received == MessageStream::Received::kClosed || received == MessageStream::Received::kBroken)
    return false;
  while (const auto message = stream_.next()) {
    if (message->is_command()) answer(*message);  // a late reply is dropped
  }
  return true;
}

void Client::serve_until(const std::function<bool()>& done) {
  const auto deadline = util::monotonic_now() + options_.timeout;
  while (!done() && util::monotonic_now() < deadline) {
    if (!wait(util::monotonic_now() + std::chrono::milliseconds(1))) continue;
    if (stream_.receive() != MessageStream::Received::kData) continue;
    while (const auto message = stream_.next()) answer(*message);
  }
}

void Client::answer(const Message& command) {
  Header header = command.header;
  header.flags = kTypeReply;
  header.message_size = sizeof header;
  const auto fail = [&](int error) {
    header.flags |= kFlagError;
    header.error = static_cast<std::uint32_t>(error);
    send(header, {});
  };
  const bool read = header.command == static_cast<std::uint16_t>(Command::kDmaRead);
  if (!read && header.command != static_cast<std::uint16_t>(Command::kDmaWrite))
    return fail(ENOSYS);
  if (command.payload.size() < sizeof(DmaAccess)) return fail(EINVAL);
  const auto access = load<DmaAccess>(command.payload);
  const auto after = remote_memory_.upper_bound(access.address);
  if (after == remote_memory_.begin()) return fail(ENOENT);
  const auto& [start, memory] = *std::prev(after);
  const auto offset = access.address - start;
  if (offset > memory.size() || access.count > memory.size() - offset) return fail(ENOENT);
  const auto part = memory.subspan(offset, access.count);
  header.message_size += sizeof access;
  if (read) {
    header.message_size += static_cast<std::uint32_t>(part.size());
    send(header, bytes_of(access), part);
    return;
  }
  const auto data = command.payload.subspan(sizeof access);
  if (data.size() != part.size()) return fail(EINVAL);
  std::copy(data.begin(), data.end(), part.begin());
  send(header, bytes_of(access));
}

int Client::error_of(const util::Result<Reply>& reply) {
  return reply ? static_cast<int>(reply->error) : -1;
}

}  // namespace softhca::vfio_user
