// Chapter states: the legal transitions, and the attributes that each of them requires and accepts.
#include "world.h"

namespace oracle {
namespace {

struct Step {
  ibv_qp_state from, to;
};

constexpr Step kSteps[] = {
    {IBV_QPS_RESET, IBV_QPS_RESET}, {IBV_QPS_RESET, IBV_QPS_INIT}, {IBV_QPS_RESET, IBV_QPS_ERR},
    {IBV_QPS_INIT, IBV_QPS_RESET},  {IBV_QPS_INIT, IBV_QPS_INIT},  {IBV_QPS_INIT, IBV_QPS_RTR},
    {IBV_QPS_INIT, IBV_QPS_ERR},    {IBV_QPS_RTR, IBV_QPS_RTS},    {IBV_QPS_RTR, IBV_QPS_ERR},
    {IBV_QPS_RTS, IBV_QPS_RTS},     {IBV_QPS_RTS, IBV_QPS_SQD},    {IBV_QPS_RTS, IBV_QPS_ERR},
    {IBV_QPS_SQD, IBV_QPS_SQD},     {IBV_QPS_SQD, IBV_QPS_RTS},    {IBV_QPS_ERR, IBV_QPS_RESET},
    {IBV_QPS_ERR, IBV_QPS_ERR}};

constexpr const char* kBits[] = {
    "STATE",    "CUR_STATE",     "EN_SQD_ASYNC", "ACCESS_FLAGS", "PKEY_INDEX", "PORT",   "QKEY",
    "AV",       "PATH_MTU",      "TIMEOUT",      "RETRY_CNT",    "RNR_RETRY",  "RQ_PSN", "MAX_RD",
    "ALT_PATH", "MIN_RNR_TIMER", "SQ_PSN",       "MAX_DEST_RD",  "PATH_MIG",   "CAP",    "DEST_QPN",
    "bit21",    "bit22",         "bit23",        "bit24",        "RATE_LIMIT", "bit26",  "bit31"};

/// A QP that is moved back into a state before each trial.
class Subject {
 public:
  Subject(World& world, Kind kind) : world_(world), kind_(kind) {}

  ibv_qp* in(ibv_qp_state state) {
    if (qp_ != nullptr && qp_->state == state) return qp_;
    if (qp_ != nullptr && kind_ == Kind::kDct) {
      ibv_destroy_qp(qp_);
      qp_ = nullptr;
    }
    if (qp_ == nullptr) qp_ = create(world_, kind_);
    need(qp_ != nullptr, "QP");
    if (qp_->state != IBV_QPS_RESET) {
      auto reset = attributes(world_, qp_, IBV_QPS_RESET);
      ibv_modify_qp(qp_, &reset, IBV_QP_STATE);
    }
    errno = bring(world_, qp_, kind_, state);
    return errno == 0 ? qp_ : nullptr;
  }

 private:
  World& world_;
  Kind kind_;
  ibv_qp* qp_ = nullptr;
};

std::string step_name(ibv_qp_state from, ibv_qp_state to) {
  return text("%s>%s", state_name(from), state_name(to));
}

/// Prints the outcome, and the state that libibverbs then reports for the QP.
void try_step(const World& world, ibv_qp* qp, ibv_qp_state to, int mask, const std::string& name) {
  auto all = attributes(world, qp, to);
  errno = 0;
  const int returned = ibv_modify_qp(qp, &all, mask);
  line(name, outcome(returned, returned == 0 ? 0 : errno) + ", " + state_name(qp->state));
}

void masks(Kind kind) {
  World world;
  Subject subject(world, kind);
  for (const auto [from, to] : kSteps) {
    const auto name = step_name(from, to);
    if (subject.in(from) == nullptr) {
      line(name, "not from here: " + error_name(errno));
      continue;
    }
    for (unsigned bit = 0; bit != std::size(kBits); ++bit) {
      auto* const qp = subject.in(from);
      need(qp != nullptr, "QP once more");
      const auto mask = static_cast<unsigned>(required(kind, from, to));
      const unsigned changed = 1u << (bit == 27 ? 31 : bit);
      const char sign = (mask & changed) != 0 ? '-' : '+';
      try_step(world, qp, to, static_cast<int>(mask ^ changed), name + " " + sign + kBits[bit]);
    }
  }
}

void pairs(Kind kind) {
  World world;
  Subject subject(world, kind);
  for (int from = IBV_QPS_RESET; from <= IBV_QPS_ERR; ++from) {
    for (int to = IBV_QPS_RESET; to <= IBV_QPS_ERR + 1; ++to) {
      if (from == IBV_QPS_SQE) continue;
      const auto start = static_cast<ibv_qp_state>(from), end = static_cast<ibv_qp_state>(to);
      auto* const qp = subject.in(start);
      if (qp == nullptr)
        line(step_name(start, end), "not from here: " + error_name(errno));
      else
        try_step(world, qp, end, required(kind, start, end), step_name(start, end));
    }
  }
}

/// Each value of CUR_STATE with a transition from the QP's state.
void current(Kind kind) {
  World world;
  Subject subject(world, kind);
  for (const auto from : {IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD}) {
    for (int claimed = IBV_QPS_RESET; claimed <= IBV_QPS_ERR + 1; ++claimed) {
      auto* const qp = subject.in(from);
      const auto name =
          text("%s, claimed %s", state_name(from), state_name(static_cast<ibv_qp_state>(claimed)));
      if (qp == nullptr) {
        line(name, "not from here: " + error_name(errno));
        continue;
      }
      auto all = attributes(world, qp, IBV_QPS_RTS);
      all.cur_qp_state = static_cast<ibv_qp_state>(claimed);
      did(name, [&] {
        return ibv_modify_qp(qp, &all, required(kind, from, IBV_QPS_RTS) | IBV_QP_CUR_STATE);
      });
    }
  }
}

}  // namespace

ORACLE_CASE(states, masks_rc) { masks(Kind::kRc); }
ORACLE_CASE(states, masks_uc) { masks(Kind::kUc); }
ORACLE_CASE(states, masks_ud) { masks(Kind::kUd); }
ORACLE_CASE(states, masks_xrc_send) { masks(Kind::kXrcSend); }
ORACLE_CASE(states, masks_xrc_recv) { masks(Kind::kXrcReceive); }
ORACLE_CASE(states, masks_raw) { masks(Kind::kRaw); }
ORACLE_CASE(states, masks_dci) { masks(Kind::kDci); }
ORACLE_CASE(states, masks_dct) { masks(Kind::kDct); }
ORACLE_CASE(states, pairs_rc) { pairs(Kind::kRc); }
ORACLE_CASE(states, pairs_uc) { pairs(Kind::kUc); }
ORACLE_CASE(states, pairs_ud) { pairs(Kind::kUd); }
ORACLE_CASE(states, pairs_xrc_send) { pairs(Kind::kXrcSend); }
ORACLE_CASE(states, pairs_xrc_recv) { pairs(Kind::kXrcReceive); }
ORACLE_CASE(states, pairs_raw) { pairs(Kind::kRaw); }
ORACLE_CASE(states, pairs_dci) { pairs(Kind::kDci); }
ORACLE_CASE(states, pairs_dct) { pairs(Kind::kDct); }
ORACLE_CASE(states, current_rc) { current(Kind::kRc); }
ORACLE_CASE(states, current_ud) { current(Kind::kUd); }
ORACLE_CASE(states, current_xrc_send) { current(Kind::kXrcSend); }

}  // namespace oracle
