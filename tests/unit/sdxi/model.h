// A reference model of SDXI 1.0, as simple as possible: one descriptor at a time, memory as arrays,
// tables as structs. Bit positions come from the document, not from spec/. It computes the result
// that a sequence of descriptors must leave.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
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

/// A record of an error log. Parts that its flags mark as not valid are absent.
struct Record {
  unsigned step, err_class, reaction;
  std::optional<unsigned> context;
  std::optional<std::uint64_t> index;
  std::optional<unsigned> buffer;
  // Another context that an administrative descriptor failed on, and the failing step.
  std::optional<unsigned> target_context{}, target_step{};
  bool operator==(const Record&) const = default;
};

/// The cause of a failed operation, as its record reports it.
struct Failure {
  unsigned step, err_class;
  unsigned buffer = 0;
  std::optional<unsigned>
      context{};        ///< the context with the faulty structures, if not the executing one
  bool logged = false;  ///< a VF has logged it
};
using Outcome = std::optional<Failure>;

struct AKey {
  bool vl = false, iv = false, pv = false;
  unsigned interrupt = 0, function = 0, rkey = 0;  ///< function 0: the local one
};
struct RKey {
  bool vl = false, iv = false, pv = false;
  unsigned interrupt = 0, requester = 0;
};

/// Memory of one function: one mapped window, and nothing else.
struct Memory {
  std::uint64_t base = 0;
  std::vector<std::uint8_t> bytes;
  std::uint8_t* find(std::uint64_t at, std::uint64_t size) {
    if (at < base || size > bytes.size() || at - base > bytes.size() - size) return nullptr;
    return &bytes[at - base];
  }
};

/// CXT_STS.state.
enum State : unsigned { kStopSw = 0, kRun = 1, kStopFn = 4, kReserved = 7, kErrFn = 15 };
/// MMIO_STS0.fn_gsv.
enum FunctionState : unsigned { kStopped = 0, kActive = 2, kError = 5 };

constexpr unsigned kLastContext = 127, kVectors = 130, kKeys = 256;

struct Context {
  unsigned number = 0;
  unsigned function = 0;              ///< index into Model::functions
  bool vl = true, control_vl = true;  ///< valid bits of CXT_L1_ENT and CXT_CTL
  unsigned akey_sz = 0, ring_sz = 32;
  std::uint32_t groups = ~std::uint32_t{0};  ///< opb_000_enb
  unsigned state = kStopSw;
  std::uint64_t read_index = 0;
  std::deque<Bytes> ring{};  ///< from Read_Index to Write_Index
  std::map<unsigned, AKey> keys{};
};

struct Function {
  unsigned sfunc = 0;
  std::optional<unsigned> vf{};  ///< the VF 0 of this PF
  bool is_vf = false;
  unsigned state = kStopped;
  Memory memory{};
  std::map<unsigned, Context> contexts{};
  std::map<unsigned, RKey> keys{};
  std::vector<Record> log{};
  std::map<unsigned, std::uint64_t> interrupts{};  ///< count by vector
};

class Model {
 public:
  static constexpr std::uint64_t kMaxBuffer = std::uint64_t{2} << 20;

  std::vector<Function> functions;

  /// A doorbell: executes everything up to Write_Index, or to the first error.
  void run(Context& c) {
    if (functions[c.function].state != kActive || invalid(c) || faulty(c)) return;
    while (c.state == kRun && !c.ring.empty()) process(c, Bytes(c.ring.front()));
  }

  /// SDXI 4.1.9.
  void stop_function(unsigned f) {
    for (auto& [number, c] : functions[f].contexts) {
      if (invalid(c) || faulty(c)) continue;
      if (c.state == kRun) c.state = kStopFn;
    }
    functions[f].state = kStopped;
  }
  /// A request that GSV_ACTIVE does not allow (SDXI 4.1.3): the contexts in memory stay unchanged.
  void halt_function(unsigned f) {
    functions[f].log.push_back({1, 0x2100, 2, {}, {}, {}});
    functions[f].state = kError;
  }

 private:
  /// Executes the descriptor at Read_Index.
  void process(Context& c, const Bytes& d) {
    if (const auto err_class = parse(c, d)) {
      fail(c, {7, *err_class}, c.read_index);
      return;
    }
    const auto index = c.read_index++;
    c.ring.pop_front();
    stop_self_.reset();
    auto failed = execute(c, d);
    const bool np = bits(d, 448, 448);
    auto* block = functions[c.function].memory.find(bits(d, 511, 453) << 5, 32);
    if (!np && block != nullptr) {
      if (failed) block[11] |= 0x80;
      std::uint64_t signal;
      std::memcpy(&signal, block, 8);
      signal = bits(d, 4, 4) ? 0 : signal - 1;
      std::memcpy(block, &signal, 8);
    } else if (!np && !failed) {
      failed = Failure{8, 0x3400};
    }
    if (failed) return fail(c, *failed, index);
    if (bits(d, 26, 16) == 2) complete_administration(c, d);
  }

  void fail(Context& c, const Failure& f, std::uint64_t index) {
    Record record{f.step, f.err_class, 1, c.number, {}, {}};
    if (f.context && *f.context != c.number) {
      record.step = 7;
      record.target_context = f.context, record.target_step = f.step;
    }
    if (record.step >= 7) record.index = index;
    if (f.step >= 10) record.buffer = f.buffer;
    if (!f.logged) functions[c.function].log.push_back(record);
    c.state = kErrFn;
  }

  std::optional<unsigned> parse(const Context& c, const Bytes& d) const {
    const auto type = bits(d, 26, 16), subtype = bits(d, 15, 8);
    const bool dma = type == 1 && subtype >= 1 && subtype <= 4;
    const bool admin = type == 2 && subtype <= 8;
    const bool atomic = type == 3 && subtype >= 1 && subtype <= 14 && subtype != 4;
    const bool intr = type == 4 && subtype == 0;
    if (!dma && !admin && !atomic && !intr) return 0x2400;
    if (admin != (c.number == 0)) return 0x2400;
    if ((atomic && !(c.groups & 1 << 3)) || (intr && !(c.groups & 1 << 4))) return 0x2400;
    if (bits(d, 3, 3)) return 0x2100;
    const bool fence_needed = admin && (subtype == 3 || subtype == 4 || subtype == 8);
    if (fence_needed && !bits(d, 2, 2)) return 0x2100;
    const bool se_forbidden = admin || (dma && subtype == 1);
    if (se_forbidden && bits(d, 1, 1)) return 0x2100;
    return std::nullopt;
  }

  // Administration (SDXI 6.6).

  /// Invalid:Cxt. Tables are read from the top, so a fault in one is found before the next is read.
  static bool invalid(const Context& c) { return !c.vl || (c.akey_sz <= 8 && !c.control_vl); }
  static bool faulty(const Context& c) {
    return c.akey_sz > 8 || c.ring_sz == 0 || c.state == kReserved;
  }
  /// ChkValid:Cxt, LogErr: the fault in a valid context's structures (SDXI 4.3.2).
  static Outcome check_tables(const Context& c, bool with_status) {
    if (c.akey_sz > 8) return Failure{3, 0x2100, 0, c.number};
    if (c.ring_sz == 0) return Failure{4, 0x2340, 0, c.number};
    if (with_status && c.state == kReserved) return Failure{5, 0x2100, 0, c.number};
    return std::nullopt;
  }

  Outcome administer(Context& c, const Bytes& d, unsigned subtype) {
    const auto filter = bits(d, 34, 32);
    if (subtype == 5) {
      const auto vector = static_cast<unsigned>(bits(d, 107, 96));
      if (vector >= kVectors) return Failure{7, 0x2370};
      ++functions[c.function].interrupts[vector];
      return std::nullopt;
    }
    if (subtype == 1 && filter != 4 && filter != 6 && filter != 7) return Failure{7, 0x2100};
    if (subtype == 6 && filter > 4) return Failure{7, 0x2100};
    const auto& self = functions[c.function];
    const bool p2v = bits(d, 47, 47);
    if (p2v && (!self.vf || bits(d, 63, 48) != 0)) return Failure{7, 0x2100};
    const auto target = p2v ? *self.vf : c.function;
    auto failed = act_on(functions[target], d, subtype, p2v);
    // SDXI 3.5: the VF logs it. The VF has no such descriptor, and none of its contexts stops. A VF
    // that is not enabled writes nothing.
    if (failed && p2v && functions[target].state == kActive) {
      // Table 3-10: a step from 7 to 11 would need the descriptor's index.
      const auto step = failed->step >= 7 ? 1 : failed->step;
      functions[target].log.push_back({step, failed->err_class, 0, failed->context, {}, {}});
      failed->logged = true;
    }
    return failed;
  }

  Outcome act_on(Function& target, const Bytes& d, unsigned subtype, bool p2v) {
    const auto filter = bits(d, 34, 32);
    const auto first_key = bits(d, 111, 96), last_key = bits(d, 127, 112);
    if (subtype == 0 || (subtype == 6 && filter == 4)) return std::nullopt;
    if (subtype == 7 || (subtype == 6 && filter == 3)) {
      return first_key > last_key || last_key >= kKeys ? Outcome(Failure{7, 0x2320}) : std::nullopt;
    }
    const auto first = static_cast<unsigned>(bits(d, 79, 64));
    const auto last = static_cast<unsigned>(bits(d, 95, 80));
    if (first > last || last > kLastContext) return Failure{7, 0x2330};
    for (auto number = first; number <= last; ++number) {
      const auto found = target.contexts.find(number);
      // SDXI 4.3.1: no context is valid in a function that is not enabled.
      const bool valid =
          target.state == kActive && found != target.contexts.end() && !invalid(found->second);
      auto* c = valid ? &found->second : nullptr;
      Outcome failed;
      if (subtype == 3 || subtype == 8) failed = start(target, number, c, subtype == 3);
      if (subtype == 4) failed = stop(c, p2v);
      if (subtype == 2 || (subtype == 6 && filter == 2)) {
        if (first_key > last_key) return Failure{7, 0x2320};
        if (c != nullptr) failed = check_tables(*c, false);
        if (c != nullptr && !failed && last_key >= kKeys) {
          failed = Failure{7, 0x2320, 0, c->number};
        }
      }
      if (failed) return failed;
    }
    return std::nullopt;
  }

  static Outcome start(const Function& target, unsigned number, Context* c, bool normal) {
    if (target.state != kActive)
      return normal ? Outcome(Failure{5, 0x2000, 0, number}) : std::nullopt;
    if (c == nullptr) return normal ? Outcome(Failure{5, 0x2330, 0, number}) : std::nullopt;
    if (auto bad = check_tables(*c, true)) return bad;
    if (c->state == kErrFn) {
      return normal ? Outcome(Failure{5, 0x2000, 0, c->number}) : std::nullopt;
    }
    if (normal || c->state != kStopSw) c->state = kRun;
    return std::nullopt;
  }

  Outcome stop(Context* c, bool p2v) {
    if (c == nullptr) return std::nullopt;
    if (c->number == 0 && !p2v) {  // the executing context stops after its completion
      stop_self_ = kStopSw;
      return std::nullopt;
    }
    if (auto bad = check_tables(*c, true)) return bad;
    if (c->state == kRun) c->state = p2v ? kStopFn : kStopSw;
    return std::nullopt;
  }

  void complete_administration(Context& c, const Bytes& d) {
    const auto subtype = bits(d, 15, 8);
    if ((subtype == 3 || subtype == 8) && bits(d, 46, 46)) {  // dv
      auto& target = bits(d, 47, 47) ? functions[*functions[c.function].vf] : functions[c.function];
      for (auto number = bits(d, 79, 64); number <= bits(d, 95, 80); ++number) {
        const auto found = target.contexts.find(static_cast<unsigned>(number));
        if (found != target.contexts.end() && &found->second != &c) run(found->second);
      }
    }
    if (stop_self_) c.state = *stop_self_;
  }

  // Keys (SDXI 3.2.5, 3.3.4).

  Outcome find_key(const Context& c, unsigned akey, unsigned buffer, AKey& out) const {
    const auto found = c.keys.find(akey);
    if (found == c.keys.end() || !found->second.vl) return Failure{11, 0x2320, buffer};
    out = found->second;
    if (out.function != 0 && (out.iv || out.pv)) return Failure{11, 0x2200, buffer};
    return std::nullopt;
  }

  /// Checks a remote access; gives its target and RKey.
  Outcome admit(const Context& c, const AKey& akey, unsigned buffer, Function** target, RKey& out) {
    const Failure refused{10, 0x3100, buffer};
    *target = nullptr;
    for (auto& function : functions) {
      if (function.sfunc == akey.function) *target = &function;
    }
    if (*target == nullptr || (*target)->state != kActive) return refused;
    const auto found = (*target)->keys.find(akey.rkey);
    if (found == (*target)->keys.end() || !found->second.vl) return refused;
    out = found->second;
    if (out.requester != functions[c.function].sfunc) return refused;
    return std::nullopt;
  }
  /// The target's own entry is faulty: the target logs it and continues.
  static Failure faulty_rkey(Function& target, unsigned err_class, unsigned buffer) {
    target.log.push_back({12, err_class, 0, {}, {}, {}});
    return Failure{10, 0x3100, buffer};
  }

  /// The memory of AKey `akey`, or the failure.
  Outcome resolve(const Context& c, unsigned akey, unsigned buffer, Memory** out) {
    AKey key;
    if (auto bad = find_key(c, akey, buffer, key)) return bad;
    *out = &functions[c.function].memory;
    if (key.function == 0) return key.pv ? Outcome(Failure{11, 0x2360, buffer}) : std::nullopt;
    Function* target = nullptr;
    RKey rkey;
    if (auto bad = admit(c, key, buffer, &target, rkey)) return bad;
    if (rkey.pv) return faulty_rkey(*target, 0x2360, buffer);
    *out = &target->memory;
    return std::nullopt;
  }

  Outcome interrupt(const Context& c, const Bytes& d) {
    AKey key;
    if (auto bad = find_key(c, static_cast<unsigned>(bits(d, 111, 96)), 0, key)) return bad;
    if (key.function == 0) {
      if (!key.iv || key.interrupt >= kVectors) return Failure{11, 0x2370};
      ++functions[c.function].interrupts[key.interrupt];
      return std::nullopt;
    }
    Function* target = nullptr;
    RKey rkey;
    if (auto bad = admit(c, key, 0, &target, rkey)) return bad;
    if (!rkey.iv) return Failure{10, 0x3100};
    if (rkey.interrupt >= kVectors) return faulty_rkey(*target, 0x2370, 0);
    ++target->interrupts[rkey.interrupt];
    return std::nullopt;
  }

  // Operations on other contexts.

  Outcome execute(Context& c, const Bytes& d) {
    const auto type = bits(d, 26, 16), subtype = bits(d, 15, 8);
    if (type == 4) return interrupt(c, d);
    if (type == 3) return atomic(c, d, static_cast<unsigned>(subtype));
    if (type == 2) return administer(c, d, static_cast<unsigned>(subtype));
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

  Outcome write_immediate(const Context& c, const Bytes& d) {
    if (bits(d, 65, 64) == 3) return Failure{7, 0x2100};
    Memory* memory = nullptr;
    if (auto bad = resolve(c, static_cast<unsigned>(bits(d, 111, 96)), 0, &memory)) return bad;
    const auto size = bits(d, 36, 32) + 1;
    auto* to = memory->find(bits(d, 191, 128), size);
    if (to == nullptr) return Failure{10, 0x3400, 0};
    std::memcpy(to, &d[24], size);
    return std::nullopt;
  }

  Outcome copy(const Context& c, const Bytes& d, std::uint64_t source, std::uint64_t target,
               std::uint64_t block, std::uint64_t times) {
    if (bits(d, 65, 64) == 3 || bits(d, 69, 68) == 3) return Failure{7, 0x2100};
    if (block * times > kMaxBuffer) return Failure{7, 0x2310};
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
  Outcome apply(const Context& c, const Bytes& d, unsigned subtype, Memory* memory) {
    const auto back_at = bits(d, 383, 322) << 2;
    const bool returns = !bits(d, 320, 320);
    if (returns && back_at % sizeof(Word) != 0) return Failure{9, 0x2100};
    auto* at = memory->find(bits(d, 191, 130) << 2, sizeof(Word));
    if (at == nullptr) return Failure{10, 0x3400, 0};
    Word old;
    std::memcpy(&old, at, sizeof old);
    const auto value = result<Word>(subtype, old, static_cast<Word>(bits(d, 255, 192)),
                                    static_cast<Word>(bits(d, 319, 256)));
    std::memcpy(at, &value, sizeof value);
    if (!returns) return std::nullopt;
    auto* back = functions[c.function].memory.find(back_at, sizeof(Word));
    if (back == nullptr) return Failure{9, 0x3400};
    std::memcpy(back, &old, sizeof old);
    return std::nullopt;
  }

  Outcome atomic(const Context& c, const Bytes& d, unsigned subtype) {
    const auto osz = bits(d, 36, 34);
    if (osz > 1 || (osz == 1 && bits(d, 130, 130)) || bits(d, 65, 64) == 3)
      return Failure{7, 0x2100};
    Memory* memory = nullptr;
    if (auto bad = resolve(c, static_cast<unsigned>(bits(d, 111, 96)), 0, &memory)) return bad;
    return osz == 0 ? apply<std::uint32_t>(c, d, subtype, memory)
                    : apply<std::uint64_t>(c, d, subtype, memory);
  }

  std::optional<unsigned>
      stop_self_;  ///< a context stops itself after its descriptor has completed
};

}  // namespace softhca::sdxi::test::model
