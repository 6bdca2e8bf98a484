// The input plays two clients of a server that has a third one. They send messages well and badly
// formed, with and without descriptors, in any order, cut anywhere, unrequested replies, and files
// that shrink.
// - The third client is honest. Its reads return what it has written, and its memory holds only
// what its function wrote. Its interrupts arrive, and it waits for a few turns at most.
// - No turn takes long.
// - Once all have left, nothing of them may remain: no mapping, no descriptor, no memory.
//
// The input is a sequence of records. The first byte of a record gives its action (see Action), its
// descriptors (see FdKind) and its client. The rest depends on the action.
#include <fcntl.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "oracle.h"
#include "script.h"
#include "util/log.h"
#include "vfio_user/serve_loop.h"
#include "vfio_user/server.h"
#include "vfio_user/test_function.h"

namespace {

using namespace softhca;
using fuzz::check;
using fuzz::Script;
using os::UniqueFd;
using vfio_user::MessageStream;
namespace protocol = vfio_user::protocol;

/// Low three bits of a record's first byte.
enum class Action : std::uint8_t {
  kRaw,        ///< length (2 bytes), bytes: sent unchanged
  kCommand,    ///< command, flags, length (2), payload: sent with a right header
  kReply,      ///< the same as the reply to the message with the next id
  kUnhandled,  ///< as kReply, but stays in the socket until something else is sent
  kVersion,    ///< a valid VERSION, and bus mastering for the function
  kRun,        ///< the functions run
  kShrink,     ///< pages (1): the new length of the shared file
  kLeave,      ///< the client leaves; its next record belongs to a new client
};

/// Next three bits. The highest two bits select the client.
enum class FdKind : std::uint8_t { kNone, kEventfd, kMemory, kPipe, kTwoEventfds, kTooMany, kFile };

constexpr std::size_t kPage = 4096;

UniqueFd make_memory(std::size_t pages) {
  UniqueFd fd(::memfd_create("fuzz", MFD_CLOEXEC));
  check(::ftruncate(fd.get(), static_cast<off_t>(pages * kPage)) == 0);
  return fd;
}

std::vector<std::byte> bytes_of(auto value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  return {bytes.begin(), bytes.end()};
}

std::vector<std::byte> operator+(std::vector<std::byte> first, std::span<const std::byte> second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

std::vector<std::byte> message(std::uint16_t id, protocol::Command command,
                               std::span<const std::byte> payload) {
  return bytes_of(protocol::Header{
             .message_id = id,
             .command = static_cast<std::uint16_t>(command),
             .message_size = static_cast<std::uint32_t>(sizeof(protocol::Header) + payload.size()),
             .flags = 0,
             .error = 0}) +
         payload;
}

std::vector<std::byte> version(std::uint16_t id) {
  static constexpr char kText[] =
      R"({"capabilities":{"max_msg_fds":16,"max_data_xfer_size":64,"write_multiple":true}})";
  return message(
      id, protocol::Command::kVersion,
      bytes_of(protocol::Version{.major = 0, .minor = 1}) + std::as_bytes(std::span(kText)));
}

/// The server. It is shared by all inputs, as a real one outlives its clients.
class Server {
 public:
  static constexpr unsigned kFunctions = 3;

  Server() {
    util::set_log_sink([](util::LogLevel, std::string_view) {});
    auto name = (std::filesystem::temp_directory_path() / "softhca-fuzz-XXXXXX").string();
    directory_ = ::mkdtemp(name.data());
    loop_ = *vfio_user::ServeLoop::create({.poll = util::Duration::zero()});
    for (unsigned i = 0; i != kFunctions; ++i) {
      functions_[i].shared_fd = shared_.get();
      loop_->add(functions_[i]);
      servers_[i] =
          *vfio_user::Server::listen(loop_->events(), functions_[i], path(i),
                                     {.reply_timeout = util::Duration::zero(), .max_maps = 64});
    }
  }
  ~Server() {
    for (auto& server : servers_) server.reset();
    std::filesystem::remove_all(directory_);
  }

  UniqueFd connect(unsigned function) {
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
    path(function).copy(address.sun_path, sizeof address.sun_path - 1);
    // There may be no room while clients that have left still wait to be removed.
    for (int turns = 0; true; ++turns) {
      const auto* const at = reinterpret_cast<const sockaddr*>(&address);
      if (::connect(fd.get(), at, sizeof address) == 0) break;
      check(errno == EAGAIN && turns != 1000);
      turn();
    }
    turn();
    return fd;
  }
  void turn() {
    const fuzz::Turn turn;
    loop_->turn(util::Time::min());
  }
  /// Called after all clients have left.
  void expect_nothing_left() {
    for (unsigned i = 0; i != kFunctions; ++i) {
      for (int turns = 0; servers_[i]->connected(); ++turns) {
        check(turns != 1000);
        turn();
      }
      check(functions_[i].dma().mappings().empty());
    }
  }

 private:
  std::string path(unsigned function) const {
    return directory_ / ("socket" + std::to_string(function));
  }

  std::filesystem::path directory_;
  UniqueFd shared_ = make_memory(16);
  std::array<test::TestFunction, kFunctions> functions_;
  std::unique_ptr<vfio_user::ServeLoop> loop_;
  std::array<std::unique_ptr<vfio_user::Server>, kFunctions> servers_;
};

class HonestClient {
 public:
  explicit HonestClient(Server& server) : server_(server), stream_(server.connect(0)) {
    pages_ = static_cast<std::byte*>(
        ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, memory_.get(), 0));
    check(pages_ != MAP_FAILED);
    std::memset(pages_, 0xa5, kSize);
    call(version(next_id()));
    const protocol::DmaMap map{.argsz = sizeof map,
                               .flags = protocol::kDmaMapReadable | protocol::kDmaMapWriteable,
                               .offset = 0,
                               .address = kAt,
                               .size = kSize};
    call(message(next_id(), protocol::Command::kDmaMap, bytes_of(map)), memory_.get());
    write(kConfigRegion, 4, std::uint16_t{6});                  // Memory Space, Bus Master Enable
    write(kConfigRegion, kMsixControl, std::uint16_t{0x8000});  // MSI-X Enable
    write(0, kVectorControl, std::uint32_t{0});
    const protocol::IrqSet irqs{.argsz = sizeof irqs,
                                .flags = protocol::kIrqSetDataEventfd | kActionTrigger,
                                .index = kMsixIndex,
                                .start = 0,
                                .count = 1};
    call(message(next_id(), protocol::Command::kDeviceSetIrqs, bytes_of(irqs)), interrupt_.get());
  }
  ~HonestClient() { ::munmap(pages_, kSize); }
  HonestClient(const HonestClient&) = delete;
  HonestClient& operator=(const HonestClient&) = delete;

  /// Registers, DMA and an interrupt.
  void work() {
    const auto number = ++worked_ * 0x9e3779b97f4a7c15;
    write(0, 8 * (worked_ % 64), number);
    check(read(0, 8 * (worked_ % 64)) == number);
    const auto place = 8 * (worked_ % (kSize / 8));
    write(0, test::TestFunction::kDmaTo, kAt + place);
    write(0, test::TestFunction::kDoorbell, std::uint32_t{0});
    server_.turn();
    server_.turn();
    const auto expected = bytes_of(test::TestFunction::kDmaPattern);
    check(std::memcmp(pages_ + place, expected.data(), expected.size()) == 0);
    std::memset(pages_ + place, 0xa5, 8);
    check(std::memcmp(pages_, pages_ + 1, kSize - 1) == 0 && *pages_ == std::byte{0xa5});
    std::uint64_t count = 0;
    check(::read(interrupt_.get(), &count, sizeof count) == sizeof count && count == 1);
  }

 private:
  static constexpr std::size_t kSize = kPage;
  static constexpr std::uint64_t kAt = 0x10000;
  static constexpr std::uint32_t kConfigRegion = 7;
  static constexpr std::uint64_t kMsixControl = 0x9e;
  static constexpr std::uint64_t kVectorControl = 0x2000 + 12;
  static constexpr std::uint32_t kMsixIndex = 2;
  static constexpr std::uint32_t kActionTrigger = 1u << 5;
  /// Turns in which others may be served first.
  static constexpr int kPatience = 20;

  std::uint16_t next_id() { return ++id_; }

  /// Returns the reply's payload.
  std::vector<std::byte> call(const std::vector<std::byte>& bytes, int fd = -1) {
    check(stream_.send_raw(bytes, std::span(&fd, fd < 0 ? 0 : 1)));
    for (int turns = 0; turns != kPatience; ++turns) {
      server_.turn();
      check(stream_.receive() != MessageStream::Received::kClosed);
      const auto reply = stream_.next();
      if (!reply) continue;
      check(reply->is_reply() && reply->header.message_id == id_ && reply->header.error == 0);
      return {reply->payload.begin(), reply->payload.end()};
    }
    std::abort();
  }
  template <class Value>
  void write(std::uint32_t region, std::uint64_t offset, Value value) {
    call(message(next_id(), protocol::Command::kRegionWrite,
                 bytes_of(protocol::RegionAccess{
                     .offset = offset, .region = region, .count = sizeof value}) +
                     bytes_of(value)));
  }
  std::uint64_t read(std::uint32_t region, std::uint64_t offset) {
    const protocol::RegionAccess access{.offset = offset, .region = region, .count = 8};
    const auto reply = call(message(next_id(), protocol::Command::kRegionRead, bytes_of(access)));
    check(reply.size() == sizeof access + 8);
    std::uint64_t value = 0;
    std::memcpy(&value, reply.data() + sizeof access, sizeof value);
    return value;
  }

  Server& server_;
  MessageStream stream_;
  UniqueFd memory_ = make_memory(kSize / kPage);
  UniqueFd interrupt_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::byte* pages_ = nullptr;
  std::uint16_t id_ = 0;
  std::uint64_t worked_ = 0;
};

/// A client whose messages come from the input.
class HostileClient {
 public:
  HostileClient(Server& server, unsigned function) : server_(server), function_(function) {
    int ends[2];
    check(::pipe2(ends, O_CLOEXEC) == 0);
    pipe_read_.reset(ends[0]);
    pipe_write_.reset(ends[1]);
  }

  void play(unsigned head, Script& script) {
    if (!stream_) stream_.emplace(server_.connect(function_));
    const auto action = static_cast<Action>(head & 7);
    const auto fds = descriptors(static_cast<FdKind>(head >> 3 & 7));
    switch (action) {
      case Action::kRaw:
        send(piece(script), fds);
        break;
      case Action::kCommand:
        send_message(script, protocol::kTypeCommand, fds);
        break;
      case Action::kReply:
      case Action::kUnhandled:
        send_message(script, protocol::kTypeReply, fds);
        break;
      case Action::kVersion:
        send(version(1), {});
        // Memory Space and Bus Master Enable, at 4 of config space.
        send(message(2, protocol::Command::kRegionWrite,
                     bytes_of(protocol::RegionAccess{.offset = 4, .region = 7, .count = 2}) +
                         bytes_of(std::uint16_t{6})),
             {});
        break;
      case Action::kRun:
        break;
      case Action::kShrink:
        check(::ftruncate(memory_.get(), static_cast<off_t>(script.byte() % 17 * kPage)) == 0);
        break;
      case Action::kLeave:
        stream_.reset();
        return server_.turn();
    }
    if (action == Action::kUnhandled) return;
    server_.turn();
    check_what_came_back();
  }

 private:
  static std::span<const std::byte> piece(Script& script) {
    return script.take(script.word() & 0xfff);
  }

  std::vector<int> descriptors(FdKind kind) const {
    switch (kind) {
      case FdKind::kEventfd:
        return {eventfd_.get()};
      case FdKind::kMemory:
        return {memory_.get()};
      case FdKind::kPipe:
        return {pipe_write_.get()};
      case FdKind::kTwoEventfds:
        return {eventfd_.get(), eventfd_.get()};
      case FdKind::kTooMany:
        return std::vector<int>(40, eventfd_.get());
      case FdKind::kFile:
        return {file_.get()};
      default:
        return {};
    }
  }

  void send(std::span<const std::byte> bytes, const std::vector<int>& fds) {
    if (!bytes.empty()) (void)stream_->send_raw(bytes, fds);
  }
  void send_message(Script& script, std::uint32_t type, const std::vector<int>& fds) {
    const auto command = script.byte();
    const auto flags = script.byte();
    const auto payload = piece(script);
    const protocol::Header header{
        .message_id = type == protocol::kTypeReply ? last_id_ : std::uint16_t{7},
        .command = command,
        .message_size = static_cast<std::uint32_t>(sizeof(protocol::Header) + payload.size()),
        .flags = type | (flags & ~protocol::kTypeMask),
        .error = 0};
    send(bytes_of(header) + payload, fds);
  }

  /// Whatever the server was sent, its replies must be well-formed.
  void check_what_came_back() {
    auto received = stream_->receive();
    for (; received == MessageStream::Received::kData; received = stream_->receive()) {
      while (const auto message = stream_->next()) {
        const auto& header = message->header;
        if (message->is_reply()) {
          const bool failed = header.flags & protocol::kFlagError;
          check(failed == (header.error != 0) && !(failed && !message->payload.empty()));
        } else {
          last_id_ = static_cast<std::uint16_t>(header.message_id + 1);
        }
      }
      check(!stream_->broken());
    }
    if (received == MessageStream::Received::kClosed) stream_.reset();
  }

  Server& server_;
  const unsigned function_;
  UniqueFd eventfd_{::eventfd(0, EFD_CLOEXEC)};
  UniqueFd memory_ = make_memory(16);
  UniqueFd file_{::open("/dev/null", O_RDWR | O_CLOEXEC)};
  UniqueFd pipe_read_;
  UniqueFd pipe_write_;
  std::optional<MessageStream> stream_;
  std::uint16_t last_id_ = 1;
};

std::ptrdiff_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

/// A thread of the server closes the descriptors that a client leaves.
void expect_descriptors(std::ptrdiff_t before) {
  for (int i = 0; open_descriptors() > before; ++i) {
    check(i != 5000);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void play(Server& server, Script script) {
  constexpr unsigned kRecordsMax = 256;
  const auto before = open_descriptors();
  {
    HonestClient honest(server);
    std::array<HostileClient, 2> others{HostileClient(server, 1), HostileClient(server, 2)};
    for (unsigned records = 0; !script.empty() && records != kRecordsMax; ++records) {
      const auto head = script.byte();
      others[head >> 6 & 1].play(head, script);
      if (records % 16 == 15) honest.work();
    }
    honest.work();
  }
  server.expect_nothing_left();
  expect_descriptors(before);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Server server;
  // Opens what is opened only once, before descriptors are counted.
  [[maybe_unused]] static const bool warm = [] {
    HonestClient(server).work();
    server.expect_nothing_left();
    return true;
  }();
  return fuzz::run_input([&] { play(server, Script(data, size)); });
}
