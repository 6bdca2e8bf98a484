// Messages of 16 bytes between a PF and its VFs (SDXI 9.4).
//
//   Mailboxes pf(*pf_function), vf(*vf_function);
//   pf.send(0, message);                          // to VF 0
//   auto message = vf.wait(Mailboxes::kPf);       // at VF 0
//
// Both sides define the contents of the messages. A mailbox holds one message: the next one waits
// until the peer has taken the last.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>

#include "driver/sdxi/function.h"

namespace softhca::driver::sdxi {

class Mailboxes {
 public:
  using Message = std::array<std::byte, 16>;
  /// The number of the other side, if the function is a VF.
  static constexpr std::uint16_t kPf = 0;

  /// `function` outlives this.
  explicit Mailboxes(Function& function) : function_(function) {}

  /// `peer` is kPf or, on a PF, the number of a VF. Waits until the last message to it was taken,
  /// and fails if that takes longer than the function's patience.
  util::Result<void> send(std::uint16_t peer, const Message& message);
  /// True if the last message to `peer` was taken, or none was sent.
  bool taken(std::uint16_t peer);

  /// Takes the message of `peer`, if there is one.
  std::optional<Message> receive(std::uint16_t peer);
  util::Result<Message> wait(std::uint16_t peer);

  /// Enables interrupt 0 for messages that the peer has taken, and for messages that arrive.
  void set_interrupts(bool when_taken, bool when_arrived);

 private:
  std::uint64_t read(std::uint64_t at);
  void write(std::uint64_t at, std::uint64_t value);

  Function& function_;
  std::set<std::uint16_t> sent_;  ///< peers not known to have taken their message
};

}  // namespace softhca::driver::sdxi
