#include "connectx/qp/qp_transition.h"

#include <algorithm>
#include <cassert>
#include <iterator>

namespace softhca::connectx {

namespace {

using spec::connectx::ads;
using spec::connectx::qpc;
using OptionalBit = spec::connectx::qp_opt_param_bit;
using Attribute = spec::infiniband::QpAttribute;
using Opcode = spec::connectx::command_opcode;
using To = util::MutableView<qpc>;
using From = util::View<qpc>;

constexpr QpModify kCommands[] = {
    {.opcode = Opcode::RST2INIT_QP,
     .always = kPartQueues | part(OptionalBit::COUNTER_SET_ID),
     .wrong_state = "RST2INIT needs a QP in RST"},
    {.opcode = Opcode::INIT2INIT_QP,
     .optional = part(OptionalBit::COUNTER_SET_ID),
     .wrong_state = "INIT2INIT needs a QP in INIT"},
    // Every QP gets its MTU here. That of a datagram QP is the port's.
    {.opcode = Opcode::INIT2RTR_QP,
     .always = kPartMtu,
     .optional = part(OptionalBit::COUNTER_SET_ID),
     .wrong_state = "INIT2RTR needs a QP in INIT"},
    {.opcode = Opcode::RTR2RTS_QP,
     .optional = part(OptionalBit::COUNTER_SET_ID),
     .wrong_state = "RTR2RTS needs a QP in RTR"},
    {.opcode = Opcode::RTS2RTS_QP,
     .optional =
         part(OptionalBit::COUNTER_SET_ID) | part(OptionalBit::SRQN) | part(OptionalBit::CQN_RCV),
     .wrong_state = "RTS2RTS needs a QP in RTS"},
    {.opcode = Opcode::SQERR2RTS_QP, .wrong_state = "SQERR2RTS needs a QP in SQER"},
    {.opcode = Opcode::SQD_RTS_QP, .wrong_state = "SQD_RTS needs a QP in SQD"},
    // Only early mlx5 drivers send the next three.
    {.opcode = Opcode::RTS2SQD_QP, .wrong_state = "RTS2SQD needs a QP in RTS"},
    {.opcode = Opcode::SQD2RTS_QP, .wrong_state = "SQD2RTS needs a QP in SQD"},
    {.opcode = Opcode::SQD2SQD_QP,
     .optional = part(OptionalBit::COUNTER_SET_ID),
     .wrong_state = "SQD2SQD needs a QP in SQD whose send queue is drained"},
};

struct AttributeParts {
  Attribute attribute;
  QpParts parts;
};

/// The context fields of each InfiniBand attribute.
constexpr AttributeParts kAttributes[] = {
    {Attribute::kAccessFlags,
     part(OptionalBit::RRE) | part(OptionalBit::RWE) | part(OptionalBit::RAE)},
    {Attribute::kPkeyIndex, part(OptionalBit::PKEY_INDEX)},
    {Attribute::kPort, part(OptionalBit::PRI_PORT)},
    {Attribute::kQkey, part(OptionalBit::Q_KEY)},
    {Attribute::kAddressVector, part(OptionalBit::PRIMARY_ADDR_PATH)},
    {Attribute::kPathMtu, kPartMtu},
    {Attribute::kTimeout, part(OptionalBit::ACK_TIMEOUT)},
    {Attribute::kRetryCount, part(OptionalBit::RETRY_COUNT)},
    {Attribute::kRnrRetry, part(OptionalBit::RNR_RETRY)},
    {Attribute::kRqPsn, kPartReceivePsn},
    {Attribute::kMaxRdAtomic, part(OptionalBit::SRA_MAX)},
    {Attribute::kAlternatePath, part(OptionalBit::ALT_ADDR_PATH)},
    {Attribute::kMinRnrTimer, part(OptionalBit::RNR_TIMEOUT)},
    {Attribute::kSqPsn, kPartSendPsn},
    {Attribute::kMaxDestRdAtomic, part(OptionalBit::RRA_MAX)},
    {Attribute::kPathMigrationState, part(OptionalBit::PM_STATE)},
    {Attribute::kDestinationQpn, kPartRemoteQpn},
};

QpParts parts_of(rdma::QpAttributeSet attributes) {
  QpParts parts = 0;
  for (const auto& row : kAttributes) {
    if (attributes.has(row.attribute)) parts |= row.parts;
  }
  return parts;
}

template <class View, class Source, class... Fields>
void copy(View to, Source from, Fields... fields) {
  (to.set(fields, from.get(fields)), ...);
}

/// Copies fields in which zero means "keep the value".
template <class View, class Source, class... Fields>
void copy_unless_zero(View to, Source from, Fields... fields) {
  ((from.get(fields) != 0 ? to.set(fields, from.get(fields)) : void()), ...);
}

void take_queues(To to, From from) {
  copy(to, from, qpc::rlky, qpc::log_ack_req_freq);
  copy_unless_zero(to, from, qpc::pd, qpc::cqn_snd, qpc::cqn_rcv, qpc::dbr_addr, qpc::deth_sqpn);
}

/// Copies the path without the fields that have a bit of their own in opt_param_mask.
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
    {part(OptionalBit::PRIMARY_ADDR_PATH), take_primary_path},
    {kPartUdpSport,
     [](To to, From from) {
       copy(to.sub(qpc::primary_address_path), from.get(qpc::primary_address_path), ads::udp_sport);
     }},
    {part(OptionalBit::ALT_ADDR_PATH),
     [](To to, From from) {
       std::ranges::copy(from.get(qpc::secondary_address_path).bytes(),
                         to.sub(qpc::secondary_address_path).bytes().begin());
     }},
    {part(OptionalBit::RRE), [](To to, From from) { copy(to, from, qpc::rre); }},
    {part(OptionalBit::RWE), [](To to, From from) { copy(to, from, qpc::rwe); }},
    {part(OptionalBit::RAE), [](To to, From from) { copy(to, from, qpc::rae, qpc::atomic_mode); }},
    {part(OptionalBit::PKEY_INDEX),
     [](To to, From from) {
       copy(to.sub(qpc::primary_address_path), from.get(qpc::primary_address_path),
            ads::pkey_index);
     }},
    {part(OptionalBit::PRI_PORT),
     [](To to, From from) {
       copy_unless_zero(to.sub(qpc::primary_address_path), from.get(qpc::primary_address_path),
                        ads::vhca_port_num);
     }},
    {part(OptionalBit::ACK_TIMEOUT),
     [](To to, From from) {
       copy(to.sub(qpc::primary_address_path), from.get(qpc::primary_address_path),
            ads::ack_timeout);
     }},
    {part(OptionalBit::Q_KEY), [](To to, From from) { copy(to, from, qpc::q_key); }},
    {part(OptionalBit::RNR_TIMEOUT), [](To to, From from) { copy(to, from, qpc::min_rnr_nak); }},
    {part(OptionalBit::SRA_MAX), [](To to, From from) { copy(to, from, qpc::log_sra_max); }},
    {part(OptionalBit::RRA_MAX), [](To to, From from) { copy(to, from, qpc::log_rra_max); }},
    {part(OptionalBit::RETRY_COUNT), [](To to, From from) { copy(to, from, qpc::retry_count); }},
    {part(OptionalBit::RNR_RETRY), [](To to, From from) { copy(to, from, qpc::rnr_retry); }},
    {part(OptionalBit::PM_STATE), [](To to, From from) { copy(to, from, qpc::pm_state); }},
    {part(OptionalBit::COUNTER_SET_ID),
     [](To to, From from) { copy(to, from, qpc::counter_set_id); }},
    {part(OptionalBit::SRQN), [](To to, From from) { copy(to, from, qpc::srqn_rmpn_xrqn); }},
    {part(OptionalBit::CQN_RCV), [](To to, From from) { copy(to, from, qpc::cqn_rcv); }},
};

}  // namespace

const QpModify& find_qp_modify(Opcode opcode) {
  const auto* found =
      std::find_if(std::begin(kCommands), std::end(kCommands),
                   [&](const QpModify& command) { return command.opcode == opcode; });
  assert(found != std::end(kCommands));
  return *found;
}

QpParts parts_taken(const QpModify& command, rdma::QpType type, std::uint32_t mask) {
  auto always = command.always;
  auto optional = command.optional;
  const auto* transition = spec::infiniband::find_transition(type, command.from(), command.to());
  if (transition != nullptr) {
    always |= parts_of(transition->required);
    optional |= parts_of(transition->optional);
  }
  return always | (optional & mask);
}

void merge_qp_context(To to, From from, QpParts parts) {
  for (const auto& rule : kParts) {
    if ((parts & rule.part) != 0) rule.take(to, from);
  }
}

}  // namespace softhca::connectx
