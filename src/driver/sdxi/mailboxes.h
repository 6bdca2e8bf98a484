// Messages of 16 bytes between a PF and its VFs (SDXI 9.4).
//
//   Mailboxes pf(*pf_function), vf(*vf_function);
//   pf.send(0, message);                          // to VF 0
//   auto message = vf.wait(Mailboxes::kPf);       // at VF 0
//
// What the messages say is up to both sides. A mailbox holds one message at a time: the next one
// waits until the peer has taken the last.
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
  /// The number of the other side, where the function is a VF.
  static constexpr std::uint16_t kPf = 0;

  /// `function` outlives this.
  explicit Mailboxes(Function& function) : function_(function) {}

  /// `peer` is kPf or, on a PF, the number of a VF. Waits while the last message to it is not
  /// taken, and fails if it is not within the function's patience.
  util::Result<void> send(std::uint16_t peer, const Message& message);
  /// True if the last message to `peer` was taken, or there was none.
  bool taken(std::uint16_t peer);

  /// Takes the message of `peer`, if there is one.
  std::optional<Message> receive(std::uint16_t peer);
  /// Waits for one.
  util::Result<Message> wait(std::uint16_t peer);

  /// Interrupt 0 comes when a message is taken, or when one arrives.
  void set_interrupts(bool when_taken, bool when_arrived);

 private:
  std::uint64_t read(std::uint64_t at);
  void write(std::uint64_t at, std::uint64_t value);

  Function& function_;
  std::set<std::uint16_t> sent_;  ///< peers that have not taken their message, as far as we know
};

}  // namespace softhca::driver::sdxi
