#include "trunk/sessions.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>

namespace softhca::trunk {
namespace {

Blocks blocks_of(const Members& members) {
  Blocks blocks;
  for (const auto& [block, set] : members) blocks.set(block);
  return blocks;
}

}  // namespace

Sessions::Sessions(const Identity& identity, std::vector<Target> targets, const Members& own,
                   Out& out, const util::TimeSource& clock)
    : identity_(identity), own_(own), out_(out), clock_(clock), cookies_(clock()) {
  for (auto& target : targets) {
    attempts_.push_back(
        {.target = std::move(target), .joiner = Joiner(identity_), .next = clock_()});
  }
}

void Sessions::handle_datagram(const Address& from, std::span<const std::byte> datagram) {
  const auto head = parse_head(datagram);
  if (!head) {
    ++counters_.strange;
    return;
  }
  switch (head->kind) {
    case Kind::kHello:
      return handle_hello(from, *head, datagram);
    case Kind::kChallenge:
    case Kind::kWelcome:
    case Kind::kRefuse:
      return handle_answer(from, *head, datagram);
    default:
      return handle_session(from, *head, datagram);
  }
}

/// The session that accepts the datagram, and its index. A joiner that sends in a pending session
/// opens it.
Session* Sessions::session_of(const Address& from, const Head& head,
                              std::span<const std::byte> datagram, std::size_t& peer) {
  const auto is_its = [&](const Session& one) {
    const auto& ends = one.ends();
    return ends.peer == head.sender && ends.is_joiner != head.from_joiner && ends.address == from &&
           head.fabric == ends.fabric;
  };
  for (peer = 0; peer != peers_.size(); ++peer) {
    auto* const session = find(peer);
    if (session != nullptr && is_its(*session) && session->accept(head, datagram)) return session;
  }
  for (auto& pending : pending_) {
    if (!is_its(*pending.session) || !pending.session->accept(head, datagram)) continue;
    auto session = std::move(pending.session);
    std::erase_if(pending_, [](const Pending& one) { return one.session == nullptr; });
    // Numbers may have been given since the kWelcome.
    if (leave_if_taken(*session)) return nullptr;
    peer = open(std::move(session));
    return find(peer);
  }
  return nullptr;
}

void Sessions::handle_session(const Address& from, const Head& head,
                              std::span<const std::byte> datagram) {
  std::size_t peer = 0;
  auto* const session = session_of(from, head, datagram, peer);
  if (session == nullptr) {
    ++counters_.strange;
    return;
  }
  const bool changed =
      session->handle(head, body_of(datagram), [&](std::span<const std::byte> frame) {
        if (events_.frame) events_.frame(peer, frame);
      });
  if (session->is_over()) return close(peer);
  if (!changed) return;
  if (leave_if_taken(*session)) return close(peer);
  if (events_.change) events_.change(peer);
}

/// Says goodbye to a hub that has numbers of another one. False: it has none.
bool Sessions::leave_if_taken(Session& session) {
  const auto& ends = session.ends();
  const auto taken = blocks_of_others(ends.peer, ends.address);
  if ((blocks_of(session.members()) & taken).none()) return false;
  log(util::LogLevel::kWarning,
      fmt::format("{}: {}", to_text(ends.address), to_words(Refusal::kNumbers)));
  session.say_goodbye();
  return true;
}

std::unique_ptr<Session> Sessions::make_session(std::uint64_t hub, const Address& at,
                                                bool is_joiner, const Session::Keys& keys,
                                                const Blocks& blocks) {
  return std::make_unique<Session>(Session::Ends{.fabric = identity_.fabric,
                                                 .own = identity_.id,
                                                 .peer = hub,
                                                 .address = at,
                                                 .is_joiner = is_joiner},
                                   keys, blocks, out_, clock_);
}

/// Replaces an earlier session of the same two ends, and those of a hub that was at this address
/// before.
std::size_t Sessions::open(std::unique_ptr<Session> session) {
  const auto& ends = session->ends();
  for (std::size_t peer = 0; peer != peers_.size(); ++peer) {
    const auto* const one = find(peer);
    if (one == nullptr) continue;
    const bool is_same = one->ends().peer == ends.peer;
    const bool is_replaced =
        is_same ? one->ends().is_joiner == ends.is_joiner : one->ends().address == ends.address;
    if (is_replaced) close(peer);
  }
  auto place = std::find(peers_.begin(), peers_.end(), nullptr);
  if (place == peers_.end()) place = peers_.insert(place, nullptr);
  *place = std::move(session);
  const auto peer = static_cast<std::size_t>(place - peers_.begin());
  log(util::LogLevel::kInfo, fmt::format("{} has joined", to_text((*place)->ends().address)));
  (*place)->send_members(own_, true);
  if (events_.change) events_.change(peer);
  return peer;
}

void Sessions::close(std::size_t peer) {
  const auto session = std::exchange(peers_[peer], nullptr);
  log(util::LogLevel::kInfo, fmt::format("{} has gone", to_text(session->ends().address)));
  for (auto& attempt : attempts_) {
    const bool is_its = attempt.target.address == session->ends().address;
    if (is_its) attempt.next = clock_();
  }
  if (events_.change) events_.change(peer);
}

void Sessions::tick() {
  for (std::size_t peer = 0; peer != peers_.size(); ++peer) {
    auto* const session = find(peer);
    if (session == nullptr) continue;
    if (session->is_over()) {
      close(peer);
    } else {
      session->tick(own_);
    }
  }
  const auto now = clock_();
  std::erase_if(pending_, [now](const Pending& one) { return now >= one.until; });
  for (auto& attempt : attempts_) {
    if (now >= attempt.next && !has_session_with(attempt.target.address)) send_hello(attempt);
  }
}

util::Time Sessions::next() const {
  auto next = util::kNever;
  for (const auto& session : peers_) {
    if (session != nullptr) next = std::min(next, session->next());
  }
  for (const auto& attempt : attempts_) {
    if (!has_session_with(attempt.target.address)) next = std::min(next, attempt.next);
  }
  if (!pending_.empty()) next = std::min(next, pending_.front().until);  // the oldest
  return next;
}

void Sessions::settle() {
  for (const auto& session : peers_) {
    if (session != nullptr) session->settle();
  }
}

void Sessions::send_members() {
  for (const auto& session : peers_) {
    if (session != nullptr) session->send_members(own_, true);
  }
}

void Sessions::say_goodbye() {
  for (const auto& session : peers_) {
    if (session != nullptr) session->say_goodbye();
  }
}

void Sessions::log(util::LogLevel level, const std::string& text) {
  std::uint64_t held_back = 0;
  if (!lines_.allow(clock_(), &held_back)) return;
  if (held_back == 0) return util::log(level, "trunk: {}", text);
  util::log(level, "trunk: {} ({} such lines were held back)", text, held_back);
}

Session* Sessions::find(std::size_t peer) const {
  return peer < peers_.size() ? peers_[peer].get() : nullptr;
}

/// Both ends decide alike.
bool Sessions::is_preferred(std::size_t peer) const {
  const auto joiner_of = [](const Session& one) {
    return one.ends().is_joiner ? one.ends().own : one.ends().peer;
  };
  const auto& session = *peers_[peer];
  return std::ranges::none_of(peers_, [&](const auto& other) {
    return other != nullptr && other->ends().peer == session.ends().peer &&
           joiner_of(*other) < joiner_of(session);
  });
}

bool Sessions::has_session_with(const Address& address) const {
  return std::ranges::any_of(peers_, [&](const auto& session) {
    return session != nullptr && session->ends().address == address;
  });
}

Blocks Sessions::own_blocks() const { return blocks_of(own_); }

/// Blocks that `hub` must not have: those of this hub and of all others. A hub that was at the same
/// address before is no other.
Blocks Sessions::blocks_of_others(std::uint64_t hub, const Address& at) const {
  auto blocks = own_blocks();
  for (const auto& session : peers_) {
    if (session == nullptr || session->ends().peer == hub || session->ends().address == at)
      continue;
    blocks |= blocks_of(session->members());
  }
  return blocks;
}

void Sessions::inspect(util::InspectNode& node) const {
  for (std::size_t peer = 0; peer != peers_.size(); ++peer) {
    const auto* const session = find(peer);
    if (session == nullptr) continue;
    const auto& ends = session->ends();
    // Two hubs that join each other have two sessions, which may be at one address.
    const auto again = std::ranges::any_of(std::span(peers_).first(peer), [&](const auto& one) {
      return one != nullptr && one->ends().address == ends.address;
    });
    auto& child = node.child(fmt::format("hub {}{}", to_text(ends.address), again ? " again" : ""));
    child.add("state", is_preferred(peer) ? "joined" : "joined, receives only");
    child.add("joined_by", ends.is_joiner ? "this hub" : "it");
    child.add("datagram_bytes", session->datagram_size());
    child.add("bytes_under_way", session->bytes_under_way());
    for (const auto& [block, set] : session->members()) {
      child.add(fmt::format("processes_of_198.18.{}", block), set.count());
    }
    const auto& counters = session->counters();
    child.add("frames_sent", counters.frames_sent);
    child.add("frames_received", counters.frames_received);
    child.add("datagrams_sent", counters.datagrams_sent);
    child.add("datagrams_received", counters.datagrams_received);
    child.add("dropped_full", counters.dropped_full);
    child.add("dropped_unfit", counters.dropped_unfit);
    child.add("dropped_incomplete", session->frames_given_up());
    child.add("forged", counters.forged);
    child.add("replayed", counters.replayed);
    child.add("malformed", counters.malformed);
  }
  for (const auto& attempt : attempts_) {
    if (has_session_with(attempt.target.address)) continue;
    auto& child = node.child(fmt::format("hub {}", to_text(attempt.target.address)));
    child.add("state", attempt.refused ? fmt::format("refuses: {}", to_words(*attempt.refused))
                                       : std::string("no answer yet"));
    if (attempt.error != 0) child.add("error", std::generic_category().message(attempt.error));
  }
  node.add("refused_key", counters_.refused_key);
  node.add("refused", counters_.refused);
  node.add("strange", counters_.strange);
  node.add("unsent", counters_.unsent);
}

}  // namespace softhca::trunk
