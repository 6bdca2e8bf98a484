// A small vfio-user client that acts as a VMM, for tests and tools. Blocking, one request at a
// time.
//
// While it waits for a reply, it answers the server's DMA_READ and DMA_WRITE from memory that was
// mapped without a descriptor.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "util/result.h"
#include "vfio_user/message_stream.h"
#include "vfio_user/protocol.h"

namespace softhca::vfio_user {

class Client {
 public:
  struct Options {
    util::Duration timeout = std::chrono::seconds(5);
    /// Called repeatedly while a reply is awaited: runs a server in the same thread.
    std::function<void()> pump = {};
  };

  /// A reply, or the server's refusal.
  struct Reply {
    std::uint32_t error = 0;  ///< errno; 0: none
    std::vector<std::byte> payload;
    std::vector<os::UniqueFd> fds;
  };

  /// Connects, without sending anything.
  static util::Result<Client> connect(const std::string& path, Options options);

  /// Sends VERSION with `json` as version data. Returns the server's version data.
  util::Result<std::string> negotiate(
      const std::string& json = R"({"capabilities":{"max_msg_fds":16,"write_multiple":true}})");

  /// Each returns the errno of the reply, or -1 if no reply arrived.
  int map_dma(std::uint64_t address, std::uint64_t size, int fd, std::uint64_t offset,
              std::uint32_t flags = protocol::kDmaMapReadable | protocol::kDmaMapWriteable);
  /// Maps `memory`, which the client serves by messages. It must not move until it is unmapped.
  int map_remote_dma(std::uint64_t address, std::span<std::byte> memory);
  int unmap_dma(std::uint64_t address, std::uint64_t size);
  int read_region(std::uint32_t region, std::uint64_t offset, std::span<std::byte> out);
  int write_region(std::uint32_t region, std::uint64_t offset, std::span<const std::byte> in);
  /// Requests no reply. False if the message cannot be sent.
  bool post_region(std::uint32_t region, std::uint64_t offset, std::span<const std::byte> in);
  int set_irqs(std::uint32_t flags, std::uint32_t index, std::uint32_t start, std::uint32_t count,
               std::span<const std::byte> data = {}, std::span<const int> fds = {});
  int reset();

  /// Sends any command with any payload. Fails if no reply arrives.
  util::Result<Reply> call(protocol::Command command, std::span<const std::byte> payload,
                           std::span<const int> fds = {}, std::uint32_t flags = 0);
  template <class T>
    requires(!std::is_convertible_v<const T&, std::span<const std::byte>>)
  util::Result<Reply> call(protocol::Command command, const T& payload,
                           std::span<const int> fds = {}) {
    return call(command, std::as_bytes(std::span(&payload, 1)), fds);
  }

  /// Sends the bytes unchanged.
  bool send_raw(std::span<const std::byte> bytes, std::span<const int> fds = {});
  /// Returns the next reply, to whichever request.
  util::Result<Reply> receive_reply();
  /// Waits until the server has closed the connection. False if it did not within the timeout.
  bool wait_closed();
  /// Answers the server's commands already received, without waiting. False if the server has gone.
  bool serve();
  /// Answers the server's commands until `done`, for a test whose server runs in another thread.
  void serve_until(const std::function<bool()>& done);
  int fd() const { return stream_.fd(); }

 private:
  Client(os::UniqueFd socket, Options options)
      : stream_(std::move(socket)), options_(std::move(options)) {}

  bool wait(util::Time deadline);
  /// Sends everything, or fails. The server works meanwhile.
  bool send(const protocol::Header& header, std::span<const std::byte> first,
            std::span<const std::byte> second = {}, std::span<const int> fds = {});
  bool drain();
  void answer(const Message& command);
  static int error_of(const util::Result<Reply>& reply);

  MessageStream stream_;
  Options options_;
  std::uint16_t message_id_ = 0;
  std::map<std::uint64_t, std::span<std::byte>> remote_memory_;
};

}  // namespace softhca::vfio_user
