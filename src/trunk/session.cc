#include "trunk/session.h"

#include <algorithm>
#include <utility>

#include "util/endian.h"
#include "wire/ethernet.h"

namespace softhca::trunk {

Session::Session(const Ends& ends, const Keys& keys, const Blocks& blocks, Out& out,
                 const util::TimeSource& clock)
    : ends_(ends),
      keys_(keys),
      out_(out),
      clock_(clock),
      mtu_(clock()),
      last_members_(clock()),
      next_members_(clock()) {
  for (unsigned block = 0; block != blocks.size(); ++block) {
    if (blocks[block]) members_[block];
  }
}

bool Session::accept(const Head& head, std::span<const std::byte> datagram) {
  if (!received_.is_new(head.sequence)) {
    ++counters_.replayed;
    return false;
  }
  if (!opens(datagram, keys_.in)) {
    ++counters_.forged;
    return false;
  }
  received_.note(head.sequence);
  ++counters_.datagrams_received;
  flight_.note_acknowledged(head.ack, clock_());
  // Acknowledgements of acknowledgements would never end.
  if (head.kind != Kind::kAck) unacknowledged_ += Flight::cost_of(datagram.size());
  return true;
}

bool Session::handle(const Head& head, std::span<const std::byte> body, const Take& take) {
  switch (head.kind) {
    case Kind::kAck:
      return false;
    case Kind::kMembers:
      return take_members(head, body);
    case Kind::kFrames:
      take_frames(body, take);
      return false;
    case Kind::kPiece:
      take_piece(body, take);
      return false;
    case Kind::kProbe:
      start(draft_, Kind::kProbed);
      draft_.put_u16(static_cast<std::uint16_t>(body.size() + kOverhead));
      finish(draft_);
      return false;
    case Kind::kProbed:
      if (body.size() == sizeof(std::uint16_t)) mtu_.note(util::load_be16(body.data()), clock_());
      return false;
    case Kind::kGoodbye:
      said_goodbye_ = true;
      return false;
    default:
      ++counters_.malformed;
      return false;
  }
}

bool Session::take_members(const Head& head, std::span<const std::byte> body) {
  auto members = parse_members(body);
  counters_.malformed += members ? 0 : 1;
  // Shorter datagrams cross a path that has shrunk, so only a padded one proves that the session
  // works.
  if (members && body.size() + kOverhead >= kDatagramMin) last_members_ = clock_();
  if (!members || head.sequence < members_sequence_) return false;
  members_sequence_ = head.sequence;
  return std::exchange(members_, *std::move(members)) != members_;
}

void Session::take_frames(std::span<const std::byte> body, const Take& take) {
  while (!body.empty()) {
    const auto frame = next_frame(body);
    if (frame.empty()) {
      ++counters_.malformed;
      return;
    }
    ++counters_.frames_received;
    take(frame);
  }
}

void Session::take_piece(std::span<const std::byte> body, const Take& take) {
  const auto piece = parse_piece(body);
  counters_.malformed += piece ? 0 : 1;
  if (!piece) return;
  const auto frame = reassembly_.add(*piece);
  if (frame.empty()) return;
  ++counters_.frames_received;
  take(frame);
}

/// Datagrams are sent in the order of their sequence numbers.
void Session::start(Draft& draft, Kind kind) {
  if (&draft != &batch_) flush();
  draft.start({.kind = kind,
               .from_joiner = ends_.is_joiner,
               .fabric = ends_.fabric,
               .sender = ends_.own,
               .sequence = ++sequence_});
}

void Session::finish(Draft& draft) {
  draft.set_ack(received_.highest());  // datagrams may have come since start()
  const auto datagram = draft.seal(keys_.out);
  flight_.note_sent(sequence_, datagram.size(), clock_());
  unacknowledged_ = 0;
  ++counters_.datagrams_sent;
  out_.send(ends_.address, datagram);
}

void Session::send_empty(Kind kind, std::size_t size) {
  start(draft_, kind);
  draft_.pad(size);
  finish(draft_);
}

void Session::send(const wire::Frame& frame) {
  const auto size = frame.size();
  if (frame.link() != wire::Link::kEthernet || size < wire::EthernetLayout::kSize ||
      size > large_.size()) {
    ++counters_.dropped_unfit;
    return;
  }
  if (flight_.is_full(clock_)) {
    ++counters_.dropped_full;
    return;
  }
  ++counters_.frames_sent;
  if (kOverhead + kFrameHead + size > mtu_.size()) {
    frame.copy_to(large_);
    return send_in_pieces(std::span(large_).first(size));
  }
  if (batch_.has_body() && batch_.size() + kFrameHead + size > mtu_.size()) flush();
  if (!batch_.has_body()) start(batch_, Kind::kFrames);
  batch_.put_u16(static_cast<std::uint16_t>(size));
  frame.copy_to(batch_.extend(size));
}

void Session::send_in_pieces(std::span<const std::byte> frame) {
  const auto most = mtu_.size() - kOverhead - kPieceHead;
  const auto number = ++large_sent_;
  for (std::size_t at = 0; at < frame.size(); at += most) {
    start(draft_, Kind::kPiece);
    draft_.put_u32(number);
    draft_.put_u32(static_cast<std::uint32_t>(frame.size()));
    draft_.put_u32(static_cast<std::uint32_t>(at));
    draft_.put(frame.subspan(at, std::min(most, frame.size() - at)));
    finish(draft_);
  }
}

void Session::flush() {
  if (!batch_.has_body()) return;
  finish(batch_);
  batch_.clear();
}

/// The message of each second is padded to the size that the path is believed to carry: if the path
/// carries less from now on, the session ends, and the next one finds out how much.
void Session::send_members(const Members& own, bool changed) {
  start(draft_, Kind::kMembers);
  put(draft_, own);
  if (!changed) draft_.pad(mtu_.size());
  finish(draft_);
  // Changes that follow each other fast do not put off the message of each second.
  next_members_ = changed ? std::min(next_members_, clock_() + kAgain) : clock_() + kAlive;
}

void Session::say_goodbye() { send_empty(Kind::kGoodbye); }

void Session::settle() {
  flush();
  if (unacknowledged_ >= Flight::kWindow / 8) send_empty(Kind::kAck);
}

void Session::tick(const Members& own) {
  const auto now = clock_();
  if (now >= next_members_) send_members(own, false);
  if (const auto size = mtu_.probe(now); size != 0) send_empty(Kind::kProbe, size);
}

util::Time Session::next() const {
  return std::min({next_members_, mtu_.next(), last_members_ + kSilence});
}

}  // namespace softhca::trunk
