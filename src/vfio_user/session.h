// One client's connection to one function: receives its messages, executes them and replies.
//
// The memory, interrupts and state that a client gave to a function end with its session.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "os/event_loop.h"
#include "os/janitor.h"
#include "os/unix_socket.h"
#include "pcie/function.h"
#include "util/log.h"
#include "util/work_budget.h"
#include "vfio_user/capabilities.h"
#include "vfio_user/client_interrupts.h"
#include "vfio_user/client_memory.h"
#include "vfio_user/message_result.h"
#include "vfio_user/message_stream.h"
#include "vfio_user/remote_memory.h"
#include "vfio_user/wakeup_meter.h"

namespace softhca::vfio_user {

struct SessionOptions {
  /// Time limit of one access to memory that only the client can reach.
  util::Duration reply_timeout = std::chrono::milliseconds(100);
  /// The client's share of the maps and of the descriptors of the process.
  std::size_t max_maps = kMaxDmaMaps;
  std::size_t max_eventfds = 4096;
  /// Clocks for the client's wakeups. `now` is also that of the reply timeout.
  WakeupMeter::Clocks clocks = {};
  os::SocketAccess socket = {};  ///< permissions of the server's socket
};

/// Limits the log lines that clients of a server cause, however often they connect.
struct ClientNotes {
  util::RateLimiter refusals{10, std::chrono::seconds(1)};
  util::RateLimiter ends{10, std::chrono::seconds(1)};
};

/// Parts of the server that a session uses.
struct SessionHost {
  ClientNotes* notes = nullptr;           ///< not null
  os::EventLoop::Notice* more = nullptr;  ///< raised when messages are queued that no poll reports
  os::EventLoop::Notice* lost = nullptr;  ///< raised when lost() has a reason
  os::Janitor* janitor = nullptr;         ///< null: the session releases everything itself
  RemoteWaits* waits = nullptr;           ///< not null
};

class Session {
 public:
  Session(pcie::Function& function, os::UniqueFd socket, const SessionHost& host,
          const SessionOptions& options);
  /// Resets the function and removes all of the client's memory and interrupts from it.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int fd() const { return stream_.fd(); }

  /// Called when the socket has data, or its end. Handles messages until none is complete, or
  /// `budget` is spent, or the client does not read its replies. False if the connection has ended.
  bool handle_readable(util::WorkBudget& budget);
  /// The same for messages already received.
  bool handle_queued(util::WorkBudget& budget);
  /// The same when the socket accepts output again.
  bool handle_writable(util::WorkBudget& budget);
  /// Events for which the socket must be watched (EPOLLIN or EPOLLOUT): no message is handled
  /// before all earlier replies are sent. 0: none, until the janitor has released something.
  std::uint32_t wanted_events() const;
  /// Why the client has lost its session, outside of its messages; null: it has not.
  const char* lost() const;

 private:
  void handle(const Message& message, util::WorkBudget& budget);
  MessageResult check_header(const Message& message) const;
  MessageResult dispatch(const Message& message);

  MessageResult version(const Message& message);
  MessageResult dma_map(const Message& message);
  MessageResult dma_unmap(const Message& message);
  MessageResult device_get_info(const Message& message);
  MessageResult device_get_region_info(const Message& message);
  MessageResult device_get_region_io_fds(const Message& message);
  MessageResult device_get_irq_info(const Message& message);
  MessageResult device_set_irqs(const Message& message);
  MessageResult region_read(const Message& message);
  MessageResult region_write(const Message& message);
  MessageResult region_write_multi(const Message& message);
  MessageResult device_reset(const Message& message);

  template <class T>
  void put_reply(const T& structure);
  void send_reply(const protocol::Header& command, const MessageResult& result);
  void note_refusal(const Message& message, const MessageResult& result);
  void note_rest(const char* why);
  void end(const char* reason);

  void note_more();
  bool has_room() const;

  pcie::Function& function_;
  SessionHost host_;
  SessionOptions options_;
  MessageStream stream_;
  ClientRemoteMemory remote_;
  WakeupMeter meter_;
  ClientMemory memory_;
  ClientInterrupts interrupts_;
  bool negotiated_ = false;
  bool ended_ = false;
  std::vector<std::byte> reply_;  ///< payload of the reply being built
  int reply_fd_ = -1;             ///< sent with it; not owned
  std::string version_reply_;
};

}  // namespace softhca::vfio_user
