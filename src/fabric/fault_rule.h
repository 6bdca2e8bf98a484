// A rule that makes the network fail, as users write it: the frames of a port that it matches, and
// what happens to them.
//
//   port=nic0,direction=rx,qp=0x112,opcode=read-response,nth=3,do=lose
//
// fault_table.h has the keys and the actions as one table.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "util/clock.h"
#include "util/result.h"
#include "util/rule_words.h"
#include "wire/gid.h"
#include "wire/ids.h"
#include "wire/mac_address.h"

namespace softhca::fabric {

enum class FaultAction : std::uint8_t {
  kLose,
  kDuplicate,
  kReorder,  ///< later frames pass it
  kDelay,
  kCorrupt,
  kMarkEcn,   ///< the ECN field says that the frame met congestion
  kLimit,     ///< frames leave at a rate, and wait in a queue of limited size
  kPause,     ///< as a PAUSE frame of the link partner
  kLinkDown,  ///< no frame passes, and the device sees the link down
};

/// As the device sees it.
enum class Direction : std::uint8_t { kTx, kRx, kBoth };

enum class FrameKind : std::uint8_t {
  kRdma,  ///< a packet of the InfiniBand transport, on any link
  kIp,
  kArp,
  kOther,
};

enum class FramePart : std::uint8_t { kHeader, kPayload, kIcrc };

/// An address in a frame: of its link, or of the network.
using FrameAddress = std::variant<wire::MacAddress, wire::Gid, wire::Lid>;

struct FaultRule {
  /// More would let a frame wait without end.
  static constexpr unsigned kDistanceMax = 1000;

  // The frames that it matches.
  std::string port;  ///< the device's name; "*": every port
  Direction direction = Direction::kTx;
  std::optional<std::uint32_t> qp = {};   ///< destination of the packet
  std::string opcode = {};                ///< its name or its group's; empty: any
  std::bitset<256> opcodes = {};          ///< those of `opcode`
  std::optional<FrameAddress> from = {};  ///< source
  std::optional<FrameAddress> to = {};    ///< destination
  std::optional<FrameKind> kind = {};
  util::RuleTurns turns = {};
  double probability = 1;
  util::Duration window{};  ///< from the first frame that it acts on; 0: no end
  std::uint64_t seed = 1;   ///< of its random numbers

  FaultAction action = FaultAction::kLose;
  util::Duration time{};    ///< of delay, pause and link-down
  util::Duration jitter{};  ///< of delay: at most this much more
  util::Duration period{};  ///< of link-down: the time between two; 0: once
  unsigned distance = 1;    ///< of reorder: frames that pass
  FramePart part = FramePart::kPayload;
  std::uint64_t rate = 0;                   ///< of limit, in bits per second
  std::optional<std::uint64_t> queue = {};  ///< of limit and mark-ecn, in bytes

  /// True if the rule does not wait for a frame: its link goes down when the rule is added.
  bool acts_at_once() const;
  bool applies_to(std::string_view name) const { return port == "*" || port == name; }
};

/// True if the text is a rule of the network, and not of a device: it begins with its port.
bool is_network_rule(std::string_view text);
util::Result<FaultRule> parse_fault(std::string_view text);
/// Formats the rule as text that parse_fault() accepts.
std::string to_text(const FaultRule& rule);

/// The rule of --loss: every frame that a device sends is lost with this probability.
FaultRule loss_rule(double probability, std::uint64_t seed);

}  // namespace softhca::fabric
