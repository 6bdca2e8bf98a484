// The device against the reference model: the same random, partly illegal descriptors; memory,
// completion blocks, states, indices, interrupts and error logs must agree.
#include "sdxi/model.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "sdxi/machine.h"

namespace softhca::sdxi::test {
namespace {

using ent = spec::errlog_hd_ent;
using spec::cxtv;

/// Two functions of a group, three contexts each, in the device and in the model.
class Arena {
 public:
  static constexpr std::size_t kWindow = 64 << 10;
  static constexpr unsigned kContexts = 3;
  static constexpr unsigned kLogPower = 4;

  explicit Arena(std::uint64_t seed) : random_(seed) {
    model_.memories.resize(2);
    model_.logs.resize(2);
    model_.interrupts.resize(2);
    for (unsigned f = 0; f < 2; ++f) set_up(f);
    for (unsigned f = 0; f < 2; ++f) grant(f);
  }

  /// One round: up to a ring of descriptors for every context, then the comparison.
  std::uint64_t round() {
    std::uint64_t count = 0;
    for (unsigned f = 0; f < 2; ++f) {
      for (auto& pair : contexts_[f]) {
        const auto n = 1 + random_() % 24;
        std::vector<model::Bytes> sequence(n);
        for (auto& d : sequence) {
          d = random_descriptor(f);
          Descriptor raw;
          std::memcpy(raw.data(), d.data(), raw.size());
          machines_[f]->push(pair.device, raw);
        }
        for (const auto& d : sequence) {
          if (!pair.reference.error) model_.process(pair.reference, d);
        }
        count += n;
        // Contexts work on the same memory: one after the other, so that both orders are the same.
        machines_[f]->doorbell(pair.device.number, machines_[f]->write_index(pair.device));
        run();
        compare(f, pair);
        if (::testing::Test::HasFailure()) return count;
        restart(f, pair);
      }
    }
    return count;
  }

 private:
  struct Pair {
    Machine::Context device;
    model::Context reference;
  };

  Machine& machine(unsigned f) { return *machines_[f]; }

  void set_up(unsigned f) {
    machines_[f] = std::make_unique<Machine>(group_);
    auto& m = machine(f);
    m.activate();
    m.make_error_log(kLogPower, false);
    m.set_field<spec::mmio_ctl2>(spec::mmio_register::MMIO_CTL2, spec::mmio_ctl2::max_buffer, 0);
    m.make_rkeys();
    window_[f] = m.allocate(kWindow, 4096);
    for (std::size_t i = 0; i < kWindow; ++i) {
      m.host(window_[f])[i] = static_cast<std::byte>(random_());
    }
    auto& memory = model_.memories[f];
    memory.base = window_[f];
    memory.bytes.resize(kWindow);
    std::memcpy(memory.bytes.data(), m.host(window_[f]), kWindow);
    for (unsigned i = 0; i < kContexts; ++i) {
      const auto number = static_cast<ContextNumber>(1 + i * 5);
      contexts_[f].push_back(
          {m.start_context(number, 32), model::Context{.number = number, .function = f}});
    }
  }

  /// AKeys 0 local, 1 interrupt, 2 the other function, 3 refused there, 4 interrupt there, 9
  /// invalid.
  void grant(unsigned f) {
    auto& target = machine(1 - f);
    const auto requester = machine(f).device->sfunc();
    target.rkey(7).set(spec::rkey_ent::vl, 1);
    target.rkey(7).set(spec::rkey_ent::req_sfunc, requester);
    target.rkey(9).set(spec::rkey_ent::vl, 1);
    target.rkey(9).set(spec::rkey_ent::req_sfunc, requester);
    target.rkey(9).set(spec::rkey_ent::iv, 1);
    target.rkey(9).set(spec::rkey_ent::intr_num, 1);
    for (auto& [device, reference] : contexts_[f]) {
      const auto remote = [&](std::uint16_t index, std::uint16_t rkey) {
        const auto entry = machine(f).akey(device, index);
        entry.set(spec::akey_ent::vl, 1);
        entry.set(spec::akey_ent::tgt_sfunc, target.device->sfunc());
        entry.set(spec::akey_ent::rkey, rkey);
      };
      remote(2, 7), remote(3, 8), remote(4, 9);
      using Key = model::Key;
      reference.keys = {{0, {Key::kMemory, f}},
                        {1, {Key::kInterrupt, f}},
                        {2, {Key::kMemory, 1 - f}},
                        {3, {Key::kForbidden, 1 - f}},
                        {4, {Key::kInterrupt, 1 - f}}};
    }
  }

  void run() {
    for (auto& m : machines_) m->run();
  }

  std::uint64_t pick(std::initializer_list<std::uint64_t> values) {
    return values.begin()[random_() % values.size()];
  }
  bool rarely(unsigned in) { return random_() % in == 0; }

  static void put(model::Bytes& d, unsigned hi, unsigned lo, std::uint64_t value) {
    for (unsigned i = lo; i <= hi; ++i) {
      const auto mask = static_cast<std::uint8_t>(1u << i % 8);
      d[i / 8] =
          static_cast<std::uint8_t>((d[i / 8] & ~mask) | ((value >> (i - lo) & 1) ? mask : 0));
    }
  }

  /// An address where `size` bytes fit into the window of `f`, or, rarely, nothing is mapped.
  std::uint64_t address(unsigned f, std::uint64_t size, std::uint64_t alignment) {
    if (rarely(40) || size > kWindow) return 0x10000 + random_() % 64 * 4096;
    const auto at = random_() % (kWindow - size + 1);
    return window_[f] + at / alignment * alignment;
  }
  unsigned akey() {
    return static_cast<unsigned>(rarely(30) ? pick({3, 9, 255, 256, 65535}) : pick({0, 0, 0, 2}));
  }
  unsigned side(unsigned f, unsigned key) { return key == 2 ? 1 - f : f; }

  model::Bytes random_descriptor(unsigned f) {
    model::Bytes d{};
    put(d, 0, 0, 1);
    put(d, 1, 1, rarely(8));
    put(d, 2, 2, rarely(3));
    put(d, 3, 3, rarely(200));
    put(d, 4, 4, random_());
    const auto kind = random_() % 64;
    if (kind < 10) {
      put(d, 26, 16, 1), put(d, 15, 8, 1);
      put(d, 1, 1, rarely(50));
    } else if (kind < 22) {
      put(d, 26, 16, 1), put(d, 15, 8, 2);
      make_write(f, d);
    } else if (kind < 36) {
      put(d, 26, 16, 1), put(d, 15, 8, 3);
      make_copy(f, d);
    } else if (kind < 42) {
      put(d, 26, 16, 1), put(d, 15, 8, 4);
      make_repeat(f, d);
    } else if (kind < 58) {
      put(d, 26, 16, 3), put(d, 15, 8, 1 + random_() % 14);
      make_atomic(f, d);
    } else if (kind < 62) {
      put(d, 26, 16, 4);
      put(d, 111, 96, rarely(10) ? pick({0, 2, 3, 9, 400}) : pick({1, 4}));
    } else {
      for (auto& byte : d) byte = static_cast<std::uint8_t>(random_());
      put(d, 0, 0, 1);
      // Addresses that nobody owns, so that chance does not hit the machine's own structures.
      put(d, 191, 160, 0), put(d, 255, 224, 0), put(d, 383, 352, 0), put(d, 511, 480, 0);
      return d;
    }
    put(d, 448, 448, random_());
    put(d, 511, 453, address(f, 32, 32) >> 5);
    return d;
  }
  void make_write(unsigned f, model::Bytes& d) {
    const auto key = akey(), size = static_cast<unsigned>(1 + random_() % 32);
    put(d, 36, 32, size - 1);
    put(d, 65, 64, rarely(50) ? 3 : random_() % 3);
    put(d, 111, 96, key);
    put(d, 191, 128, address(side(f, key), size, 1));
    for (std::size_t i = 24; i < 56; ++i) d[i] = static_cast<std::uint8_t>(random_());
  }
  void make_copy(unsigned f, model::Bytes& d) {
    const auto from = akey(), to = akey();
    const auto size = rarely(60) ? (std::uint64_t{2} << 20) + 1 + random_() % 1000
                                 : 1 + random_() % (rarely(4) ? 20000 : 200);
    put(d, 63, 32, size - 1);
    put(d, 65, 64, rarely(50) ? 3 : random_() % 3);
    put(d, 69, 68, rarely(50) ? 3 : random_() % 3);
    put(d, 111, 96, from), put(d, 127, 112, to);
    const auto source = address(side(f, from), size, 1);
    put(d, 191, 128, source);
    put(d, 255, 192, apart(source, size, size, [&] { return address(side(f, to), size, 1); }));
  }
  /// A destination that does not overlap the source: what happens then is not defined (SDXI 5.6).
  template <class Draw>
  std::uint64_t apart(std::uint64_t source, std::uint64_t read, std::uint64_t written, Draw draw) {
    for (;;) {
      const auto at = draw();
      if (at + written <= source || source + read <= at || source < Machine::kBase) return at;
    }
  }
  void make_repeat(unsigned f, model::Bytes& d) {
    const auto from = akey(), to = akey();
    const auto units = 1 + random_() % 2, copies = rarely(30) ? 600 : 1 + random_() % 4;
    put(d, 52, 44, units - 1), put(d, 287, 268, copies - 1);
    put(d, 111, 96, from), put(d, 127, 112, to);
    put(d, 128, 128, 0);
    const auto source = address(side(f, from), units * 4096, 4096);
    put(d, 191, 140, source >> 12);
    const auto draw = [&] { return address(side(f, to), units * copies * 4096, 4096); };
    put(d, 255, 204, apart(source, units * 4096, units * copies * 4096, draw) >> 12);
  }
  void make_atomic(unsigned f, model::Bytes& d) {
    const auto key = akey();
    const auto eight = random_() % 2;
    put(d, 36, 34, rarely(50) ? 2 + random_() % 6 : eight);
    put(d, 65, 64, rarely(50) ? 3 : random_() % 3);
    put(d, 111, 96, key);
    // Half of them on few words, so that operands meet values that were stored before.
    const auto at = rarely(2) ? window_[side(f, key)] + random_() % 4 * 8
                              : address(side(f, key), 8, rarely(30) ? 4 : (eight ? 8 : 4));
    put(d, 191, 130, at >> 2);
    put(d, 255, 192, rarely(3) ? random_() : pick({0, 1, 2, ~0ull, 1ull << 63, 1ull << 31}));
    put(d, 319, 256, random_());
    put(d, 320, 320, random_());
    put(d, 383, 322, address(f, 8, rarely(30) ? 4 : 8) >> 2);
  }

  void compare(unsigned f, Pair& pair) {
    auto& m = machine(f);
    for (unsigned side = 0; side < 2; ++side) {
      ASSERT_EQ(0, std::memcmp(model_.memories[side].bytes.data(),
                               machine(side).host(window_[side]), kWindow))
          << "memory of function " << side;
      ASSERT_EQ(machine(side).interrupts(1), model_.interrupts[side]);
    }
    ASSERT_EQ(m.read_index(pair.device), pair.reference.read_index);
    ASSERT_EQ(m.state(pair.device), pair.reference.error ? cxtv::CXTV_ERR_FN : cxtv::CXTV_RUN);
    std::vector<model::Record> records;
    for (auto i = read_[f]; i < m.records(); ++i) {
      const auto r = m.record(i);
      records.push_back({r.get(ent::step), r.get(ent::err_class), r.get(ent::cxt_num),
                         r.get(ent::bv) ? r.get(ent::buf) : 0, r.get(ent::dsc_index)});
    }
    read_[f] = m.records();
    m.write(spec::mmio_register::MMIO_ERR_RD, read_[f]);
    ASSERT_EQ(records.size(), model_.logs[f].size());
    for (std::size_t i = 0; i < records.size(); ++i) {
      const auto& got = records[i];
      const auto& want = model_.logs[f][i];
      EXPECT_TRUE(got == want) << "step " << got.step << "/" << want.step << std::hex << " class "
                               << got.err_class << "/" << want.err_class << " buffer " << got.buffer
                               << "/" << want.buffer << std::dec << " index " << got.index << "/"
                               << want.index;
    }
    model_.logs[f].clear();
  }

  /// Software clears an error away and starts the context again (SDXI 4.2.3).
  void restart(unsigned f, Pair& pair) {
    if (!pair.reference.error) return;
    auto& m = machine(f);
    std::memset(m.host(pair.device.ring), 0, std::size_t{pair.device.ring_sz} * 64);
    m.store64(pair.device.write_index, pair.reference.read_index);
    m.set_state(pair.device, cxtv::CXTV_STOP_SW);
    auto d = start(pair.device.number, pair.device.number);
    m.submit(m.context(0), d);
    m.run();
    ASSERT_EQ(m.state(pair.device), cxtv::CXTV_RUN);
    pair.reference.error = false;
  }

  std::mt19937_64 random_;
  FunctionGroup group_;
  std::array<std::unique_ptr<Machine>, 2> machines_;
  std::array<Iova, 2> window_{};
  std::array<std::vector<Pair>, 2> contexts_;
  std::array<std::uint64_t, 2> read_{};
  model::Model model_;
};

void check(std::uint64_t descriptors, std::uint64_t seed) {
  util::set_log_level(util::LogLevel::kError);
  SCOPED_TRACE("seed " + std::to_string(seed));
  Arena arena(seed);
  for (std::uint64_t done = 0; done < descriptors && !::testing::Test::HasFailure();) {
    done += arena.round();
  }
  util::set_log_level(util::LogLevel::kInfo);
}

TEST(ModelTest, TwentyThousandRandomDescriptorsAgree) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) check(5000, seed);
}

/// sdxi_test --gtest_also_run_disabled_tests --gtest_filter=*MillionRandom*; SEED chooses another.
TEST(ModelTest, DISABLED_AMillionRandomDescriptorsAgree) {
  const auto* seed = std::getenv("SEED");
  check(1000000, seed == nullptr ? 2022 : std::strtoull(seed, nullptr, 10));
}

}  // namespace
}  // namespace softhca::sdxi::test
