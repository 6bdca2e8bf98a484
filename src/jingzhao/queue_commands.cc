// Commands of event queues, completion queues and queue pairs (JingZhao 3.2.4 to 3.2.6).
#include <array>

#include "jingzhao/device.h"
#include "spec/jingzhao/qp_commands.h"

namespace softhca::jingzhao {

using rdma::QpState;
using spec::jingzhao::cq_context;
using spec::jingzhao::eq_context;
using spec::jingzhao::map_eq_modifier;
using spec::jingzhao::qp_context;
using spec::jingzhao::resize_cq_in;

namespace {

/// in_modifier of MAP_EQ, converted to the byte order of mailboxes.
struct MapEq {
  explicit MapEq(std::uint32_t modifier) { util::store_be32(bytes.data(), modifier); }
  util::View<map_eq_modifier> view() const { return util::View<map_eq_modifier>(bytes); }
  std::array<std::byte, map_eq_modifier::kSize> bytes;
};

/// The QPN in in_modifier. In RTS2SQD, bit 31 requests a drain event, as in the Arbel interface;
/// the device always sends that event.
Qpn qpn_of(const Command& command) {
  constexpr std::uint32_t kTell = 1u << 31;
  const bool may_tell = command.op == Opcode::RTS2SQD_QPEE;
  return Qpn(may_tell ? command.in_modifier & ~kTell : command.in_modifier);
}

Cqn cqn_of(Device& device, const Command& command) {
  return device.objects().numbering.cqn(command.in_modifier);
}

}  // namespace

CommandResult map_eq(Device& device, const Command& command) {
  const MapEq modifier(command.in_modifier);
  return device.objects().event_queues->map(Eqn(modifier.view().get(map_eq_modifier::eqn)),
                                            modifier.view().get(map_eq_modifier::unmap) != 0,
                                            command.in_param);
}

CommandResult sw2hw_eq(Device& device, const Command& command) {
  return device.objects().event_queues->install(Eqn(command.in_modifier),
                                                command.input<eq_context>());
}

CommandResult hw2sw_eq(Device& device, const Command& command) {
  return device.objects().event_queues->remove(Eqn(command.in_modifier));
}

CommandResult sw2hw_cq(Device& device, const Command& command) {
  // The mailbox holds only the document's part of the context.
  util::Struct<cq_context> context;
  std::ranges::copy(command.in, context.bytes().begin());
  return device.objects().completion_queues->install(cqn_of(device, command), context);
}

CommandResult hw2sw_cq(Device& device, const Command& command) {
  const auto cqn = cqn_of(device, command);
  auto done = device.objects().completion_queues->remove(cqn);
  if (done) device.objects().queue_pairs->lose_cq(cqn);
  return done;
}

CommandResult resize_cq(Device& device, const Command& command) {
  const auto in = command.input<resize_cq_in>();
  return device.objects().completion_queues->resize(cqn_of(device, command),
                                                    in.get(resize_cq_in::logsize),
                                                    rdma::MKey(in.get(resize_cq_in::lkey)));
}

CommandResult modify_qp(Device& device, const Command& command) {
  auto& queue_pairs = *device.objects().queue_pairs;
  const auto qpn = qpn_of(command);
  if (command.op == Opcode::ERR2RST_QPEE) {
    // The mailbox is optional. The author's driver passes one that is all zero, and RST is 0.
    if (!command.in.empty() && command.input<qp_context>().get(qp_context::state) != 0) {
      return refuse(Status::BAD_PARAM, "3.2.6.1", "the state of flags is not that of the opcode");
    }
    return queue_pairs.to_reset(qpn);
  }
  if (command.op == Opcode::TO_ERR_QPEE) {
    return queue_pairs.to_error(qpn, command.input<qp_context>());
  }
  const auto& asked = qp_command(spec::jingzhao::kQpCommands, command.op);
  return queue_pairs.modify(qpn, asked.from, asked.to, command.input<qp_context>());
}

CommandResult query_qp(Device& device, const Command& command) {
  return device.objects().queue_pairs->query(Qpn(command.in_modifier),
                                             command.output<qp_context>());
}

/// The document lists the command without a layout (docs/jingzhao.md, gap 7).
CommandResult conf_special_qp(Device& device, const Command& command) {
  constexpr std::uint8_t kGsi = 1;
  auto& queue_pairs = *device.objects().queue_pairs;
  const Qpn qpn(command.in_modifier);
  if (qpn.value() >= queue_pairs.end()) {
    return refuse(Status::BAD_PARAM, "3.2.6.3", "the number is beyond the QPC table");
  }
  if (command.op_modifier == kGsi) queue_pairs.set_gsi(qpn);
  return {};
}

}  // namespace softhca::jingzhao
