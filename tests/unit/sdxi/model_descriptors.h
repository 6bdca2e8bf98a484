// Random descriptors for the model check. Most are legal and use mapped memory, some have one
// fault, a few are noise.
#pragma once

#include <array>
#include <initializer_list>
#include <random>

#include "sdxi/machine.h"
#include "sdxi/model.h"

namespace softhca::sdxi::test::model {

class Generator {
 public:
  /// Addresses are drawn from the first bytes of every function's memory. Each context of each
  /// function has its own slice there, so that concurrent work has one result in any order.
  static constexpr std::size_t kSlice = 20 << 10, kSlices = 12;
  static constexpr std::size_t kWindow = kSlice * kSlices;
  /// Space after the window and after each slice, for accesses with a damaged size.
  static constexpr std::size_t kSlack = 4096, kGap = 64;

  Generator(std::uint64_t seed, const Model& model) : random_(seed), model_(model) {}

  std::uint64_t number() { return random_(); }
  std::uint64_t below(std::uint64_t end) { return random_() % end; }
  bool rarely(unsigned in) { return random_() % in == 0; }
  std::uint64_t pick(std::initializer_list<std::uint64_t> values) {
    return values.begin()[random_() % values.size()];
  }

  Bytes descriptor(const Context& c) {
    auto d = c.number == 0 && !rarely(50) ? administrative() : operation(c);
    put(d, 0, 0, 1);
    if (rarely(60)) {
      const auto bit = static_cast<unsigned>(1 + below(31));
      put(d, bit, bit, bits(d, bit, bit) ^ 1);
    }
    put(d, 448, 448, random_());
    put(d, 511, 453, address(c, c.function, 32, 32) >> 5);
    return d;
  }

  /// DSC_CXT_START_[NM, RS] of all contexts; it also makes the device examine their rings.
  static Bytes start_all(bool normal) {
    auto d = start({}, false);
    put(d, 15, 8, normal ? 3 : 8);
    put(d, 95, 80, 11);
    return d;
  }

  /// DSC_CXT_START_NM of one context; it also makes the device examine its ring.
  static Bytes start(const Context& c, bool p2v) {
    Bytes d{};
    put(d, 0, 0, 1), put(d, 2, 2, 1), put(d, 448, 448, 1);
    put(d, 26, 16, 2), put(d, 15, 8, 3);
    put(d, 46, 46, 1), put(d, 47, 47, p2v);
    put(d, 79, 64, c.number), put(d, 95, 80, c.number);
    put(d, 191, 128, ~std::uint64_t{0});
    return d;
  }
  /// An update of everything, or a DSC_SYNC.FN, as required after a legal change of a table.
  static Bytes update(bool sync) {
    Bytes d{};
    put(d, 0, 0, 1), put(d, 448, 448, 1);
    put(d, 26, 16, 2), put(d, 15, 8, sync ? 6 : 0);
    put(d, 34, 32, sync ? 4 : 0);
    return d;
  }

 private:
  static void put(model::Bytes& d, unsigned hi, unsigned lo, std::uint64_t value) {
    for (unsigned i = lo; i <= hi; ++i) {
      const auto mask = static_cast<std::uint8_t>(1u << i % 8);
      d[i / 8] =
          static_cast<std::uint8_t>((d[i / 8] & ~mask) | ((value >> (i - lo) & 1) ? mask : 0));
    }
  }

  /// Start of the slice of `c` in the memory of function `f`.
  std::uint64_t slice(const Context& c, unsigned f) const {
    constexpr std::array<unsigned, 12> kPlaces{0, 1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 3};
    return model_.functions[f].memory.base + (c.function * 4 + kPlaces[c.number]) * kSlice;
  }
  std::uint64_t nowhere() { return 0x10000 + random_() % 64 * 4096; }
  /// An address with room for `size` bytes in that slice or, rarely, an unmapped one.
  std::uint64_t address(const Context& c, unsigned f, std::uint64_t size, std::uint64_t alignment) {
    if (rarely(60) || size > kSlice - kGap) return nowhere();
    const auto at = random_() % (kSlice - kGap - size + 1);
    return slice(c, f) + at / alignment * alignment;
  }
  unsigned akey() {
    return static_cast<unsigned>(rarely(50) ? pick({1, 3, 4, 6, 9, 255, 256, 65535})
                                            : pick({0, 0, 0, 2, 5}));
  }
  /// The function whose memory the context's key names.
  unsigned side(const Context& c, unsigned akey) {
    const auto found = c.keys.find(akey);
    if (found == c.keys.end()) return c.function;
    for (unsigned f = 0; f < model_.functions.size(); ++f) {
      if (model_.functions[f].sfunc == found->second.function) return f;
    }
    return c.function;
  }

  Bytes operation(const Context& c) {
    Bytes d{};
    put(d, 1, 1, rarely(8));
    put(d, 2, 2, rarely(3));
    put(d, 3, 3, rarely(300));
    put(d, 4, 4, random_());
    const auto kind = random_() % 128;
    if (kind < 20) {
      put(d, 26, 16, 1), put(d, 15, 8, 1);
      put(d, 1, 1, rarely(50));
    } else if (kind < 44) {
      put(d, 26, 16, 1), put(d, 15, 8, 2);
      make_write(c, d);
    } else if (kind < 72) {
      put(d, 26, 16, 1), put(d, 15, 8, 3);
      make_copy(c, d);
    } else if (kind < 84) {
      put(d, 26, 16, 1), put(d, 15, 8, 4);
      make_repeat(c, d);
    } else if (kind < 116) {
      put(d, 26, 16, 3);
      put(d, 15, 8,
          rarely(60) ? pick({0, 4, 15}) : pick({1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}));
      make_atomic(c, d);
    } else if (kind < 126) {
      put(d, 26, 16, 4);
      put(d, 111, 96, rarely(20) ? pick({0, 2, 3, 9, 400}) : pick({1, 4}));
    } else if (kind < 127) {
      d = administrative();
    } else {
      for (auto& byte : d) byte = static_cast<std::uint8_t>(random_());
      // Unused addresses, so that random values do not hit the machine's own structures.
      put(d, 191, 160, 0), put(d, 255, 224, 0), put(d, 383, 352, 0);
    }
    return d;
  }
  void make_write(const Context& c, Bytes& d) {
    const auto key = akey(), size = static_cast<unsigned>(1 + random_() % 32);
    put(d, 36, 32, size - 1);
    put(d, 65, 64, rarely(50) ? 3 : random_() % 3);
    put(d, 111, 96, key);
    put(d, 191, 128, address(c, side(c, key), size, 1));
    for (std::size_t i = 24; i < 56; ++i) d[i] = static_cast<std::uint8_t>(random_());
  }
  void make_copy(const Context& c, Bytes& d) {
    const auto from = akey(), to = akey();
    const auto size = rarely(60) ? (std::uint64_t{2} << 20) + 1 + random_() % 1000
                                 : 1 + random_() % (rarely(4) ? 9000 : 200);
    put(d, 63, 32, size - 1);
    put(d, 65, 64, rarely(50) ? 3 : random_() % 3);
    put(d, 69, 68, rarely(50) ? 3 : random_() % 3);
    put(d, 111, 96, from), put(d, 127, 112, to);
    const auto source = address(c, side(c, from), size, 1);
    put(d, 191, 128, source);
    put(d, 255, 192, apart(source, size, size, [&] { return address(c, side(c, to), size, 1); }));
  }
  /// A destination that does not overlap the source, because the result would be undefined (SDXI
  /// 5.6).
  template <class Draw>
  std::uint64_t apart(std::uint64_t source, std::uint64_t read, std::uint64_t written, Draw draw) {
    for (int tries = 0; tries < 16; ++tries) {
      const auto at = draw();
      if (at + written <= source || source + read <= at || source < Machine::kBase) return at;
    }
    return nowhere();
  }
  void make_repeat(const Context& c, Bytes& d) {
    const auto from = akey(), to = akey();
    const auto units = 1 + random_() % 2, copies = rarely(30) ? 600 : 1 + random_() % 4;
    put(d, 52, 44, units - 1), put(d, 287, 268, copies - 1);
    put(d, 111, 96, from), put(d, 127, 112, to);
    put(d, 128, 128, 0);
    const auto source = address(c, side(c, from), units * 4096, 4096);
    put(d, 191, 140, source >> 12);
    const auto draw = [&] { return address(c, side(c, to), units * copies * 4096, 4096); };
    put(d, 255, 204, apart(source, units * 4096, units * copies * 4096, draw) >> 12);
  }
  void make_atomic(const Context& c, Bytes& d) {
    const auto key = akey();
    const auto eight = random_() % 2;
    put(d, 36, 34, rarely(50) ? 2 + random_() % 6 : eight);
    put(d, 65, 64, rarely(50) ? 3 : random_() % 3);
    put(d, 111, 96, key);
    // Half of them use few words, so that operands meet values stored earlier.
    const auto at = rarely(2) ? slice(c, side(c, key)) + random_() % 4 * 8
                              : address(c, side(c, key), 8, rarely(30) ? 4 : (eight ? 8 : 4));
    put(d, 191, 130, at >> 2);
    put(d, 255, 192, rarely(3) ? random_() : pick({0, 1, 2, ~0ull, 1ull << 63, 1ull << 31}));
    put(d, 319, 256, random_());
    put(d, 320, 320, random_());
    put(d, 383, 322, address(c, c.function, 8, rarely(30) ? 4 : 8) >> 2);
  }

  Bytes administrative() {
    Bytes d{};
    const auto subtype = rarely(60) ? pick({9, 10, 255}) : below(9);
    put(d, 26, 16, 2), put(d, 15, 8, subtype);
    put(d, 2, 2, !rarely(40));
    put(d, 4, 4, random_());
    put(d, 47, 47, rarely(4));                         // vf
    put(d, 63, 48, rarely(20) ? pick({1, 4096}) : 0);  // vf_num
    const bool start = subtype == 3 || subtype == 8;
    if (start || subtype == 4) {
      put(d, 45, 45, random_());              // hs
      put(d, 46, 46, start ? random_() : 0);  // dv
      put(d, 191, 128, start ? pick({0, 5, ~0ull}) : 0);
    } else if (subtype == 1) {
      put(d, 34, 32, rarely(20) ? below(8) : pick({4, 6, 7}));
    } else if (subtype == 6) {
      put(d, 34, 32, rarely(20) ? below(8) : below(5));
    }
    // One context, a range with gaps, or an invalid range.
    const auto first = pick({0, 1, 1, 6, 6, 11, 11}),
               last = rarely(8) ? pick({0, 7, 11, 127}) : first;
    put(d, 79, 64, first);
    put(d, 95, 80, rarely(60) ? pick({128, 65535}) : last);
    if (subtype == 5) {
      put(d, 107, 96, rarely(20) ? pick({129, 130, 4095}) : below(4));
    } else {
      const auto key = below(256);
      put(d, 111, 96, key);
      put(d, 127, 112, rarely(40) ? pick({0, 256, 65535}) : key + below(256 - key));
    }
    return d;
  }

  std::mt19937_64 random_;
  const Model& model_;
};

}  // namespace softhca::sdxi::test::model
