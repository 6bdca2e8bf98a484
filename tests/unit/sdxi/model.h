// A reference model of SDXI 1.0, as simple as possible: one descriptor at a time, memory as arrays,
// bit positions written down from the document's tables and not taken from spec/. It answers what a
// sequence of descriptors must leave behind.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <vector>

namespace softhca::sdxi::test::model {

using Bytes = std::array<std::uint8_t, 64>;

/// Bits [hi:lo] of a little-endian structure, as the document counts them.
inline std::uint64_t bits(const Bytes& bytes, unsigned hi, unsigned lo) {
  std::uint64_t value = 0;
  for (unsigned i = lo; i <= hi; ++i) {
    value |= std::uint64_t{bytes[i / 8] >> i % 8 & 1u} << (i - lo);
  }
  return value;
}

struct Record {
  unsigned step, err_class, context, buffer;
  std::uint64_t index;
  auto operator<=>(const Record&) const = default;
};

/// What an AKey of a context means.
struct Key {
  enum Kind { kInvalid, kMemory, kInterrupt, kForbidden } kind = kInvalid;
  unsigned function = 0;  ///< whose memory or interrupt
};

/// Memory of one function: a window that exists, and nothing else.
struct Memory {
  std::uint64_t base = 0;
  std::vector<std::uint8_t> bytes;
  std::uint8_t* find(std::uint64_t at, std::uint64_t size) {
    if (at < base || size > bytes.size() || at - base > bytes.size() - size) return nullptr;
    return &bytes[at - base];
  }
};

struct Failure {
  unsigned step, err_class, buffer = 0;
};

struct Context {
  unsigned number = 0;
  unsigned function = 0;
  std::map<unsigned, Key> keys{};
  std::uint64_t read_index = 0;
  bool error = false;

  std::uint64_t max_buffer = std::uint64_t{2} << 20;
};

class Model {
 public:
  std::vector<Memory> memories;           ///< by function
  std::vector<std::vector<Record>> logs;  ///< by function
  std::vector<std::uint64_t> interrupts;  ///< by function

  /// What happens to the descriptor at Read_Index.
  void process(Context& c, const Bytes& d) {
    if (const auto err_class = parse(c, d)) {
      logs[c.function].push_back({7, *err_class, c.number, 0, c.read_index});
      c.error = true;
      return;
    }
    const auto index = c.read_index++;
    const auto failed = execute(c, d);
    const bool np = bits(d, 448, 448);
    auto* block = memories[c.function].find(bits(d, 511, 453) << 5, 32);
    if (!np && block == nullptr && !failed) {
      logs[c.function].push_back({8, 0x3400, c.number, 0, index});
      c.error = true;
      return;
    }
    if (!np && block != nullptr) {
      if (failed) block[11] |= 0x80;
      std::uint64_t signal;
      std::memcpy(&signal, block, 8);
      signal = bits(d, 4, 4) ? 0 : signal - 1;
      std::memcpy(block, &signal, 8);
    }
    if (failed) {
      logs[c.function].push_back(
          {failed->step, failed->err_class, c.number, failed->buffer, index});
      c.error = true;
    }
  }

 private:
  std::optional<unsigned> parse(const Context& c, const Bytes& d) const {
    const auto type = bits(d, 26, 16), subtype = bits(d, 15, 8);
    const bool dma = type == 1 && subtype >= 1 && subtype <= 4;
    const bool admin = type == 2 && subtype <= 8;
    const bool atomic = type == 3 && subtype >= 1 && subtype <= 14 && subtype != 4;
    const bool intr = type == 4 && subtype == 0;
    if (!dma && !admin && !atomic && !intr) return 0x2400;
    if (admin != (c.number == 0)) return 0x2400;
    if (bits(d, 3, 3)) return 0x2100;
    const bool fence_needed = admin && (subtype == 3 || subtype == 4 || subtype == 8);
    if (fence_needed && !bits(d, 2, 2)) return 0x2100;
    const bool se_forbidden = admin || (dma && subtype == 1);
    if (se_forbidden && bits(d, 1, 1)) return 0x2100;
    return std::nullopt;
  }

  /// The memory of AKey `akey`, or why not.
  std::optional<Failure> resolve(const Context& c, unsigned akey, unsigned buffer, Memory** out) {
    const auto found = c.keys.find(akey);
    const auto key = found == c.keys.end() ? Key{} : found->second;
    if (key.kind == Key::kInvalid) return Failure{11, 0x2320, buffer};
    if (key.kind == Key::kForbidden) return Failure{10, 0x3100, buffer};
    *out = &memories[key.function];
    return std::nullopt;
  }

  std::optional<Failure> execute(Context& c, const Bytes& d) {
    const auto type = bits(d, 26, 16), subtype = bits(d, 15, 8);
    if (type == 4) return interrupt(c, d);
    if (type == 3) return atomic(c, d, static_cast<unsigned>(subtype));
    switch (subtype) {
      case 1:
        return std::nullopt;
      case 2:
        return write_immediate(c, d);
      case 3:
        return copy(c, d, bits(d, 191, 128), bits(d, 255, 192), bits(d, 63, 32) + 1, 1);
      default:
        return copy(c, d, bits(d, 191, 140) << 12, bits(d, 255, 204) << 12,
                    (bits(d, 52, 44) + 1) * 4096, bits(d, 287, 268) + 1);
    }
  }

  std::optional<Failure> interrupt(const Context& c, const Bytes& d) {
    const auto akey = static_cast<unsigned>(bits(d, 111, 96));
    const auto found = c.keys.find(akey);
    if (found == c.keys.end()) return Failure{11, 0x2320};
    if (found->second.kind == Key::kInterrupt) {
      ++interrupts[found->second.function];
      return std::nullopt;
    }
    // A local entry with iv = 0, or a remote one that is refused over there.
    if (found->second.kind == Key::kMemory && found->second.function == c.function) {
      return Failure{11, 0x2370};
    }
    return Failure{10, 0x3100};
  }

  std::optional<Failure> write_immediate(const Context& c, const Bytes& d) {
    if (bits(d, 65, 64) == 3) return Failure{7, 0x2100};
    Memory* memory = nullptr;
    if (auto bad = resolve(c, static_cast<unsigned>(bits(d, 111, 96)), 0, &memory)) return bad;
    const auto size = bits(d, 36, 32) + 1;
    auto* to = memory->find(bits(d, 191, 128), size);
    if (to == nullptr) return Failure{10, 0x3400, 0};
    std::memcpy(to, &d[24], size);
    return std::nullopt;
  }

  std::optional<Failure> copy(const Context& c, const Bytes& d, std::uint64_t source,
                              std::uint64_t target, std::uint64_t block, std::uint64_t times) {
    if (bits(d, 65, 64) == 3 || bits(d, 69, 68) == 3) return Failure{7, 0x2100};
    if (block * times > c.max_buffer) return Failure{7, 0x2310};
    Memory *from = nullptr, *to = nullptr;
    if (auto bad = resolve(c, static_cast<unsigned>(bits(d, 111, 96)), 0, &from)) return bad;
    if (auto bad = resolve(c, static_cast<unsigned>(bits(d, 127, 112)), 1, &to)) return bad;
    for (std::uint64_t i = 0; i < times; ++i) {
      auto* read = from->find(source, block);
      if (read == nullptr) return Failure{10, 0x3400, 0};
      auto* write = to->find(target + i * block, block);
      if (write == nullptr) return Failure{10, 0x3400, 1};
      std::memmove(write, read, block);
    }
    return std::nullopt;
  }

  template <class Word>
  static Word result(unsigned subtype, Word old, Word a, Word b) {
    using Signed = std::make_signed_t<Word>;
    switch (subtype) {
      case 1:
        return a;
      case 2:
        return static_cast<Word>(old + a);
      case 3:
        return static_cast<Word>(old - a);
      case 5:
        return old & a;
      case 6:
        return old | a;
      case 7:
        return old ^ a;
      case 8:
        return static_cast<Word>(
            std::min<Signed>(static_cast<Signed>(old), static_cast<Signed>(a)));
      case 9:
        return static_cast<Word>(
            std::max<Signed>(static_cast<Signed>(old), static_cast<Signed>(a)));
      case 10:
        return std::min(old, a);
      case 11:
        return std::max(old, a);
      case 12:
        return old >= a ? 0 : static_cast<Word>(old + 1);
      case 13:
        return old == 0 || old > a ? a : static_cast<Word>(old - 1);
      default:
        return old == a ? b : old;
    }
  }

  template <class Word>
  std::optional<Failure> apply(const Context& c, const Bytes& d, unsigned subtype, Memory* memory) {
    auto* at = memory->find(bits(d, 191, 130) << 2, sizeof(Word));
    if (at == nullptr) return Failure{10, 0x3400, 0};
    Word old;
    std::memcpy(&old, at, sizeof old);
    const auto value = result<Word>(subtype, old, static_cast<Word>(bits(d, 255, 192)),
                                    static_cast<Word>(bits(d, 319, 256)));
    std::memcpy(at, &value, sizeof value);
    if (bits(d, 320, 320)) return std::nullopt;
    const auto back_at = bits(d, 383, 322) << 2;
    if (back_at % sizeof(Word) != 0) return Failure{9, 0x2100};
    auto* back = memories[c.function].find(back_at, sizeof(Word));
    if (back == nullptr) return Failure{9, 0x3400};
    std::memcpy(back, &old, sizeof old);
    return std::nullopt;
  }

  std::optional<Failure> atomic(const Context& c, const Bytes& d, unsigned subtype) {
    const auto osz = bits(d, 36, 34);
    if (osz > 1 || (osz == 1 && bits(d, 130, 130)) || bits(d, 65, 64) == 3)
      return Failure{7, 0x2100};
    Memory* memory = nullptr;
    if (auto bad = resolve(c, static_cast<unsigned>(bits(d, 111, 96)), 0, &memory)) return bad;
    return osz == 0 ? apply<std::uint32_t>(c, d, subtype, memory)
                    : apply<std::uint64_t>(c, d, subtype, memory);
  }
};

}  // namespace softhca::sdxi::test::model
