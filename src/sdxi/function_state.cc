#include "sdxi/function_state.h"

namespace softhca::sdxi {
namespace {

using spec::err_class;
using spec::err_step;
using spec::fn_gsr;
using spec::fn_gsv;

/// The effect of writing fn_gsr in a state (SDXI 4.1.1 to 4.1.6).
enum class Reaction : std::uint8_t { kIgnore, kActivate, kStopSoft, kStopHard, kReset, kHalt };

using enum Reaction;

/// By fn_gsv, then by fn_gsr: RESET, STOP_SF, STOP_HD, ACTIVE.
constexpr Reaction kReactions[6][4] = {
    /* GSV_STOP     */ {kIgnore, kIgnore, kIgnore, kActivate},
    /* GSV_INIT     */ {kHalt, kHalt, kHalt, kIgnore},
    /* GSV_ACTIVE   */ {kHalt, kStopSoft, kStopHard, kIgnore},
    /* GSV_STOPG_SF */ {kIgnore, kIgnore, kStopHard, kIgnore},
    /* GSV_STOPG_HD */ {kIgnore, kIgnore, kIgnore, kIgnore},
    /* GSV_ERROR    */ {kReset, kIgnore, kIgnore, kIgnore},
};

}  // namespace

void FunctionState::enter(fn_gsv state) {
  const pcie::Paused paused(&gate_);  // workers read the state of functions that RKeys target
  registers_.sts0.set(spec::mmio_sts0::fn_gsv, static_cast<std::uint32_t>(state));
}

void FunctionState::request(fn_gsr value) {
  const auto state = registers_.gsv();
  switch (kReactions[static_cast<unsigned>(state)][static_cast<unsigned>(value)]) {
    case kIgnore:
      return;
    case kActivate:
      return enter(fn_gsv::GSV_INIT);
    case kStopSoft:
      enter(fn_gsv::GSV_STOPG_SF);
      return contexts_.begin_function_stop(false);
    case kStopHard:
      enter(fn_gsv::GSV_STOPG_HD);
      return contexts_.begin_function_stop(true);
    case kReset:
      contexts_.drop_all();
      return enter(fn_gsv::GSV_STOP);
    case kHalt:
      return halt(invalid(err_step::ERRV_INT, err_class::UNSUPPORTED_ENCODING,
                          "fn_gsr was written with a value that this state does not allow",
                          state == fn_gsv::GSV_INIT ? "SDXI 4.1.2" : "SDXI 4.1.3",
                          static_cast<std::uint64_t>(value)),
                  std::nullopt);
  }
}

void FunctionState::initialize() {
  // SDXI 4.1.2: the function may validate MMIO_CTL0 and MMIO_CTL2. No limit may exceed its
  // capability.
  using ctl2 = spec::mmio_ctl2;
  using cap1 = spec::mmio_cap1;
  const bool legal =
      registers_.max_cxt_is_legal() &&
      registers_.ctl2.get(ctl2::max_buffer) <= registers_.cap1.get(cap1::max_buffer) &&
      registers_.ctl2.get(ctl2::max_akey_sz) <= registers_.cap1.get(cap1::max_akey_sz);
  if (legal) return enter(fn_gsv::GSV_ACTIVE);
  halt(invalid(err_step::ERRV_INT, err_class::LIMIT_EXCEEDED,
               "a limit of MMIO_CTL2 is above the capability", "SDXI 4.1.2",
               util::load_le64(registers_.ctl2.bytes().data())),
       std::nullopt);
}

void FunctionState::halt(const Refusal& refusal, std::optional<ContextNumber> context) {
  if (registers_.gsv() == fn_gsv::GSV_ERROR) return;
  const pcie::Paused paused(&gate_);
  // SDXI 3.4: the function halts, writes its record if it can, and then changes fn_gsv.
  contexts_.drop_all();
  auto reported = refusal;
  reported.step = err_step::ERRV_INT;
  log_.record({.refusal = reported,
               .reaction = spec::err_reaction::RE_FUNCTION_STOPPED,
               .context = context});
  enter(fn_gsv::GSV_ERROR);
  if (registers_.ctl0.get(spec::mmio_ctl0::fn_err_intr_en) != 0) own_interrupt_.raise();
}

util::Time FunctionState::run(util::Time now, util::WorkBudget& work) {
  switch (registers_.gsv()) {
    case fn_gsv::GSV_STOP:
    case fn_gsv::GSV_ERROR:
      return util::kNever;
    case fn_gsv::GSV_INIT:
      initialize();
      return now;
    case fn_gsv::GSV_ACTIVE:
      return contexts_.run(now, work);
    case fn_gsv::GSV_STOPG_SF:
    case fn_gsv::GSV_STOPG_HD:
      break;
  }
  const auto next = contexts_.run(now, work);
  if (registers_.gsv() == fn_gsv::GSV_ERROR || !contexts_.function_has_stopped()) return next;
  contexts_.drop_all();
  enter(fn_gsv::GSV_STOP);
  return util::kNever;
}

}  // namespace softhca::sdxi
