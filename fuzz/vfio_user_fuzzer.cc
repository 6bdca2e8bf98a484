// Bytes become a client: messages well and badly formed, with and without descriptors, in any
// order, cut anywhere, towards a function that does DMA and raises interrupts.
//
// The input is a sequence of records. The first byte of a record says what it is (see Action) and
// which descriptors go with it (see FdKind); the rest depends on the action. After the input the
// client goes away, and nothing of it may stay: no mapping, no descriptor.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <span>
#include <vector>

#include "util/log.h"
#include "vfio_user/session.h"
#include "vfio_user/test_function.h"

namespace {

using namespace softhca;
using vfio_user::MessageStream;
using vfio_user::UniqueFd;
namespace protocol = vfio_user::protocol;

/// Low three bits of a record's first byte.
enum class Action : std::uint8_t {
  kRaw,        ///< length (2 bytes), bytes: sent as they are
  kCommand,    ///< command, flags, length (2), payload: sent with a right header
  kReply,      ///< the same as the reply to the message with the next id
  kUnhandled,  ///< as kReply, but left in the socket until the function runs
  kVersion,    ///< a good VERSION
  kRun,        ///< the function runs
};

/// Next three bits.
enum class FdKind : std::uint8_t { kNone, kEventfd, kMemory, kPipe, kTwoEventfds, kTooMany, kFile };

class Input {
 public:
  explicit Input(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}
  bool empty() const { return bytes_.empty(); }
  std::uint8_t byte() {
    if (bytes_.empty()) return 0;
    const auto value = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return value;
  }
  std::span<const std::byte> take() {
    const auto low = byte();
    const auto wanted = static_cast<std::size_t>(low | (byte() & 0x0f) << 8);
    const auto part = bytes_.first(std::min(wanted, bytes_.size()));
    bytes_ = bytes_.subspan(part.size());
    return std::as_bytes(part);
  }

 private:
  std::span<const std::uint8_t> bytes_;
};

struct Descriptors {
  UniqueFd eventfd{::eventfd(0, EFD_CLOEXEC)};
  UniqueFd memory{::memfd_create("fuzz", MFD_CLOEXEC)};
  UniqueFd file{::open("/dev/null", O_RDWR | O_CLOEXEC)};
  UniqueFd pipe_read;
  UniqueFd pipe_write;

  Descriptors() {
    if (::ftruncate(memory.get(), 16 * 4096) != 0) std::abort();
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) std::abort();
    pipe_read.reset(ends[0]);
    pipe_write.reset(ends[1]);
  }

  std::vector<int> of(FdKind kind) const {
    switch (kind) {
      case FdKind::kEventfd:
        return {eventfd.get()};
      case FdKind::kMemory:
        return {memory.get()};
      case FdKind::kPipe:
        return {pipe_write.get()};
      case FdKind::kTwoEventfds:
        return {eventfd.get(), eventfd.get()};
      case FdKind::kTooMany:
        return std::vector<int>(40, eventfd.get());
      case FdKind::kFile:
        return {file.get()};
      default:
        return {};
    }
  }
};

const Descriptors& descriptors() {
  static const Descriptors instance;
  return instance;
}

/// Sends what fits; a fuzzer must not wait.
void send_with_fds(int socket, std::span<const std::byte> bytes, const std::vector<int>& fds) {
  if (bytes.empty()) return;
  iovec io{.iov_base = const_cast<std::byte*>(bytes.data()), .iov_len = bytes.size()};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int) * 64)> control{};
  msghdr message{};
  message.msg_iov = &io;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
    auto* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    std::memcpy(CMSG_DATA(head), fds.data(), sizeof(int) * fds.size());
  }
  [[maybe_unused]] const auto sent = ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

class FuzzedClient {
 public:
  FuzzedClient() {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
      std::abort();
    peer_.emplace(UniqueFd(ends[1]));
    function_.shared_fd = descriptors().memory.get();
    session_.emplace(function_, UniqueFd(ends[0]), vfio_user::SessionHost{},
                     vfio_user::SessionOptions{.reply_timeout = util::Duration::zero()});
  }
  ~FuzzedClient() {
    session_.reset();
    if (!function_.dma().mappings().empty()) std::abort();
  }

  /// False when the server has closed the connection.
  bool play(Input& input) {
    const auto what = input.byte();
    const auto action = static_cast<Action>(what & 7);
    const auto fds = descriptors().of(static_cast<FdKind>(what >> 3 & 7));
    switch (action) {
      case Action::kRaw:
        send_with_fds(peer_->fd(), input.take(), fds);
        break;
      case Action::kCommand:
        send_message(input, protocol::kTypeCommand, fds);
        break;
      case Action::kReply:
      case Action::kUnhandled:
        send_message(input, protocol::kTypeReply, fds);
        break;
      case Action::kVersion:
        send_version();
        break;
      case Action::kRun:
        break;
    }
    bool alive = true;
    util::WorkBudget budget(std::int64_t{1} << 40);
    if (action == Action::kUnhandled || action == Action::kRun) {
      function_.run(util::Time{});
      alive = session_->handle_queued(budget);
    }
    if (action != Action::kUnhandled) alive = alive && session_->handle_readable(budget);
    check_what_came_back();
    return alive;
  }

 private:
  void send_message(Input& input, std::uint32_t type, const std::vector<int>& fds) {
    const auto command = input.byte();
    const auto flags = input.byte();
    const auto payload = input.take();
    const protocol::Header header{
        .message_id = type == protocol::kTypeReply ? last_id_ : std::uint16_t{7},
        .command = command,
        .message_size = static_cast<std::uint32_t>(sizeof(protocol::Header) + payload.size()),
        .flags = type | (flags & ~protocol::kTypeMask),
        .error = 0};
    std::vector<std::byte> bytes(header.message_size);
    std::memcpy(bytes.data(), &header, sizeof header);
    std::copy(payload.begin(), payload.end(), bytes.begin() + sizeof header);
    send_with_fds(peer_->fd(), bytes, fds);
  }

  void send_version() {
    static constexpr char kText[] =
        R"({"capabilities":{"max_msg_fds":16,"max_data_xfer_size":64,"write_multiple":true}})";
    const protocol::Version version{.major = 0, .minor = 1};
    const protocol::Header header{
        .message_id = 1,
        .command = static_cast<std::uint16_t>(protocol::Command::kVersion),
        .message_size = sizeof header + sizeof version + sizeof kText,
        .flags = 0,
        .error = 0};
    peer_->send(header, std::as_bytes(std::span(&version, 1)), std::as_bytes(std::span(kText)));
  }

  /// Whatever the server was told, what it says is well-formed.
  void check_what_came_back() {
    while (peer_->receive() == MessageStream::Received::kData) {
      while (const auto message = peer_->next()) {
        const auto& header = message->header;
        if (message->is_reply()) {
          const bool failed = header.flags & protocol::kFlagError;
          if (failed != (header.error != 0) || (failed && !message->payload.empty())) std::abort();
        } else {
          last_id_ = static_cast<std::uint16_t>(header.message_id + 1);
        }
      }
      if (peer_->broken()) std::abort();
    }
  }

  testing::TestFunction function_;
  std::optional<MessageStream> peer_;
  std::optional<vfio_user::Session> session_;
  std::uint16_t last_id_ = 1;
};

/// The lowest descriptor that is free.
int lowest_free_fd() {
  const UniqueFd probe(::dup(STDERR_FILENO));
  return probe.get();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  util::set_log_sink([](util::LogLevel, std::string_view) {});
  descriptors();
  const auto free_before = lowest_free_fd();
  {
    FuzzedClient client;
    Input input({data, size});
    for (unsigned records = 0; !input.empty() && records < 256; ++records) {
      if (!client.play(input)) break;
    }
  }
  if (lowest_free_fd() != free_before) std::abort();
  return 0;
}
