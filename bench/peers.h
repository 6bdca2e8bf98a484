// Upper bounds for two processors: a ring of messages, and a cache line that bounces between them.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <thread>
#include <vector>

namespace softhca::bench {

/// Pins the calling thread, or that of `handle`, to one processor. No effect if the processor does
/// not exist.
void pin_this_thread(unsigned cpu);
void pin_thread(std::thread::native_handle_type handle, unsigned cpu);

/// Hints to the processor that this is a spin loop.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// 64 bytes, on a cache line of their own.
struct alignas(64) Message {
  std::array<std::uint64_t, 8> words{};
};

/// A bare ring with one producer and one consumer. Each side reads the other's index only when it
/// must, and publishes its own once per batch.
class MessageRing {
 public:
  explicit MessageRing(std::size_t entries) : slots_(entries) {}

  /// Waits until there is room.
  void send(std::span<const Message> messages);
  /// Waits for at least one message. Returns how many were copied to `out`.
  std::size_t receive(std::span<Message> out, const std::atomic<bool>& ending);

 private:
  std::vector<Message> slots_;
  struct alignas(64) {
    std::atomic<std::uint64_t> index = 0;
    std::uint64_t others = 0;  ///< the other side's index, as last read
  } produced_, consumed_;
};

/// The other end of a MessageRing and of a PingPong, in its own thread.
class Echo {
 public:
  explicit Echo(unsigned cpu);
  ~Echo();
  Echo(const Echo&) = delete;
  Echo& operator=(const Echo&) = delete;

  /// Sends `n` messages, `batch` at a time, and waits until the last has arrived.
  void send(std::uint64_t n, std::size_t batch);
  /// `n` round trips.
  void ping_pong(std::uint64_t n);

 private:
  enum class Mode : int { kRest, kReceive, kPingPong, kEnd };

  void serve(unsigned cpu);
  void receive();
  void answer();
  void begin(Mode mode);

  MessageRing ring_{1024};
  alignas(64) std::atomic<std::uint64_t> ball_ = 0;
  alignas(64) std::atomic<std::uint64_t> received_ = 0;
  std::uint64_t sent_ = 0;
  std::uint64_t hits_ = 0;
  std::atomic<bool> leaving_ = false;
  std::atomic<Mode> mode_ = Mode::kRest;
  std::atomic<Mode> doing_ = Mode::kRest;
  std::thread thread_;
};

}  // namespace softhca::bench
