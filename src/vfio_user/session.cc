#include "vfio_user/session.h"

#include <sys/epoll.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "os/memory_reserve.h"
#include "vfio_user/region_access.h"

namespace softhca::vfio_user {

using namespace protocol;

namespace {

constexpr std::uint32_t kKnownFlags = kTypeMask | kFlagNoReply;

/// Cost of a message besides its data: system calls, and some work of the function. Each byte of
/// data costs one unit; larger accesses reach the function in pieces of 64 bytes.
constexpr std::int64_t kMessageWork = 1'500;

/// Cost of stopping a device's threads: waiting for what they do.
constexpr std::int64_t kStopWork = 30'000;

/// The most writes in one message: QEMU 10 sends at most 200. Each is a call of the function.
constexpr std::uint64_t kMultiWritesMax = 4096;

/// Only these commands carry file descriptors.
bool takes_fds(Command command) {
  return command == Command::kDmaMap || command == Command::kDeviceSetIrqs;
}

MessageStream::Discard discard_with(os::Janitor* janitor) {
  if (janitor == nullptr) return nullptr;
  return [janitor](os::UniqueFd fd) { janitor->close(std::move(fd)); };
}

}  // namespace

Session::Session(pcie::Function& function, os::UniqueFd socket, const SessionHost& host,
                 const SessionOptions& options)
    : function_(function),
      host_(host),
      options_(options),
      stream_(std::move(socket), discard_with(host.janitor)),
      remote_(stream_,
              {.queued = [this] { note_more(); },
               .resting = [this](const char* why) { note_rest(why); },
               .waits = *host.waits},
              options.reply_timeout, options.clocks.now),
      meter_(options.clocks, host.lost),
      memory_(function.dma(), remote_,
              {.janitor = host.janitor, .lost = host.lost, .max_maps = options.max_maps}),
      interrupts_(function.interrupts(), host.janitor, options.max_eventfds, meter_) {}

Session::~Session() {
  // The device must forget the client's addresses before they become invalid.
  os::MemoryReserve::instance().use([this] { function_.reset(); });
}

const char* Session::lost() const {
  if (memory_.lost())
    return "memory that the client shares is not there any more; its session ends";
  if (!meter_.exceeded()) return nullptr;
  return "the client is slow to wake (too many epoll entries for an eventfd or its socket?); its "
         "session ends";
}

bool Session::handle_readable(util::WorkBudget& budget) {
  // While messages wait to be handled, the socket keeps the rest, so that a client cannot fill the
  // server's memory.
  if (stream_.has_message()) return handle_queued(budget);
  auto received = MessageStream::Received::kNothing;
  // Receiving wakes a client that waits for room to send.
  meter_.measure([&] {
    received = stream_.receive();
    return stream_.last_received();
  });
  switch (received) {
    case MessageStream::Received::kData:
      return handle_queued(budget);
    case MessageStream::Received::kNothing:
      return true;
    case MessageStream::Received::kClosed:
      return false;
    case MessageStream::Received::kBroken:
      end("the socket failed or brought too many descriptors");
      break;
  }
  return false;
}

bool Session::handle_queued(util::WorkBudget& budget) {
  remote_.set_handling(true);
  while (!ended_ && !stream_.has_output() && !budget.spent() && has_room() && !meter_.exceeded()) {
    const auto message = stream_.next();
    if (!message) break;
    handle(*message, budget);
  }
  remote_.set_handling(false);
  if (stream_.broken() && !ended_) end("a message of an impossible size");
  if (!ended_) note_more();
  return !ended_;
}

bool Session::handle_writable(util::WorkBudget& budget) {
  if (!stream_.flush()) return false;
  return stream_.has_output() || handle_queued(budget);
}

std::uint32_t Session::wanted_events() const {
  if (stream_.has_output()) return EPOLLOUT;
  return has_room() ? std::uint32_t{EPOLLIN} : std::uint32_t{0};
}

void Session::note_more() {
  if (!has_room()) return host_.janitor->notify_when_gone();
  if (host_.more != nullptr && !stream_.has_output() && stream_.has_message()) host_.more->raise();
}

/// Maps and descriptors that the client has left behind count towards its share until they are
/// released; until then it waits.
bool Session::has_room() const {
  if (host_.janitor == nullptr) return true;
  const auto maps = host_.janitor->pending_maps();
  const auto descriptors = host_.janitor->pending_descriptors();
  return (maps == 0 || maps + function_.dma().mappings().size() < options_.max_maps) &&
         (descriptors == 0 || descriptors + interrupts_.eventfds() < options_.max_eventfds);
}

void Session::handle(const Message& message, util::WorkBudget& budget) {
  budget.charge(kMessageWork + static_cast<std::int64_t>(message.payload.size()));
  // A reply to a request that timed out is no error.
  if (message.is_reply()) return note_refusal(message, refuse(0, "an unexpected reply"));
  reply_.clear();
  reply_fd_ = -1;
  auto result = check_header(message);
  const auto before = function_.work_done();
  if (result) {
    // Each of a message's writes may stop the device's threads, and each stop waits for them.
    const pcie::StoppedOnce stopped(function_.threads());
    result = dispatch(message);
    if (stopped.happened()) budget.charge(kStopWork);
  }
  // Work of the function during the message, such as a reset, delays the other clients too.
  budget.charge(function_.work_done() - before);
  budget.charge(static_cast<std::int64_t>(reply_.size()) + memory_.take_work() +
                interrupts_.take_work());
  if (!result) note_refusal(message, result);
  if (!(message.header.flags & kFlagNoReply)) send_reply(message.header, result);
  // "If a client does not support the proposed major, it closes the connection". The server does
  // the same, also on any other error before a version is agreed.
  if (!negotiated_) end("no version agreed");
}

MessageResult Session::check_header(const Message& message) const {
  if (!message.is_command()) return refuse(EINVAL, "neither command nor reply");
  if (message.header.flags & ~kKnownFlags) return refuse(EINVAL, "unknown flags");
  const auto command = static_cast<Command>(message.header.command);
  if (negotiated_ == (command == Command::kVersion)) {
    return refuse(EINVAL, negotiated_ ? "a second VERSION" : "before VERSION");
  }
  if (!message.fds.empty() && !takes_fds(command))
    return refuse(EINVAL, "descriptors where none belong");
  return kDone;
}

MessageResult Session::dispatch(const Message& message) {
  switch (static_cast<Command>(message.header.command)) {
    case Command::kRegionWrite:
      return region_write(message);
    case Command::kRegionRead:
      return region_read(message);
    case Command::kRegionWriteMulti:
      return region_write_multi(message);
    case Command::kVersion:
      return version(message);
    case Command::kDmaMap:
      return dma_map(message);
    case Command::kDmaUnmap:
      return dma_unmap(message);
    case Command::kDeviceGetInfo:
      return device_get_info(message);
    case Command::kDeviceGetRegionInfo:
      return device_get_region_info(message);
    case Command::kDeviceGetRegionIoFds:
      return device_get_region_io_fds(message);
    case Command::kDeviceGetIrqInfo:
      return device_get_irq_info(message);
    case Command::kDeviceSetIrqs:
      return device_set_irqs(message);
    case Command::kDeviceReset:
      return device_reset(message);
    case Command::kDmaRead:
    case Command::kDmaWrite:
      return refuse(EINVAL, "a command of the server");
    case Command::kDirtyPages:
    case Command::kMigDataRead:
    case Command::kMigDataWrite:
      return refuse(ENOTSUP, "migration is not offered");
    // As the ioctl of this name does for a feature that the device lacks.
    case Command::kDeviceFeature:
      return refuse(ENOTTY, "no device features are offered");
  }
  return refuse(ENOSYS, "no such command");
}

MessageResult Session::version(const Message& message) {
  ClientCapabilities client;
  if (auto v = negotiate_version(message.payload, options_.max_maps, &client, &version_reply_); !v)
    return v;
  remote_.set_capabilities(client);
  negotiated_ = true;
  const auto bytes = std::as_bytes(std::span(version_reply_));
  reply_.assign(bytes.begin(), bytes.end());
  return kDone;
}

MessageResult Session::dma_map(const Message& message) {
  if (message.payload.size() != sizeof(DmaMap)) return refuse(EINVAL, "wrong message size");
  return memory_.map(load<DmaMap>(message.payload), message.fds);
}

MessageResult Session::dma_unmap(const Message& message) {
  if (message.payload.size() != sizeof(DmaUnmap)) return refuse(EINVAL, "wrong message size");
  const auto request = load<DmaUnmap>(message.payload);
  if (auto v = memory_.unmap(request); !v) return v;
  put_reply(request);
  return kDone;
}

MessageResult Session::device_get_info(const Message& message) {
  if (message.payload.size() != sizeof(DeviceInfo)) return refuse(EINVAL, "wrong message size");
  const auto request = load<DeviceInfo>(message.payload);
  if (request.argsz < sizeof request) return refuse(EINVAL, "argsz below the structure's size");
  put_reply(DeviceInfo{.argsz = sizeof(DeviceInfo),
                       .flags = kDeviceFlagReset | kDeviceFlagPci,
                       .num_regions = kRegionCount,
                       .num_irqs = kIrqIndexCount});
  return kDone;
}

MessageResult Session::device_get_region_info(const Message& message) {
  if (message.payload.size() != sizeof(RegionInfo)) return refuse(EINVAL, "wrong message size");
  return region_info(function_, load<RegionInfo>(message.payload), reply_, &reply_fd_);
}

MessageResult Session::device_get_region_io_fds(const Message& message) {
  if (message.payload.size() != sizeof(RegionIoFds)) return refuse(EINVAL, "wrong message size");
  const auto request = load<RegionIoFds>(message.payload);
  if (request.argsz < sizeof request) return refuse(EINVAL, "argsz below the structure's size");
  if (request.flags != 0 || request.count != 0) return refuse(EINVAL, "flags or count not 0");
  if (request.index >= kRegionCount) return refuse(EINVAL, "no such region");
  // An empty list: all accesses use messages or shared memory.
  put_reply(
      RegionIoFds{.argsz = sizeof(RegionIoFds), .flags = 0, .index = request.index, .count = 0});
  return kDone;
}

MessageResult Session::device_get_irq_info(const Message& message) {
  if (message.payload.size() != sizeof(IrqInfo)) return refuse(EINVAL, "wrong message size");
  const auto request = load<IrqInfo>(message.payload);
  if (request.argsz < sizeof request) return refuse(EINVAL, "argsz below the structure's size");
  if (request.index >= kIrqIndexCount) return refuse(EINVAL, "no such interrupt type");
  put_reply(interrupts_.info(request.index));
  return kDone;
}

MessageResult Session::device_set_irqs(const Message& message) {
  if (message.payload.size() < sizeof(IrqSet)) return refuse(EINVAL, "wrong message size");
  return interrupts_.set(load<IrqSet>(message.payload), message.payload.subspan(sizeof(IrqSet)),
                         message.fds);
}

MessageResult Session::region_read(const Message& message) {
  if (message.payload.size() != sizeof(RegionAccess)) return refuse(EINVAL, "wrong message size");
  const auto request = load<RegionAccess>(message.payload);
  if (auto v = check_access(function_, request); !v) return v;
  put_reply(request);
  reply_.resize(sizeof request + request.count);
  read_region(function_, request.region, request.offset, std::span(reply_).subspan(sizeof request));
  return kDone;
}

MessageResult Session::region_write(const Message& message) {
  if (message.payload.size() < sizeof(RegionAccess)) return refuse(EINVAL, "wrong message size");
  const auto request = load<RegionAccess>(message.payload);
  const auto data = message.payload.subspan(sizeof request);
  if (auto v = check_access(function_, request); !v) return v;
  if (data.size() != request.count) return refuse(EINVAL, "data does not match its count");
  write_region(function_, request.region, request.offset, data);
  put_reply(request);
  return kDone;
}

MessageResult Session::region_write_multi(const Message& message) {
  using Count = std::uint64_t;
  if (message.payload.size() < sizeof(Count)) return refuse(EINVAL, "wrong message size");
  const auto count = load<Count>(message.payload);
  const auto writes = message.payload.subspan(sizeof(Count));
  if (writes.size() % sizeof(RegionWriteOne) != 0 ||
      count != writes.size() / sizeof(RegionWriteOne)) {
    return refuse(EINVAL, "wr_cnt does not match the message size");
  }
  if (count > kMultiWritesMax) return refuse(E2BIG, "too many writes in one message");
  const auto one = [&](Count i) {
    return load<RegionWriteOne>(writes, i * sizeof(RegionWriteOne));
  };
  // All or nothing, because the client could not tell which writes were done.
  for (Count i = 0; i < count; ++i) {
    const auto write = one(i);
    if (write.count > sizeof write.data) return refuse(EINVAL, "a write of more than 8 bytes");
    // QEMU batches only posted writes, which are to BARs. Each write of config space may reset the
    // function, and no budget could stop a batch.
    if (write.region == kConfigRegion) return refuse(EINVAL, "config space in a batch");
    if (auto v = check_access(function_, {write.offset, write.region, write.count}); !v) return v;
  }
  for (Count i = 0; i < count; ++i) {
    const auto write = one(i);
    write_region(function_, write.region, write.offset, std::span(write.data).first(write.count));
  }
  put_reply(count);
  return kDone;
}

MessageResult Session::device_reset(const Message& message) {
  if (!message.payload.empty()) return refuse(EINVAL, "wrong message size");
  function_.reset();
  return kDone;
}

template <class T>
void Session::put_reply(const T& structure) {
  reply_.resize(sizeof structure);
  std::memcpy(reply_.data(), &structure, sizeof structure);
}

void Session::send_reply(const Header& command, const MessageResult& result) {
  Header header{.message_id = command.message_id,
                .command = command.command,
                .message_size = sizeof(Header),
                .flags = kTypeReply,
                .error = 0};
  if (!result) {
    header.flags |= kFlagError;
    header.error = static_cast<std::uint32_t>(result.error);
    reply_.clear();
    reply_fd_ = -1;
  }
  header.message_size += static_cast<std::uint32_t>(reply_.size());
  const auto fds = std::span<const int>(&reply_fd_, reply_fd_ >= 0 ? 1 : 0);
  bool sent = false;
  meter_.measure([&] {
    sent = stream_.send(header, reply_, {}, fds);
    return header.message_size;
  });
  if (!sent) end("the client is gone");
}

void Session::note_refusal(const Message& message, const MessageResult& result) {
  std::uint64_t held_back = 0;
  if (!host_.notes->refusals.allow(util::monotonic_now(), &held_back)) return;
  util::log(util::LogLevel::kWarning,
            "{}: vfio-user {} ({}) refused: {} ({}; {} like this not shown)", function_.name(),
            command_name(message.header.command), message.header.command, result.reason,
            std::strerror(result.error), held_back);
}

/// At most one line in some seconds, because no request is made meanwhile.
void Session::note_rest(const char* why) {
  util::log(util::LogLevel::kWarning,
            "{}: memory that the client shares by messages is not accessed for five seconds: {}",
            function_.name(), why);
}

void Session::end(const char* reason) {
  if (std::exchange(ended_, true)) return;
  std::uint64_t held_back = 0;
  if (!host_.notes->ends.allow(util::monotonic_now(), &held_back)) return;
  util::log(util::LogLevel::kInfo, "{}: vfio-user connection ended: {} ({} like this not shown)",
            function_.name(), reason, held_back);
}

}  // namespace softhca::vfio_user
