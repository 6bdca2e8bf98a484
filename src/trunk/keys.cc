#include "trunk/keys.h"

#include <sodium.h>

#include <cstdlib>
#include <string>

#include "util/endian.h"

namespace softhca::trunk {
namespace {

/// sodium_init() chooses the fastest implementation of this processor.
void prepare() {
  static const bool done = sodium_init() >= 0;
  if (!done) std::abort();  // the kernel has no random numbers
}

const unsigned char* bytes_of(const std::byte* at) {
  return reinterpret_cast<const unsigned char*>(at);
}
unsigned char* bytes_of(std::byte* at) { return reinterpret_cast<unsigned char*>(at); }

void hash(std::span<std::byte> out, std::span<const std::byte> in, std::span<const std::byte> key) {
  prepare();
  crypto_generichash_blake2b(bytes_of(out.data()), out.size(), bytes_of(in.data()), in.size(),
                             bytes_of(key.data()), key.size());
}

template <class T>
T random() {
  prepare();
  T value;
  randombytes_buf(&value, sizeof value);
  return value;
}

}  // namespace

Key key_of(std::string_view secret) {
  Key key;
  hash(key, std::as_bytes(std::span(secret)), {});
  return derive(key, "softhca trunk");
}

std::uint64_t fabric_id_of(std::string_view name) {
  Tag id;
  hash(id, std::as_bytes(std::span(name)), {});
  return util::load_be64(id.data());
}

Key derive(const Key& key, std::string_view purpose, std::span<const std::byte> context) {
  std::string text(purpose);
  text += '\0';
  text.append(reinterpret_cast<const char*>(context.data()), context.size());
  Key derived;
  hash(derived, std::as_bytes(std::span(text)), key);
  return derived;
}

Tag tag_of(const Key& key, std::span<const std::byte> bytes) {
  Tag tag;
  hash(tag, bytes, key);
  return tag;
}

bool is_tag(const Key& key, std::span<const std::byte> bytes, std::span<const std::byte> tag) {
  const auto expected = tag_of(key, bytes);
  return tag.size() == expected.size() &&
         sodium_memcmp(expected.data(), tag.data(), expected.size()) == 0;
}

Key random_key() { return random<Key>(); }
Nonce random_nonce() { return random<Nonce>(); }
std::uint64_t random_id() { return random<std::uint64_t>(); }

}  // namespace softhca::trunk
