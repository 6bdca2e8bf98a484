#include "connectx/qp/qp_transition.h"

#include <algorithm>
#include <cassert>
#include <iterator>

namespace softhca::connectx {

namespace {

using spec::connectx::ads;
using spec::connectx::qpc;
using Bit = spec::connectx::qp_opt_param_bit;
using Opcode = spec::connectx::command_opcode;
using State = rdma::QpState;
using To = util::MutableView<qpc>;
using From = util::View<qpc>;

constexpr QpParts kAccess = part(Bit::RRE) | part(Bit::RWE) | part(Bit::RAE);
constexpr QpParts kRunning = kAccess | part(Bit::RNR_TIMEOUT) | part(Bit::Q_KEY) |
                             part(Bit::PM_STATE) | part(Bit::ALT_ADDR_PATH);

constexpr QpTransition kTransitions[] = {
    {.opcode = Opcode::RST2INIT_QP,
     .from = State::kReset,
     .to = State::kInit,
     .always = kPartQueues | kAccess | part(Bit::PKEY_INDEX) | part(Bit::PRI_PORT) |
               part(Bit::Q_KEY) | part(Bit::COUNTER_SET_ID),
     .optional = 0,
     .wrong_state = "RST2INIT needs a QP in RST"},
    {.opcode = Opcode::INIT2INIT_QP,
     .from = State::kInit,
     .to = State::kInit,
     .always = 0,
     .optional = kAccess | part(Bit::PKEY_INDEX) | part(Bit::PRI_PORT) | part(Bit::Q_KEY) |
                 part(Bit::COUNTER_SET_ID),
     .wrong_state = "INIT2INIT needs a QP in INIT"},
    {.opcode = Opcode::INIT2RTR_QP,
     .from = State::kInit,
     .to = State::kRtr,
     .always = part(Bit::PRIMARY_ADDR_PATH) | kPartMtu | kPartRemoteQpn | kPartReceivePsn |
               part(Bit::RRA_MAX) | part(Bit::RNR_TIMEOUT),
     .optional = kAccess | part(Bit::PKEY_INDEX) | part(Bit::Q_KEY) | part(Bit::ALT_ADDR_PATH) |
                 part(Bit::COUNTER_SET_ID),
     .wrong_state = "INIT2RTR needs a QP in INIT"},
    {.opcode = Opcode::RTR2RTS_QP,
     .from = State::kRtr,
     .to = State::kRts,
     .always = kPartSendPsn | part(Bit::RETRY_COUNT) | part(Bit::RNR_RETRY) |
               part(Bit::ACK_TIMEOUT) | part(Bit::SRA_MAX),
     .optional = kRunning | part(Bit::COUNTER_SET_ID),
     .wrong_state = "RTR2RTS needs a QP in RTR"},
    {.opcode = Opcode::RTS2RTS_QP,
     .from = State::kRts,
     .to = State::kRts,
     .always = 0,
     .optional = kRunning | part(Bit::COUNTER_SET_ID) | part(Bit::SRQN) | part(Bit::CQN_RCV),
     .wrong_state = "RTS2RTS needs a QP in RTS"},
    {.opcode = Opcode::SQERR2RTS_QP,
     .from = State::kSqError,
     .to = State::kRts,
     .always = 0,
     .optional = kRunning,
     .wrong_state = "SQERR2RTS needs a QP in SQER"},
    {.opcode = Opcode::SQD_RTS_QP,
     .from = State::kSqDrain,
     .to = State::kRts,
     .always = 0,
     .optional = kRunning,
     .wrong_state = "SQD_RTS needs a QP in SQD"},
};

template <class View, class Source, class... Fields>
void copy(View to, Source from, Fields... fields) {
  (to.set(fields, from.get(fields)), ...);
}

/// Zero in the command does not mean "none" for these.
template <class View, class Source, class... Fields>
void copy_unless_zero(View to, Source from, Fields... fields) {
  ((from.get(fields) != 0 ? to.set(fields, from.get(fields)) : void()), ...);
}

void take_queues(To to, From from) {
  copy(to, from, qpc::pd, qpc::rlky, qpc::log_ack_req_freq);
  copy_unless_zero(to, from, qpc::cqn_snd, qpc::cqn_rcv, qpc::dbr_addr, qpc::deth_sqpn);
}

/// All of the path but what has a bit of its own.
void take_primary_path(To to, From from) {
  const auto path = to.sub(qpc::primary_address_path);
  const auto source = from.get(qpc::primary_address_path);
  const auto pkey_index = path.get(ads::pkey_index);
  const auto port = path.get(ads::vhca_port_num);
  const auto timeout = path.get(ads::ack_timeout);
  std::ranges::copy(source.bytes(), path.bytes().begin());
  path.set(ads::pkey_index, pkey_index);
  path.set(ads::vhca_port_num, port);
  path.set(ads::ack_timeout, timeout);
}

struct PartRule {
  QpParts part;
  void (*take)(To to, From from);
};

constexpr PartRule kParts[] = {
    {kPartQueues, take_queues},
    {kPartMtu, [](To to, From from) { copy(to, from, qpc::mtu, qpc::log_msg_max); }},
    {kPartRemoteQpn, [](To to, From from) { copy(to, from, qpc::remote_qpn); }},
    {kPartReceivePsn, [](To to, From from) { copy(to, from, qpc::next_rcv_psn); }},
    {kPartSendPsn, [](To to, From from) { copy(to, from, qpc::next_send_psn); }},
    {part(Bit::PRIMARY_ADDR_PATH), take_primary_path},
    {part(Bit::ALT_ADDR_PATH),
     [](To to, From from) {
       std::ranges::copy(from.get(qpc::secondary_address_path).bytes(),
                         to.sub(qpc::secondary_address_path).bytes().begin());
     }},
    {part(Bit::RRE), [](To to, From from) { copy(to, from, qpc::rre); }},
    {part(Bit::RWE), [](To to, From from) { copy(to, from, qpc::rwe); }},
    {part(Bit::RAE), [](To to, From from) { copy(to, from, qpc::rae, qpc::atomic_mode); }},
    {part(Bit::PKEY_INDEX),
     [](To to, From from) {
       copy(to.sub(qpc::primary_address_path), from.get(qpc::primary_address_path),
            ads::pkey_index);
     }},
    {part(Bit::PRI_PORT),
     [](To to, From from) {
       copy_unless_zero(to.sub(qpc::primary_address_path), from.get(qpc::primary_address_path),
                        ads::vhca_port_num);
     }},
    {part(Bit::ACK_TIMEOUT),
     [](To to, From from) {
       copy(to.sub(qpc::primary_address_path), from.get(qpc::primary_address_path),
            ads::ack_timeout);
     }},
    {part(Bit::Q_KEY), [](To to, From from) { copy(to, from, qpc::q_key); }},
    {part(Bit::RNR_TIMEOUT), [](To to, From from) { copy(to, from, qpc::min_rnr_nak); }},
    {part(Bit::SRA_MAX), [](To to, From from) { copy(to, from, qpc::log_sra_max); }},
    {part(Bit::RRA_MAX), [](To to, From from) { copy(to, from, qpc::log_rra_max); }},
    {part(Bit::RETRY_COUNT), [](To to, From from) { copy(to, from, qpc::retry_count); }},
    {part(Bit::RNR_RETRY), [](To to, From from) { copy(to, from, qpc::rnr_retry); }},
    {part(Bit::PM_STATE), [](To to, From from) { copy(to, from, qpc::pm_state); }},
    {part(Bit::COUNTER_SET_ID), [](To to, From from) { copy(to, from, qpc::counter_set_id); }},
    {part(Bit::SRQN), [](To to, From from) { copy(to, from, qpc::srqn_rmpn_xrqn); }},
    {part(Bit::CQN_RCV), [](To to, From from) { copy(to, from, qpc::cqn_rcv); }},
};

}  // namespace

std::span<const QpTransition> qp_transitions() { return kTransitions; }

const QpTransition& find_transition(Opcode opcode) {
  const auto* found =
      std::find_if(std::begin(kTransitions), std::end(kTransitions),
                   [&](const QpTransition& transition) { return transition.opcode == opcode; });
  assert(found != std::end(kTransitions));
  return *found;
}

void merge_qp_context(To to, From from, QpParts parts) {
  for (const auto& rule : kParts) {
    if ((parts & rule.part) != 0) rule.take(to, from);
  }
}

}  // namespace softhca::connectx
