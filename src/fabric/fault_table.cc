#include "fabric/fault_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "fabric/fault_values.h"

namespace softhca::fabric {
namespace {

using util::Result;
using util::RuleWord;

template <class T>
using Names = std::span<const std::pair<std::string_view, T>>;

constexpr std::array<std::pair<std::string_view, Direction>, 3> kDirections{
    {{"tx", Direction::kTx}, {"rx", Direction::kRx}, {"both", Direction::kBoth}}};
constexpr std::array<std::pair<std::string_view, FrameKind>, 4> kFrameKinds{
    {{"rdma", FrameKind::kRdma},
     {"ip", FrameKind::kIp},
     {"arp", FrameKind::kArp},
     {"other", FrameKind::kOther}}};
constexpr std::array<std::pair<std::string_view, FramePart>, 3> kParts{
    {{"header", FramePart::kHeader}, {"payload", FramePart::kPayload}, {"icrc", FramePart::kIcrc}}};

template <class T>
Result<void> choose(T& out, RuleWord word, Names<T> names, std::string_view what) {
  std::vector<std::string_view> known;
  for (const auto& [name, value] : names) {
    known.push_back(name);
    if (name != word.value) continue;
    out = value;
    return {};
  }
  return tl::unexpected(util::unknown_name(word, what, known));
}

template <class T>
std::string name_of(T value, Names<T> names) {
  for (const auto& [name, is] : names) {
    if (is == value) return std::string(name);
  }
  return {};
}

/// Stores the value, or fails with what the key wants.
template <class Out, class In>
Result<void> store(Out& out, const std::optional<In>& value, RuleWord word, std::string_view what) {
  if (!value) return tl::unexpected(util::wants(word, what));
  out = *value;
  return {};
}

template <class Out, class In>
Result<void> store(Out& out, const Result<In>& value) {
  if (!value) return tl::unexpected(value.error());
  out = *value;
  return {};
}

/// Zero is no time: to_text() leaves it out.
Result<util::Duration> positive_time(RuleWord word) {
  auto time = util::rule_time(word);
  if (time && *time == util::Duration::zero()) {
    return tl::unexpected(util::wants(word, "e.g. 50us, 20ms or 3s"));
  }
  return time;
}

constexpr std::string_view kAddress =
    "a MAC, an IPv4 or IPv6 address, or the LID of an InfiniBand link";
constexpr std::uint32_t kQpMax = (1u << 24) - 1;

Result<void> set_opcode(FaultRule& rule, RuleWord word) {
  const auto found = find_opcodes(word.value);
  if (!found) {
    return util::fail(fmt::format(
        "opcode={}: no opcode of this name; they are called as in IBTA 9.2.1, e.g. RC_SEND_ONLY, "
        "and there are the groups {}",
        word.value, opcode_groups()));
  }
  rule.opcode = word.value;
  rule.opcodes = *found;
  return {};
}

Result<void> set_kind(FaultRule& rule, RuleWord word) {
  FrameKind kind{};
  if (auto good = choose<FrameKind>(kind, word, kFrameKinds, "kind of frame"); !good) return good;
  rule.kind = kind;
  return {};
}

std::string number_text(std::uint64_t number, std::uint64_t usual) {
  return number == usual ? std::string() : fmt::format("{}", number);
}

std::string duration_text(util::Duration time) {
  return time == util::Duration::zero() ? std::string() : util::time_text(time);
}

const std::array<FaultKey, 12> kMatchKeys{{
    {"port", "NAME or *", "the port of this device, or every port",
     [](FaultRule& rule, RuleWord word) -> Result<void> {
       if (word.value.empty()) return util::fail("port= is empty");
       rule.port = word.value;
       return {};
     },
     [](const FaultRule& rule) { return rule.port; }},
    {"direction", "tx, rx or both",
     "frames that the device sends or receives; without the key, those that it sends",
     [](FaultRule& rule, RuleWord word) {
       return choose<Direction>(rule.direction, word, kDirections, "direction");
     },
     [](const FaultRule& rule) {
       return rule.direction == Direction::kTx ? std::string()
                                               : name_of<Direction>(rule.direction, kDirections);
     }},
    {"qp", "N", "packets to this QP (destination QP of the BTH)",
     [](FaultRule& rule, RuleWord word) {
       return store(rule.qp, util::rule_number<std::uint32_t>(word, 0, kQpMax));
     },
     [](const FaultRule& rule) {
       return rule.qp ? fmt::format("{:#x}", *rule.qp) : std::string();
     }},
    {"opcode", "NAME", "packets with this opcode (IBTA 9.2.1), or of this group of opcodes",
     set_opcode, [](const FaultRule& rule) { return rule.opcode; }},
    {"from", "ADDRESS", "frames from this address",
     [](FaultRule& rule, RuleWord word) {
       return store(rule.from, parse_address(word.value), word, kAddress);
     },
     [](const FaultRule& rule) { return rule.from ? address_text(*rule.from) : std::string(); }},
    {"to", "ADDRESS", "frames to this address",
     [](FaultRule& rule, RuleWord word) {
       return store(rule.to, parse_address(word.value), word, kAddress);
     },
     [](const FaultRule& rule) { return rule.to ? address_text(*rule.to) : std::string(); }},
    {"kind", "rdma, ip, arp or other",
     "packets of the InfiniBand transport, other IP packets, ARP, or the rest", set_kind,
     [](const FaultRule& rule) {
       return rule.kind ? name_of<FrameKind>(*rule.kind, kFrameKinds) : std::string();
     }},
    {"nth", "N", "only the Nth of the frames that the other keys match; with `for`, from it on",
     [](FaultRule& rule, RuleWord word) { return util::apply_turns(rule.turns, word); },
     [](const FaultRule& rule) { return number_text(rule.turns.nth, 0); }},
    {"every", "N", "every Nth of them",
     [](FaultRule& rule, RuleWord word) { return util::apply_turns(rule.turns, word); },
     [](const FaultRule& rule) { return number_text(rule.turns.every, 0); }},
    {"probability", "P", "each of them with this probability",
     [](FaultRule& rule, RuleWord word) {
       return store(rule.probability, parse_probability(word.value), word,
                    "a number above 0, at most 1");
     },
     [](const FaultRule& rule) {
       return rule.probability == 1 ? std::string() : fmt::format("{}", rule.probability);
     }},
    {"for", "TIME", "only so long, from the first frame on that it acts on",
     [](FaultRule& rule, RuleWord word) { return store(rule.window, positive_time(word)); },
     [](const FaultRule& rule) { return duration_text(rule.window); }},
    {"seed", "N", "the seed of its random numbers; 1 without the key",
     [](FaultRule& rule, RuleWord word) {
       return store(rule.seed, util::rule_number<std::uint64_t>(word));
     },
     [](const FaultRule& rule) { return number_text(rule.seed, 1); }},
}};

const std::array<FaultKey, 7> kArgumentKeys{{
    {"time", "TIME", "e.g. 50us, 20ms or 3s",
     [](FaultRule& rule, RuleWord word) { return store(rule.time, positive_time(word)); },
     [](const FaultRule& rule) { return duration_text(rule.time); }},
    {"jitter", "TIME", "up to so much more, at random",
     [](FaultRule& rule, RuleWord word) { return store(rule.jitter, positive_time(word)); },
     [](const FaultRule& rule) { return duration_text(rule.jitter); }},
    {"period", "TIME", "from one to the next",
     [](FaultRule& rule, RuleWord word) { return store(rule.period, positive_time(word)); },
     [](const FaultRule& rule) { return duration_text(rule.period); }},
    {"distance", "N", "how many frames pass it",
     [](FaultRule& rule, RuleWord word) {
       return store(rule.distance,
                    util::rule_number<std::uint32_t>(word, 1, FaultRule::kDistanceMax));
     },
     [](const FaultRule& rule) { return number_text(rule.distance, 1); }},
    {"part", "header|payload|icrc", "where a bit flips",
     [](FaultRule& rule, RuleWord word) {
       return choose<FramePart>(rule.part, word, kParts, "part of a frame");
     },
     [](const FaultRule& rule) { return name_of<FramePart>(rule.part, kParts); }},
    {"rate", "RATE", "bits per second, e.g. 100mbit or 1gbit",
     [](FaultRule& rule, RuleWord word) {
       return store(rule.rate, parse_rate(word.value), word, "e.g. 500kbit, 100mbit or 1gbit");
     },
     [](const FaultRule& rule) { return rate_text(rule.rate); }},
    {"queue", "BYTES", "e.g. 64K",
     [](FaultRule& rule, RuleWord word) {
       return store(rule.queue, parse_size(word.value), word,
                    "a number of bytes, e.g. 1500 or 64K; at most 16M");
     },
     [](const FaultRule& rule) { return rule.queue ? size_text(*rule.queue) : std::string(); }},
}};

constexpr std::array<FaultKind, 9> kKinds{{
    {FaultAction::kLose,
     "lose",
     {},
     {},
     "the frame is lost",
     "a retry after the ACK timeout (`local_ack_timeout_err`) or a NAK (`packet_seq_err`; at the "
     "receiver `out_of_sequence`); if all retries are lost, status 12, retry counter exceeded. UD "
     "and UC: the "
     "message "
     "does not arrive"},
    {FaultAction::kDuplicate,
     "duplicate",
     {},
     {},
     "the frame arrives twice",
     "nothing with RC (`duplicate_request` at the responder); the datagram twice with UD"},
    {FaultAction::kReorder,
     "reorder",
     {},
     {"distance"},
     "the next frames pass it, N of them (1 without `distance`); it waits for them 100 us at most",
     "a NAK and a retry (`out_of_sequence`, `packet_seq_err`)"},
    {FaultAction::kDelay,
     "delay",
     {"time"},
     {"jitter"},
     "the frame arrives later; those of one rule keep their order, others pass",
     "latency; a retry if it is longer than the ACK timeout"},
    {FaultAction::kCorrupt,
     "corrupt",
     {"part"},
     {},
     "one bit is wrong: of the BTH's destination QP (of another frame's first header), of the "
     "payload, "
     "or of the ICRC. The ICRC stays that of the right packet",
     "as a loss: the receiver counts a wrong ICRC and drops the packet"},
    {FaultAction::kMarkEcn,
     "mark-ecn",
     {},
     {"queue"},
     "an IP packet that allows it (ECT) says that it met congestion (CE); with `queue`, only while "
     "more bytes wait for a `limit` of the same port and direction",
     "`np_ecn_marked_roce_packets`, CNPs, and a lower rate if the QP has congestion control"},
    {FaultAction::kLimit,
     "limit",
     {"rate"},
     {"queue"},
     "frames leave at this rate, and wait meanwhile; beyond `queue` bytes (256K without the key) "
     "they "
     "are lost",
     "less bandwidth, latency, loss"},
    {FaultAction::kPause,
     "pause",
     {"time"},
     {},
     "from this frame on, frames of its direction wait so long, as after a PAUSE frame",
     "latency; a retry if it is longer than the ACK timeout"},
    {FaultAction::kLinkDown,
     "link-down",
     {},
     {"time", "period"},
     "the link is down so long (without `time`, until the rule is removed), and again after each "
     "`period`; frames of both directions are lost. A rule that waits for no frame acts when it is "
     "added",
     "port error and port active events, `link_downed`; retries, then status 12"},
}};

std::string usage_of(const FaultKey& key) { return fmt::format("{}={}", key.name, key.value); }

const FaultKey& argument(std::string_view name) {
  return *std::ranges::find(kArgumentKeys, name, &FaultKey::name);
}

}  // namespace

std::span<const FaultKey> match_keys() { return kMatchKeys; }
std::span<const FaultKey> argument_keys() { return kArgumentKeys; }
std::span<const FaultKind> fault_kinds() { return kKinds; }

const FaultKind& kind_of(FaultAction action) {
  return *std::ranges::find(kKinds, action, &FaultKind::action);
}

std::string usage_of(const FaultKind& kind) {
  std::string text(kind.name);
  for (const auto name : kind.required) {
    if (!name.empty()) text += fmt::format(",{}", usage_of(argument(name)));
  }
  for (const auto name : kind.optional) {
    if (!name.empty()) text += fmt::format("[,{}]", usage_of(argument(name)));
  }
  return text;
}

const std::string& network_fault_help() {
  static const std::string kHelp = [] {
    std::string text = "port=NAME|*,";
    for (const auto& key : match_keys().subspan(1)) text += fmt::format("[{}=,]", key.name);
    text += "do=ACTION, where ACTION is ";
    for (const auto& kind : kKinds) {
      text += fmt::format("{}{}", &kind == kKinds.begin() ? "" : "; ", usage_of(kind));
    }
    return text;
  }();
  return kHelp;
}

std::string network_faults_page() {
  std::string page = "| key | value | the rule applies to |\n|---|---|---|\n";
  for (const auto& key : kMatchKeys) {
    page += fmt::format("| `{}` | {} | {} |\n", key.name, key.value, key.what);
  }
  page += fmt::format("\nGroups of opcodes: {}.\n\n", opcode_groups());
  page += "| `do=` | what happens | what a program sees |\n|---|---|---|\n";
  for (const auto& kind : kKinds) {
    auto usage = usage_of(kind);
    // A bar would end the cell.
    for (auto at = usage.find('|'); at != std::string::npos; at = usage.find('|', at + 2)) {
      usage.insert(at, 1, '\\');
    }
    page += fmt::format("| `{}` | {} | {} |\n", usage, kind.what, kind.seen);
  }
  return page;
}

}  // namespace softhca::fabric
