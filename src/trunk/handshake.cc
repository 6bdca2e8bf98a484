#include "trunk/handshake.h"

#include <algorithm>
#include <utility>

#include "util/endian.h"

namespace softhca::trunk {
namespace {

/// Bytes that two hubs agree on.
class Context {
 public:
  void put(std::span<const std::byte> bytes) {
    std::ranges::copy(bytes, bytes_.begin() + static_cast<std::ptrdiff_t>(size_));
    size_ += bytes.size();
  }
  void put_u64(std::uint64_t value) {
    util::store_be64(bytes_.data() + size_, value);
    size_ += sizeof value;
  }
  std::span<const std::byte> bytes() const { return std::span(bytes_).first(size_); }

 private:
  std::array<std::byte, 64> bytes_{};
  std::size_t size_ = 0;
};

Tag cookie_of(const Key& key, const Address& of, const Head& head, const Nonce& nonce) {
  Context context;
  context.put(std::as_bytes(std::span(of.ip)));
  context.put_u64(of.port);
  context.put_u64(of.scope);
  context.put_u64(head.sender);
  context.put(nonce);
  return tag_of(key, context.bytes());
}

}  // namespace

void Cookies::renew(util::Time now) {
  if (now - made_ < kLife) return;
  key_before_ = now - made_ < 2 * kLife ? key_ : random_key();
  key_ = random_key();
  made_ = now;
}

Tag Cookies::make(const Address& of, const Head& head, const Nonce& nonce, util::Time now) {
  renew(now);
  return cookie_of(key_, of, head, nonce);
}

bool Cookies::is_valid(const Tag& cookie, const Address& of, const Head& head, const Nonce& nonce,
                       util::Time now) {
  renew(now);
  return cookie == cookie_of(key_, of, head, nonce) ||
         cookie == cookie_of(key_before_, of, head, nonce);
}

Identity make_identity(const Key& key, std::uint64_t fabric) {
  return {.fabric = fabric, .id = random_id(), .key = key, .hello_key = derive(key, "hello")};
}

Session::Keys session_keys(const Identity& own, bool is_joiner, std::uint64_t peer,
                           const Nonce& joiner, const Nonce& listener) {
  Context context;
  context.put(joiner);
  context.put(listener);
  context.put_u64(is_joiner ? own.id : peer);
  context.put_u64(is_joiner ? peer : own.id);
  context.put_u64(own.fabric);
  const auto from_joiner = derive(own.key, "session from joiner", context.bytes());
  const auto from_listener = derive(own.key, "session from listener", context.bytes());
  return is_joiner ? Session::Keys{.out = from_joiner, .in = from_listener}
                   : Session::Keys{.out = from_listener, .in = from_joiner};
}

void Joiner::hello(Draft& draft, const Blocks& blocks, bool fresh) {
  if (fresh) {
    nonce_ = random_nonce();
    cookie_ = {};
  }
  draft.start(
      {.kind = Kind::kHello, .from_joiner = true, .fabric = own_.fabric, .sender = own_.id});
  put(draft, Hello{.nonce = nonce_, .cookie = cookie_, .blocks = blocks});
}

bool Joiner::is_ours(std::span<const std::byte> body) const {
  return body.size() >= sizeof nonce_ && std::ranges::equal(body.first(sizeof nonce_), nonce_);
}

bool Joiner::take_challenge(std::span<const std::byte> datagram) {
  const auto body = body_of(datagram);
  if (body.size() != sizeof nonce_ + sizeof cookie_ || !is_ours(body)) return false;
  if (!opens(datagram, own_.hello_key)) return false;
  Tag cookie;
  std::ranges::copy(body.subspan(sizeof nonce_), cookie.begin());
  return std::exchange(cookie_, cookie) != cookie;
}

std::optional<Joiner::Begun> Joiner::take_welcome(const Head& head,
                                                  std::span<const std::byte> datagram) {
  const auto body = body_of(datagram);
  const auto welcome = parse_welcome(body);
  if (!welcome || !is_ours(body) || head.fabric != own_.fabric) return std::nullopt;
  Begun begun{.peer = head.sender,
              .keys = session_keys(own_, true, head.sender, welcome->joiner, welcome->listener),
              .blocks = welcome->blocks};
  if (!opens(datagram, begun.keys.in)) return std::nullopt;
  nonce_ = random_nonce();  // it came once
  return begun;
}

std::optional<Refusal> Joiner::take_refusal(std::span<const std::byte> datagram) const {
  const auto body = body_of(datagram);
  if (body.size() != sizeof nonce_ + 1 || !is_ours(body)) return std::nullopt;
  const auto why = static_cast<Refusal>(body.back());
  if (why < Refusal::kKey || why > Refusal::kFull) return std::nullopt;
  // A listener with another key cannot make a tag that is right here, and one with the same key
  // does not refuse the key.
  if (opens(datagram, own_.hello_key) == (why == Refusal::kKey)) return std::nullopt;
  return why;
}

}  // namespace softhca::trunk
