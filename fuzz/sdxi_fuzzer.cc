// The input is the software of two SDXI functions, a PF and its VF, that share memory by RKeys. It
// writes any registers, doorbells, tables, keys, rings and descriptors while the functions work.
// - The functions must not leave their memory (guard pages, sanitizers), hang, or exceed the budget
// of a run().
// - A third function of their group granted them nothing, so it must not change.
// - After a reset, each function works as after power-on.
//
// The input is a sequence of records: an action of one of the two, then its operands (see Action).
// sdxi_seeds.py writes such inputs.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "device_turn.h"
#include "script.h"
#include "sdxi/machine.h"

namespace softhca::sdxi {
namespace {

using test::Machine;

/// The remainder of a record's first byte by kActions. The quotient selects the function.
enum class Action : std::uint8_t {
  kRegister,     ///< which (1), value (8)
  kAnyBarWrite,  ///< offset (4), value (8), size (1)
  kDoorbell,     ///< context (1), value (8)
  kPush,         ///< context (1), descriptor (64): into the ring, valid, with doorbell
  kGood,         ///< context (1), kind (1), two addresses (2 each), size (2): a sound descriptor
  kMemory,       ///< offset (2), bytes (1 + up to 64): anywhere in the function's structures
  kState,        ///< context (1), state (1)
  kAdmin,        ///< kind (1), first (1), last (1), doorbell value (1)
  kRun,          ///< turns (1)
  kTime,         ///< milliseconds (1)
  kReset,
};
constexpr unsigned kActions = 11;

constexpr std::array kRegisters{
    spec::mmio_register::MMIO_CTL0,    spec::mmio_register::MMIO_GRP_ENUM,
    spec::mmio_register::MMIO_CTL2,    spec::mmio_register::MMIO_CXT_L2,
    spec::mmio_register::MMIO_RKEY,    spec::mmio_register::MMIO_ERR_CTL,
    spec::mmio_register::MMIO_ERR_STS, spec::mmio_register::MMIO_ERR_CFG,
    spec::mmio_register::MMIO_ERR_WRT, spec::mmio_register::MMIO_ERR_RD,
    spec::mmio_register::MMIO_MB_CTL,  spec::mmio_register::MMIO_MBS_CTL};

/// Structures and windows of the function lie within its first bytes.
constexpr std::size_t kReach = 256 << 10;
constexpr unsigned kContexts = 4;

using fuzz::check;
using fuzz::Script;

class Attack {
 public:
  Attack() : first_(group_, {.vfs = 1}), second_(group_, {}, &first_), victim_(group_) {
    victim_.activate();
    victim_.start_context(1);
    victim_.make_rkeys();
    prepare(first_, second_);
    prepare(second_, first_);
    const auto bytes = victim_.bytes(Machine::kBase, kReach);
    before_.assign(bytes.begin(), bytes.end());
  }

  void run(Script input) {
    while (!input.empty()) act(input);
    work(first_, 64);
    work(second_, 64);
    work(victim_, 64);
    const auto bytes = victim_.bytes(Machine::kBase, kReach);
    check(std::equal(before_.begin(), before_.end(), bytes.begin()));
    check(victim_.gsv() == spec::fn_gsv::GSV_ACTIVE);
    begin_anew(first_);
    begin_anew(second_);
  }

 private:
  /// Prepares an attacker. Its AKey 2 targets the victim, which grants nothing; AKey 3 targets the
  /// other attacker, which grants access.
  void prepare(Machine& attacker, Machine& other) {
    attacker.activate();
    for (ContextNumber i = 1; i < kContexts; ++i) attacker.start_context(i, 16);
    attacker.make_rkeys();
    const auto grant = attacker.rkey(0);
    grant.set(spec::rkey_ent::vl, 1);
    grant.set(spec::rkey_ent::req_sfunc, other.device->sfunc());
    for (const auto& [index, target] : {std::pair{2, &victim_}, {3, &other}}) {
      const auto entry = attacker.akey(attacker.context(1), static_cast<std::uint16_t>(index));
      entry.set(spec::akey_ent::vl, 1);
      entry.set(spec::akey_ent::tgt_sfunc, target->device->sfunc());
    }
  }

  /// Calls run() up to `turns` times. No run() may exceed its budget by more than one piece of
  /// work.
  static void work(Machine& m, unsigned turns) {
    const auto& options = m.device->options();
    const auto bytes = [&m] { return m.device->contexts().statistics().bytes; };
    for (unsigned i = 0; i < turns; ++i) {
      const auto before = bytes();
      const auto work = m.device->work_done();
      const bool more = [&] {
        const fuzz::Turn turn;
        return m.step_further();
      }();
      check(bytes() - before <= options.run_bytes + options.turn_bytes);
      fuzz::check_work(m.device->work_done() - work, pcie::Function::kRunWork);
      if (!more) return;
    }
  }

  /// A reset undoes everything done to a function.
  static void begin_anew(Machine& m) {
    m.device->reset();
    m.power_on();
    m.activate();
    for (ContextNumber i = 1; i < kContexts; ++i) {
      check(m.execute(m.start_context(i, 16), test::nop()).done);
    }
  }

  const Machine::Context& context(Script& input) {
    return attacker_->context(static_cast<ContextNumber>(input.byte() % kContexts));
  }

  void act(Script& input) {
    const auto head = input.byte();
    attacker_ = head / kActions % 2 == 0 ? &first_ : &second_;
    switch (static_cast<Action>(head % kActions)) {
      case Action::kRegister: {
        const auto which = input.byte() % kRegisters.size();
        attacker_->write(kRegisters[which], input.qword());
        break;
      }
      case Action::kAnyBarWrite:
        return bar_write(input);
      case Action::kDoorbell: {
        const auto number = static_cast<ContextNumber>(input.byte());
        if (number < 128) attacker_->doorbell(number, input.qword());
        break;
      }
      case Action::kPush: {
        const auto& c = context(input);
        test::Descriptor d{};
        const auto raw = input.take(d.size());
        std::memcpy(d.data(), raw.data(), raw.size());
        test::header(d).set(spec::dsc_header::vl, 1);
        push(c, d);
        break;
      }
      case Action::kGood:
        return good(input);
      case Action::kMemory: {
        const auto at = input.word() * 4;
        const auto bytes = input.take(1 + input.byte() % 64);
        std::memcpy(attacker_->host(Machine::kBase + at), bytes.data(), bytes.size());
        break;
      }
      case Action::kState: {
        const auto& c = context(input);
        attacker_->set_state(c, static_cast<spec::cxtv>(input.byte() & 0xf));
        break;
      }
      case Action::kAdmin:
        return admin(input);
      case Action::kRun:
        work(*attacker_, 1 + static_cast<unsigned>(input.byte() % 8));
        break;
      case Action::kTime:
        attacker_->advance(std::chrono::milliseconds(input.byte() * 10));
        break;
      case Action::kReset:
        attacker_->device->reset();
        attacker_->power_on();
        break;
    }
  }

  void bar_write(Script& input) {
    const auto offset = input.dword();
    const auto value = input.qword();
    const auto size = 1 + input.byte() % 8;
    const auto bytes = std::as_bytes(std::span(&value, 1)).first(size);
    attacker_->device->write_bar(offset & 1 ? 2 : 0, offset % (512 << 10), bytes);
    std::array<std::byte, 8> out;
    attacker_->device->read_bar(0, offset % (512 << 10), out);
  }

  /// Writes only into memory, wherever the rings now are.
  void push(const Machine::Context& c, const test::Descriptor& d) { attacker_->submit(c, d); }

  void good(Script& input) {
    const auto& c = context(input);
    const auto kind = input.byte();
    const auto from = Machine::kBase + input.word() * 8, to = Machine::kBase + input.word() * 8;
    const auto size = 1 + input.word();
    const auto key = static_cast<std::uint16_t>(kind / 8 % 4);
    switch (kind % 6) {
      case 0:
        return push(c, test::copy(from, to, size, 0, key));
      case 1:
        return push(c, test::copy(from, to, size << 8, key, 0));
      case 2:
        return push(c, test::interrupt(key));
      case 3:
        return push(
            c, test::atomic(static_cast<spec::atomic_subtype>(size % 16), from, 8, size, 0, to));
      case 4:
        return push(c, test::repeat_copy(from & ~0xfffull, to & ~0xfffull, 1, 1 + size % 32));
      default: {
        auto d = test::nop();
        test::footer(d).set(spec::dsc_footer::np, 0);
        spec::set_address(test::footer(d), spec::dsc_footer::csb_ptr, to & ~31ull);
        return push(c, d);
      }
    }
  }

  /// The remainder of `kind` by 6 is the operation. Further bits select variants, and the highest
  /// one targets the VF.
  void admin(Script& input) {
    const auto kind = input.byte();
    const auto first = static_cast<std::uint32_t>(input.byte());
    const auto last = static_cast<std::uint32_t>(input.byte());
    const auto value = input.byte();
    const auto variant = kind % 128 / 6;
    auto d = [&] {
      switch (kind % 128 % 6) {
        case 0: {
          const auto how = variant % 2 == 0 ? spec::admin_subtype::DSC_CXT_START_NM
                                            : spec::admin_subtype::DSC_CXT_START_RS;
          if (variant / 2 % 4 == 0) return test::start(first, last, std::nullopt, how);
          return test::start(first, last,
                             value == 0xff ? spec::kDoorbellFromWriteIndex : value << variant, how);
        }
        case 1:
          return test::stop(first, last, variant % 2 != 0);
        case 2:
          return test::sync(static_cast<spec::sync_filter>(variant % 8), first, last);
        case 3:
          return test::update_contexts(first, last, static_cast<spec::tgt_pcd>(variant % 8));
        case 4: {
          auto keys =
              test::admin_range<spec::dsc_akey_upd>(spec::admin_subtype::DSC_AKEY_UPD, first, last);
          test::edit<spec::dsc_akey_upd>(keys).set(spec::dsc_akey_upd::akey_end,
                                                   static_cast<std::uint32_t>(value));
          return keys;
        }
        default:
          return test::admin_interrupt(static_cast<std::uint16_t>(first));
      }
    }();
    // The field has the same place in all of them but DSC_ADM_INTR, which lacks it.
    test::edit<spec::dsc_cxt_stop>(d).set(spec::dsc_cxt_stop::vf, kind / 128);
    push(attacker_->context(0), d);
  }

  FunctionGroup group_;
  Machine first_;
  Machine second_;
  Machine victim_;
  Machine* attacker_ = &first_;  ///< performs the current action
  std::vector<std::byte> before_;
};

}  // namespace
}  // namespace softhca::sdxi

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  softhca::util::set_log_sink([](softhca::util::LogLevel, std::string_view) {});
  return softhca::fuzz::run_input([&] {
    softhca::sdxi::Attack attack;
    attack.run(softhca::fuzz::Script(data, size));
  });
}
