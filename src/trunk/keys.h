// Keys and tags of joined hubs. All are BLAKE2b (RFC 7693) with a key.
//
// The users of a fabric share a secret. A key for the first messages is made from it, and two keys
// for each session, one for each direction, from the nonces of both ends.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace softhca::trunk {

inline constexpr std::size_t kTagSize = 16;
using Key = std::array<std::byte, 32>;
using Tag = std::array<std::byte, kTagSize>;
using Nonce = std::array<std::byte, 16>;

/// A shorter secret could be guessed from one captured datagram.
inline constexpr std::size_t kSecretMin = 16;

/// The key of a fabric, from the secret that its users share.
Key key_of(std::string_view secret);
/// The number that names a fabric on the wire. It is no secret.
std::uint64_t fabric_id_of(std::string_view name);
/// A key for one purpose. It reveals neither `key` nor a key for another purpose.
Key derive(const Key& key, std::string_view purpose, std::span<const std::byte> context = {});

Tag tag_of(const Key& key, std::span<const std::byte> bytes);
/// Takes the same time for every wrong tag.
bool is_tag(const Key& key, std::span<const std::byte> bytes, std::span<const std::byte> tag);

/// Random numbers of the kernel.
Key random_key();
Nonce random_nonce();
std::uint64_t random_id();

}  // namespace softhca::trunk
