// How sessions begin: what the listener answers to a kHello, and what a joiner does with the
// answer.
#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "trunk/sessions.h"

namespace softhca::trunk {
namespace {

/// Pauses of a joiner that gets no answer, or is refused.
constexpr util::Duration kFirstPause = std::chrono::milliseconds(250);
constexpr util::Duration kLongestPause = std::chrono::seconds(2);

}  // namespace

std::string to_words(Refusal why) {
  switch (why) {
    case Refusal::kKey:
      return "its fabric has another key";
    case Refusal::kFabric:
      return "its fabric has another name (--fabric)";
    case Refusal::kSelf:
      return "it is this hub";
    case Refusal::kNumbers:
      return "both fabrics have processes of the same addresses 198.18.x.0/24: end the programs of "
             "one of them, and start them again with --join";
    case Refusal::kFull:
      return "it has joined as many hubs as it may";
  }
  return "?";
}

// The listener -----------------------------------------------------------------------------------

void Sessions::handle_hello(const Address& from, const Head& head,
                            std::span<const std::byte> datagram) {
  const auto hello = parse_hello(body_of(datagram));
  if (!hello) {
    ++counters_.strange;
    return;
  }
  if (!opens(datagram, identity_.hello_key)) {
    ++counters_.refused_key;
    return refuse(from, hello->nonce, Refusal::kKey);
  }
  if (const auto why = why_refused(from, head, *hello)) {
    ++counters_.refused;
    return refuse(from, hello->nonce, *why);
  }
  if (cookies_.is_valid(hello->cookie, from, head, hello->nonce, clock_())) {
    return welcome(from, head, *hello);
  }
  draft_.start({.kind = Kind::kChallenge, .fabric = identity_.fabric, .sender = identity_.id});
  draft_.put(hello->nonce);
  draft_.put(cookies_.make(from, head, hello->nonce, clock_()));
  out_.send(from, draft_.seal(identity_.hello_key));
}

std::optional<Refusal> Sessions::why_refused(const Address& from, const Head& head,
                                             const Hello& hello) const {
  if (head.sender == identity_.id) return Refusal::kSelf;
  if (head.fabric != identity_.fabric) return Refusal::kFabric;
  if ((hello.blocks & blocks_of_others(head.sender, from)).any()) return Refusal::kNumbers;
  const auto is_there = [&](const auto& one) {
    return one != nullptr && one->ends().peer == head.sender;
  };
  const auto there =
      std::ranges::count_if(peers_, [](const auto& session) { return session != nullptr; });
  if (static_cast<std::size_t>(there) < kHubsMax || std::ranges::any_of(peers_, is_there)) {
    return std::nullopt;
  }
  return Refusal::kFull;
}

void Sessions::refuse(const Address& to, const Nonce& nonce, Refusal why) {
  std::uint64_t held_back = 0;
  if (!answers_.allow(clock_(), &held_back)) return;
  draft_.start({.kind = Kind::kRefuse, .fabric = identity_.fabric, .sender = identity_.id});
  draft_.put(nonce);
  draft_.put_u8(static_cast<std::uint8_t>(why));
  out_.send(to, draft_.seal(identity_.hello_key));
}

/// A repeated kHello gets the same answer.
void Sessions::welcome(const Address& from, const Head& head, const Hello& hello) {
  auto at = std::ranges::find_if(pending_, [&](const Pending& one) {
    return one.joiner == hello.nonce && one.session->ends().peer == head.sender;
  });
  if (at == pending_.end()) {
    std::erase_if(pending_, [&](const Pending& one) {
      return one.session->ends().peer == head.sender && one.session->ends().address == from;
    });
    if (pending_.size() >= kPendingMax) pending_.erase(pending_.begin());
    const auto nonce = random_nonce();
    const auto keys = session_keys(identity_, false, head.sender, hello.nonce, nonce);
    draft_.start({.kind = Kind::kWelcome, .fabric = identity_.fabric, .sender = identity_.id});
    put(draft_, Welcome{.joiner = hello.nonce, .listener = nonce, .blocks = own_blocks()});
    const auto datagram = draft_.seal(keys.out);
    pending_.push_back({.joiner = hello.nonce,
                        .until = clock_() + kPendingLife,
                        .welcome = {datagram.begin(), datagram.end()},
                        .session = make_session(head.sender, from, false, keys, hello.blocks)});
    at = pending_.end() - 1;
  }
  out_.send(from, at->welcome);
}

// The joiner -------------------------------------------------------------------------------------

void Sessions::send_hello(Attempt& attempt) {
  attempt.joiner.hello(draft_, own_blocks(), std::exchange(attempt.fresh, true));
  out_.send(attempt.target.address, draft_.seal(identity_.hello_key));
  attempt.pause = std::clamp(2 * attempt.pause, kFirstPause, kLongestPause);
  attempt.next = clock_() + attempt.pause;
}

void Sessions::handle_answer(const Address& from, const Head& head,
                             std::span<const std::byte> datagram) {
  const auto at = std::ranges::find_if(
      attempts_, [&](const Attempt& attempt) { return attempt.target.address == from; });
  if (at == attempts_.end()) {
    ++counters_.strange;
    return;
  }
  if (head.kind == Kind::kWelcome) return take_welcome(*at, head, datagram);
  if (head.kind == Kind::kChallenge) {
    if (!at->joiner.take_challenge(datagram)) return;
    at->fresh = false;
    return send_hello(*at);
  }
  if (const auto why = at->joiner.take_refusal(datagram)) note_refusal(*at, *why);
}

void Sessions::take_welcome(Attempt& attempt, const Head& head,
                            std::span<const std::byte> datagram) {
  const auto begun = attempt.joiner.take_welcome(head, datagram);
  if (!begun) return;
  const auto taken = blocks_of_others(begun->peer, attempt.target.address);
  if ((begun->blocks & taken).any()) return note_refusal(attempt, Refusal::kNumbers);
  attempt.refused.reset();
  attempt.error = 0;
  attempt.pause = {};
  open(make_session(begun->peer, attempt.target.address, true, begun->keys, begun->blocks));
}

void Sessions::note_send_error(const Address& to, int error) {
  ++counters_.unsent;
  for (auto& attempt : attempts_) {
    if (attempt.target.address != to || std::exchange(attempt.error, error) == error) continue;
    log(util::LogLevel::kWarning,
        fmt::format("{}: {}", attempt.target.name, std::generic_category().message(error)));
  }
}

void Sessions::note_refusal(Attempt& attempt, Refusal why) {
  attempt.next = why == Refusal::kSelf ? util::kNever : clock_() + kLongestPause;
  if (std::exchange(attempt.refused, why) == why || why == Refusal::kSelf) return;
  log(util::LogLevel::kWarning, fmt::format("{} refuses: {}", attempt.target.name, to_words(why)));
}

bool Sessions::all_answered() const {
  return std::ranges::all_of(attempts_, [&](const Attempt& attempt) {
    return attempt.refused || has_session_with(attempt.target.address);
  });
}

std::string Sessions::silent() const {
  std::string words;
  for (const auto& attempt : attempts_) {
    if (!attempt.refused && !has_session_with(attempt.target.address)) {
      words += " " + attempt.target.name;
    }
  }
  return words;
}

std::string Sessions::refusal() const {
  for (const auto& attempt : attempts_) {
    if (!attempt.refused || *attempt.refused == Refusal::kSelf) continue;
    return fmt::format("{} refuses: {}", attempt.target.name, to_words(*attempt.refused));
  }
  return {};
}

}  // namespace softhca::trunk
