// The device and the reference model side by side. Both get the same input, and their observable
// state must be the same.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

#include "sdxi/machine.h"
#include "sdxi/model_descriptors.h"

namespace softhca::sdxi::test {

/// Two PFs and a VF of the first in one group, each with an administrative and three other
/// contexts.
class Arena {
 public:
  /// Ways to run the device; they must not change the result.
  struct Mode {
    unsigned workers = 0;
    std::uint32_t turn_bytes = 256 << 10;
    bool remote = false;  ///< the memory of function 1 is behind a peer
  };

  explicit Arena(std::uint64_t seed, const Mode& mode) : mode_(mode), random_(seed, model_) {
    group_.workers().set_patience({});  // workers start at a doorbell, not earlier
    model_.functions.resize(kFunctions);
    for (unsigned f = 0; f < kFunctions; ++f) set_up(f);
    model_.functions[0].vf = 2;
    model_.functions[2].is_vf = true;
    for (unsigned f = 0; f < kFunctions; ++f) grant(f), keep_up(f);
  }

  /// Performs one action of a driver, legal or not, then compares both.
  void act() {
    last_.clear();
    side_by_side_ = mode_.workers != 0;
    const auto f = static_cast<unsigned>(random_.below(kFunctions));
    keep_up(f);
    const auto what = random_.below(100);
    if (what < 46) {
      work(f);
    } else if (what < 62) {
      crowd();
    } else if (what < 84) {
      administer(f);
    } else if (what < 94) {
      change_keys(f);
    } else if (what < 99) {
      change_tables(f);
    } else {
      take_down(f);
    }
    compare();
  }

  /// The descriptors that the last act() added to rings, as hexadecimal words.
  std::string last() const {
    std::string text;
    for (const auto& [f, number, d] : last_) {
      text += "function " + std::to_string(f) + " context " + std::to_string(number) + ":";
      for (unsigned word = 0; word < 8; ++word) {
        std::array<char, 20> hex{};
        std::snprintf(hex.data(), hex.size(), " %016lx", model::bits(d, word * 64 + 63, word * 64));
        text += hex.data();
      }
      text += "\n";
    }
    return text;
  }
  std::uint64_t sequences() const { return sequences_; }
  std::uint64_t descriptors() const { return descriptors_; }
  std::uint64_t errors() const { return errors_; }

 private:
  using ent = spec::errlog_hd_ent;
  using reg = spec::mmio_register;
  static constexpr unsigned kFunctions = 3, kVf = 2;
  static constexpr std::size_t kMemory = model::Generator::kWindow + model::Generator::kSlack;
  static constexpr std::array<ContextNumber, 3> kNumbers{1, 6, 11};

  Machine& machine(unsigned f) { return *machines_[f]; }
  model::Function& reference(unsigned f) { return model_.functions[f]; }
  model::Context& reference(unsigned f, ContextNumber number) {
    return model_.functions[f].contexts.at(number);
  }
  ContextNumber any_number() { return kNumbers[random_.below(kNumbers.size())]; }

  void set_up(unsigned f) {
    DeviceOptions options{.vfs = static_cast<std::uint16_t>(f == 0 ? 1 : 0),
                          .workers = mode_.workers};
    options.turn_bytes = mode_.turn_bytes;
    machines_[f] = std::make_unique<Machine>(
        group_, options, f == kVf ? machines_[0].get() : nullptr,
        mode_.remote && f == 1 ? Machine::Memory::kTraced : Machine::Memory::kLocal);
    auto& m = machine(f);
    m.activate();
    m.make_error_log(4, false);
    m.set_field<spec::mmio_ctl2>(reg::MMIO_CTL2, spec::mmio_ctl2::max_buffer, 0);
    m.make_rkeys();
    auto& function = reference(f);
    function.sfunc = m.device->sfunc();
    function.state = model::kActive;
    function.memory.base = m.allocate(kMemory, 4096);
    function.memory.bytes.resize(kMemory);
    for (auto& byte : function.memory.bytes) byte = static_cast<std::uint8_t>(random_.number());
    std::memcpy(m.host(function.memory.base), function.memory.bytes.data(), kMemory);
    function.contexts[0] = {.number = 0, .function = f, .state = model::kRun};
    for (const auto number : kNumbers) {
      m.make_context(number, 32);
      function.contexts[number] = {.number = number, .function = f};
    }
    for (auto& [number, c] : function.contexts) {
      c.keys[0] = {.vl = true};
      c.keys[1] = {.vl = true, .iv = true, .interrupt = 1};
    }
  }

  /// AKeys 2 and 5: memory of the other functions; 4: interrupt of one; 3: refused by the target.
  void grant(unsigned f) {
    for (const auto number : kNumbers) {
      for (unsigned i = 0; i < 2; ++i) {
        const auto to = (f + 1 + i) % kFunctions;
        put_rkey(to, 10 + f, {.vl = true, .requester = reference(f).sfunc});
        put_rkey(to, 20 + f,
                 {.vl = true, .iv = true, .interrupt = 2, .requester = reference(f).sfunc});
        put_akey(f, number, 2 + 3 * i,
                 {.vl = true, .function = reference(to).sfunc, .rkey = 10 + f});
        put_akey(f, number, 3 + i,
                 {.vl = true, .function = reference(to).sfunc, .rkey = i == 0 ? 99 : 20 + f});
      }
    }
  }
  void put_akey(unsigned f, ContextNumber number, unsigned index, const model::AKey& key) {
    auto& m = machine(f);
    const auto entry = m.akey(m.context(number), static_cast<std::uint16_t>(index));
    using e = spec::akey_ent;
    entry.set(e::vl, key.vl), entry.set(e::iv, key.iv), entry.set(e::pv, key.pv);
    entry.set(e::intr_num, key.interrupt);
    entry.set(e::tgt_sfunc, key.function), entry.set(e::rkey, key.rkey);
    reference(f, number).keys[index] = key;
  }
  void put_rkey(unsigned f, unsigned index, const model::RKey& key) {
    const auto entry = machine(f).rkey(static_cast<std::uint16_t>(index));
    using e = spec::rkey_ent;
    entry.set(e::vl, key.vl), entry.set(e::iv, key.iv), entry.set(e::pv, key.pv);
    entry.set(e::intr_num, key.interrupt), entry.set(e::req_sfunc, key.requester);
    reference(f).keys[index] = key;
  }

  static std::uint64_t* word(const Machine& m, Iova at) {
    return reinterpret_cast<std::uint64_t*>(m.host(at));
  }
  static std::uint64_t load(const Machine& m, Iova at) {
    return __atomic_load_n(word(m, at), __ATOMIC_ACQUIRE);
  }
  static void store(const Machine& m, Iova at, std::uint64_t value) {
    __atomic_store_n(word(m, at), value, __ATOMIC_RELEASE);
  }

  /// Adds descriptors to a ring of both.
  void give(unsigned f, ContextNumber number, const std::vector<model::Bytes>& sequence) {
    auto& m = machine(f);
    const auto& context = m.context(number);
    for (const auto& d : sequence) {
      const auto index = load(m, context.write_index);
      const auto slot = m.slot(context, index);
      std::memcpy(m.host(slot) + 8, d.data() + 8, d.size() - 8);
      std::uint64_t head;
      std::memcpy(&head, d.data(), 8);
      store(m, slot, head);
      store(m, context.write_index, index + 1);
      reference(f, number).ring.push_back(d);
      last_.push_back({f, number, d});
    }
    ++sequences_;
    descriptors_ += sequence.size();
  }
  /// Rings a doorbell at both; the device has not run yet.
  void ring(unsigned f, ContextNumber number) {
    auto& m = machine(f);
    m.doorbell(number, load(m, m.context(number).write_index));
    model_.run(reference(f, number));
  }
  void submit(unsigned f, ContextNumber number, const std::vector<model::Bytes>& sequence) {
    give(f, number, sequence);
    ring(f, number);
    settle();
  }
  /// Runs the device until it reaches the model's state, or a time limit.
  void settle() {
    for (auto& m : machines_) m->trace.accesses.clear();
    for (int pass = 0; pass < 2; ++pass) {
      for (auto& each : machines_) each->run();
    }
    if (mode_.workers == 0) return;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!has_settled() && std::chrono::steady_clock::now() < end) {
      for (auto& each : machines_) each->run();
      std::this_thread::yield();
    }
  }
  /// True if Read_Index and state of every context equal the model's, and no worker holds one.
  bool has_settled() {
    for (unsigned f = 0; f < kFunctions; ++f) {
      auto& m = machine(f);
      for (const auto& [number, c] : reference(f).contexts) {
        const auto& context = m.context(static_cast<ContextNumber>(number));
        if (load(m, context.sts + 8) != c.read_index) return false;
        if ((load(m, context.sts) & 0xf) != c.state) return false;
      }
      bool idle = true;
      m.device->contexts().for_each([&idle](const Context& context) {
        idle = idle && (!context.assigned || context.attention == Attention::kNobody);
      });
      if (!idle) return false;
    }
    return true;
  }
  /// Removes the descriptors that a stopped context has left.
  void drain(unsigned f, ContextNumber number) {
    auto& m = machine(f);
    const auto& context = m.context(number);
    auto& c = reference(f, number);
    if (c.ring.empty()) return;
    std::memset(m.host(context.ring), 0, std::size_t{context.ring_sz} * 64);
    store(m, context.write_index, c.read_index);
    c.ring.clear();
  }
  void set_state(unsigned f, ContextNumber number, model::State state) {
    machine(f).set_state(machine(f).context(number), static_cast<spec::cxtv>(state));
    reference(f, number).state = state;
  }

  bool administrable(unsigned f) {
    return reference(f).state == model::kActive && reference(f, 0).state == model::kRun;
  }

  /// Recovery by software: brings functions up, repairs contexts and restarts them.
  void keep_up(unsigned f) {
    if (!administrable(f) && !random_.rarely(3)) bring_up(f);
    if (!administrable(f)) return;
    for (const auto number : kNumbers) {
      auto& c = reference(f, number);
      if (c.state == model::kRun || random_.rarely(3)) continue;
      repair(f, number);
      submit(f, 0, {model::Generator::start(c, false)});
    }
  }
  void repair(unsigned f, ContextNumber number) {
    write_tables(f, number, {.number = number, .function = f});
    const auto state = reference(f, number).state;
    if (state == model::kErrFn || state == model::kReserved) set_state(f, number, model::kStopSw);
  }
  /// SDXI 4.1.9, 4.1.6, 4.1.8. If only context 0 has stopped, a jump start may suffice (SDXI
  /// 4.3.4).
  void bring_up(unsigned f) {
    if (reference(f).state == model::kActive && random_.rarely(2)) {
      drain(f, 0);
      return set_state(f, 0, model::kRun);
    }
    stop_function(f);
    drain(f, 0);
    set_state(f, 0, model::kRun);
    machine(f).request(spec::fn_gsr::GSRV_ACTIVE);
    machine(f).run();
    reference(f).state = model::kActive;
  }
  void stop_function(unsigned f) {
    auto& m = machine(f);
    if (reference(f).state == model::kActive) {
      m.request(random_.rarely(2) ? spec::fn_gsr::GSRV_STOP_SF : spec::fn_gsr::GSRV_STOP_HD);
      model_.stop_function(f);
    } else if (reference(f).state == model::kError) {
      m.request(spec::fn_gsr::GSRV_RESET);
      reference(f).state = model::kStopped;
    }
    m.run();
  }
  void take_down(unsigned f) {
    if (random_.rarely(3) && reference(f).state == model::kActive) {
      machine(f).request(spec::fn_gsr::GSRV_RESET);
      machine(f).run();
      model_.halt_function(f);
    } else {
      stop_function(f);
    }
  }

  std::vector<model::Bytes> random_sequence(unsigned f, ContextNumber number, std::uint64_t most) {
    std::vector<model::Bytes> sequence;
    std::set<std::pair<bool, std::uint64_t>> signaled;  ///< by a start: in the VF?, number
    for (auto n = 1 + random_.below(most); n > 0; --n) {
      auto& d = sequence.emplace_back(random_.descriptor(reference(f, number)));
      if (number != 0) continue;
      const auto subtype = model::bits(d, 15, 8);
      const bool starts = subtype == 3 || subtype == 8, stops = subtype == 4;
      if (!starts && !stops) continue;
      // Contexts that a start signals run concurrently with later operations. They are not started
      // or stopped again, because the time of that would be undefined.
      const bool vf = model::bits(d, 47, 47);
      const auto first = model::bits(d, 79, 64), last = model::bits(d, 95, 80);
      const auto hit = signaled.lower_bound({vf, std::max<std::uint64_t>(first, 1)});
      if (hit != signaled.end() && hit->first == vf && hit->second <= last) {
        d = model::Generator::update(random_.rarely(2));
      } else if (starts && model::bits(d, 46, 46)) {
        for (const auto one : kNumbers) {
          if (first <= one && one <= last) signaled.insert({vf, one});
        }
      }
    }
    return sequence;
  }

  /// Adds descriptors to a context. A context that is not running gets them, too, and is then
  /// started.
  void work(unsigned f) {
    const auto number = any_number();
    auto& c = reference(f, number);
    submit(f, number, random_sequence(f, number, 24));
    const bool by_pf = f == kVf && random_.rarely(2);
    if (c.state != model::kRun && administrable(by_pf ? 0 : f) && c.state != model::kErrFn) {
      submit(by_pf ? 0 : f, 0, {model::Generator::start(c, by_pf)});
    }
    drain(f, number);
  }
  /// Adds descriptors to many contexts in one step, each of which works in its own slice of memory.
  /// Running contexts get a doorbell. The others are started one by one, or one operation starts
  /// them all. Meanwhile the administrative context continues.
  void crowd() {
    side_by_side_ = true;
    const bool by_one = random_.rarely(2);
    std::vector<std::pair<unsigned, ContextNumber>> bells;
    for (unsigned f = 0; f < kFunctions; ++f) {
      keep_up(f);
      if (!administrable(f)) continue;
      std::vector<model::Bytes> administration;
      bool any_failed = false;
      for (const auto number : kNumbers) {
        const auto& c = reference(f, number);
        any_failed = any_failed || c.state == model::kErrFn || c.state == model::kReserved;
        if (random_.rarely(4)) continue;
        give(f, number, random_sequence(f, number, 12));
        if (by_one) continue;
        if (c.state == model::kRun) {
          bells.emplace_back(f, number);
        } else {
          administration.push_back(model::Generator::start(c, false));
        }
      }
      if (by_one) administration.push_back(model::Generator::start_all(!any_failed));
      administration.push_back(model::Generator::update(false));
      administration.push_back(model::Generator::update(true));
      give(f, 0, administration);
      bells.emplace_back(f, 0);
    }
    for (const auto& [f, number] : bells) ring(f, number);
    settle();
    // A failed start has signaled no context.
    for (unsigned f = 0; f < kFunctions; ++f) {
      for (const auto number : kNumbers) {
        const auto& c = reference(f, number);
        if (c.state == model::kRun && !c.ring.empty()) ring(f, number);
      }
    }
    settle();
    for (unsigned f = 0; f < kFunctions; ++f) {
      for (const auto number : kNumbers) drain(f, number);
      if (!administrable(f)) drain(f, 0);
    }
  }
  void administer(unsigned f) {
    submit(f, 0, random_sequence(f, 0, 8));
    if (reference(f, 0).state != model::kRun || reference(f).state != model::kActive) drain(f, 0);
  }
  void tell(unsigned f) {
    if (administrable(f))
      submit(f, 0, {model::Generator::update(false), model::Generator::update(true)});
  }

  void change_keys(unsigned f) {
    const auto number = any_number();
    const auto interrupt = static_cast<unsigned>(random_.pick({0, 1, 2, 3, 129, 130, 2047}));
    if (random_.rarely(3)) {
      grant(f);
    } else if (random_.rarely(2)) {
      const bool local = random_.rarely(2);
      const auto sfunc = random_.rarely(8)
                             ? random_.pick({77, 65535})
                             : reference(static_cast<unsigned>(random_.below(kFunctions))).sfunc;
      put_akey(f, number, static_cast<unsigned>(random_.below(7)),
               {.vl = !random_.rarely(5),
                .iv = random_.rarely(local ? 2 : 6),
                .pv = random_.rarely(8),
                .interrupt = interrupt,
                .function = local ? 0 : static_cast<unsigned>(sfunc),
                .rkey = static_cast<unsigned>(random_.pick({10, 11, 12, 20, 21, 22, 255, 256}))});
    } else {
      put_rkey(f, static_cast<unsigned>(random_.pick({10, 11, 12, 20, 21, 22, 255})),
               {.vl = !random_.rarely(5),
                .iv = random_.rarely(2),
                .pv = random_.rarely(6),
                .interrupt = interrupt,
                .requester = reference(static_cast<unsigned>(random_.below(kFunctions))).sfunc});
    }
    if (random_.rarely(4)) {
      put_akey(f, number, 0, {.vl = true});
      put_akey(f, number, 1, {.vl = true, .iv = true, .interrupt = 1});
    }
    tell(f);
  }

  /// Changes tables of a context that is not running (SDXI 4.3.1.2), validly or not.
  void change_tables(unsigned f) {
    const auto number = any_number();
    const auto state = reference(f, number).state;
    if (state == model::kRun) return;
    model::Context tables{.number = number, .function = f};
    tables.vl = !random_.rarely(4);
    tables.control_vl = !random_.rarely(4);
    tables.akey_sz = random_.rarely(3) ? 9 : 0;
    tables.ring_sz = random_.rarely(3) ? 0 : 32;
    if (random_.rarely(2)) tables.groups = static_cast<std::uint32_t>(random_.pick({0, 8, 16, 32}));
    write_tables(f, number, tables);
    if (random_.rarely(3)) set_state(f, number, model::kReserved);
    tell(f);
    if (administrable(f)) submit(f, 0, random_sequence(f, 0, 4));
    if (!administrable(f)) drain(f, 0);
    if (reference(f, number).state != model::kRun) repair(f, number);
  }
  void write_tables(unsigned f, ContextNumber number, const model::Context& tables) {
    auto& m = machine(f);
    const auto& context = m.context(number);
    const auto entry = m.at<spec::cxt_l1_ent>(context.l1);
    const auto control = m.at<spec::cxt_ctl>(context.ctl);
    entry.set(spec::cxt_l1_ent::vl, tables.vl);
    control.set(spec::cxt_ctl::vl, tables.control_vl);
    entry.set(spec::cxt_l1_ent::akey_sz, tables.akey_sz);
    entry.set(spec::cxt_l1_ent::opb_000_enb, tables.groups);
    control.set(spec::cxt_ctl::ds_ring_sz, tables.ring_sz);
    auto& c = reference(f, number);
    c.vl = tables.vl, c.control_vl = tables.control_vl;
    c.akey_sz = tables.akey_sz, c.ring_sz = tables.ring_sz;
    c.groups = tables.groups;
  }

  // Comparison.

  void compare() {
    for (unsigned f = 0; f < kFunctions && !::testing::Test::HasFailure(); ++f) {
      SCOPED_TRACE("function " + std::to_string(f));
      compare(f);
    }
  }
  void compare(unsigned f) {
    auto& m = machine(f);
    auto& want = reference(f);
    EXPECT_EQ(static_cast<unsigned>(m.gsv()), want.state) << "MMIO_STS0.fn_gsv";
    EXPECT_EQ(0, std::memcmp(want.memory.bytes.data(), m.host(want.memory.base), kMemory))
        << "memory";
    for (const auto vector : {0u, 1u, 2u, 3u, 129u}) {
      EXPECT_EQ(m.interrupts(vector), want.interrupts[vector]) << "interrupt " << vector;
    }
    for (auto& [number, c] : want.contexts) {
      const auto& context = m.context(static_cast<ContextNumber>(number));
      EXPECT_EQ(static_cast<unsigned>(m.state(context)), c.state) << "state of context " << number;
      EXPECT_EQ(m.read_index(context), c.read_index) << "Read_Index of context " << number;
    }
    compare_log(f);
  }
  void compare_log(unsigned f) {
    auto& m = machine(f);
    auto& want = reference(f).log;
    const auto status = m.read(reg::MMIO_ERR_STS);
    EXPECT_EQ(status, want.empty() ? 0u : 1u) << "MMIO_ERR_STS";
    if (status != 0) m.write(reg::MMIO_ERR_STS, status);
    const auto end = m.records();
    EXPECT_EQ(end - read_[f], want.size()) << "records";
    std::vector<model::Record> have;
    for (auto i = read_[f]; i < end; ++i) have.push_back(decode(m.record(i)));
    const auto by_text = [](const auto& a, const auto& b) { return text(a) < text(b); };
    if (side_by_side_) {  // SDXI 3.4: the function chooses their order
      std::ranges::sort(have, by_text);
      std::ranges::sort(want, by_text);
    }
    for (auto i = want.size(); i < end - read_[f]; ++i) {
      ADD_FAILURE() << "more of the device: " << text(have[i]);
    }
    for (auto i = end - read_[f]; i < want.size(); ++i) {
      ADD_FAILURE() << "more of the model: " << text(want[i]);
    }
    for (std::size_t i = 0; i < want.size() && read_[f] + i < end; ++i) {
      EXPECT_EQ(text(have[i]), text(want[i]));
      ++errors_;
    }
    read_[f] = end;
    if (!want.empty()) m.write(reg::MMIO_ERR_RD, end);
    want.clear();
  }
  static model::Record decode(util::View<ent> r) {
    model::Record got{r.get(ent::step), r.get(ent::err_class), r.get(ent::re), {}, {}, {}};
    if (r.get(ent::cv)) got.context = r.get(ent::cxt_num);
    if (r.get(ent::div)) got.index = r.get(ent::dsc_index);
    if (r.get(ent::bv)) got.buffer = r.get(ent::buf);
    if (r.get(ent::target_valid)) {
      got.target_context = r.get(ent::target_cxt_num);
      got.target_step = r.get(ent::target_step);
    }
    return got;
  }
  static std::string text(const model::Record& r) {
    const auto part = [](const char* name, const auto& value) {
      return value ? std::string(name) + std::to_string(*value) : std::string();
    };
    std::array<char, 16> err_class{};
    std::snprintf(err_class.data(), err_class.size(), "%04x", r.err_class);
    return "step " + std::to_string(r.step) + " class " + err_class.data() + " re " +
           std::to_string(r.reaction) + part(" context ", r.context) + part(" index ", r.index) +
           part(" buffer ", r.buffer) + part(" target context ", r.target_context) +
           part(" step ", r.target_step);
  }

  struct Given {
    unsigned function;
    ContextNumber context;
    model::Bytes descriptor;
  };
  Mode mode_;
  bool side_by_side_ = false;  ///< contexts have worked concurrently since the last comparison
  std::vector<Given> last_;
  model::Model model_;
  model::Generator random_;
  FunctionGroup group_;
  std::array<std::unique_ptr<Machine>, kFunctions> machines_;
  std::array<std::uint64_t, kFunctions> read_{};
  std::uint64_t sequences_ = 0, descriptors_ = 0, errors_ = 0;
};

}  // namespace softhca::sdxi::test
