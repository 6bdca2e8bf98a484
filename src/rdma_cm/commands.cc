#include "rdma_cm/commands.h"

#include <rdma/ib_user_verbs.h>

#include <array>
#include <cstddef>
#include <iterator>
#include <system_error>

#include "rdma_cm/written_event.h"
#include "util/log.h"

namespace softhca::rdma_cm {
namespace {

constexpr std::size_t kCommandMax = sizeof(rdma_ucm_accept);

// Sizes of the answers to Linux's oldest librdmacm, which are shorter than today's.
constexpr std::uint16_t kId = sizeof(rdma_ucm_create_id_resp);
constexpr std::uint16_t kCount = sizeof(rdma_ucm_destroy_id_resp);
constexpr std::uint16_t kEvent = sizeof(rdma_ucm_event_resp) -
                                 sizeof(rdma_ucm_event_resp::reserved) -
                                 sizeof(rdma_ucm_event_resp::ece);

template <auto object, auto function>
Errno run(Commands& commands, const Call& call) {
  return ((commands.*object).*function)(call);
}

}  // namespace

struct Commands::Command {
  std::uint32_t number;
  std::uint16_t size;  ///< of its structure
  std::uint16_t out;   ///< minimum size of the answer; 0: none, or checked later
  Errno (*serve)(Commands&, const Call&);
  std::uint16_t size_min = 0;  ///< of the structure in the header; 0: the header is not asked
};

/// Null: there is no such command.
const Commands::Command* Commands::find(std::uint32_t number) {
  static constexpr Command kCommands[] = {
      {RDMA_USER_CM_CMD_CREATE_ID, sizeof(rdma_ucm_create_id), kId,
       run<&Commands::of_identifiers_, &IdentifierCommands::create_id>},
      {RDMA_USER_CM_CMD_DESTROY_ID, sizeof(rdma_ucm_destroy_id), kCount,
       run<&Commands::of_identifiers_, &IdentifierCommands::destroy_id>},
      {RDMA_USER_CM_CMD_BIND, sizeof(rdma_ucm_bind), 0,
       run<&Commands::of_addresses_, &AddressCommands::bind>},
      {RDMA_USER_CM_CMD_RESOLVE_ADDR, sizeof(rdma_ucm_resolve_addr), 0,
       run<&Commands::of_addresses_, &AddressCommands::resolve_addr>},
      {RDMA_USER_CM_CMD_RESOLVE_ROUTE, sizeof(rdma_ucm_resolve_route), 0,
       run<&Commands::of_addresses_, &AddressCommands::resolve_route>},
      {RDMA_USER_CM_CMD_QUERY, sizeof(rdma_ucm_query), 0,
       run<&Commands::of_identifiers_, &IdentifierCommands::query>},
      {RDMA_USER_CM_CMD_CONNECT, sizeof(rdma_ucm_connect), 0,
       run<&Commands::of_connections_, &ConnectionCommands::connect>,
       offsetof(rdma_ucm_connect, ece)},
      {RDMA_USER_CM_CMD_LISTEN, sizeof(rdma_ucm_listen), 0,
       run<&Commands::of_connections_, &ConnectionCommands::listen>},
      {RDMA_USER_CM_CMD_ACCEPT, sizeof(rdma_ucm_accept), 0,
       run<&Commands::of_connections_, &ConnectionCommands::accept>,
       offsetof(rdma_ucm_accept, ece)},
      {RDMA_USER_CM_CMD_REJECT, sizeof(rdma_ucm_reject), 0,
       run<&Commands::of_connections_, &ConnectionCommands::reject>},
      {RDMA_USER_CM_CMD_DISCONNECT, sizeof(rdma_ucm_disconnect), 0,
       run<&Commands::of_connections_, &ConnectionCommands::disconnect>},
      {RDMA_USER_CM_CMD_INIT_QP_ATTR, sizeof(rdma_ucm_init_qp_attr), sizeof(ib_uverbs_qp_attr),
       run<&Commands::of_connections_, &ConnectionCommands::init_qp_attr>},
      {RDMA_USER_CM_CMD_GET_EVENT, sizeof(rdma_ucm_get_event), kEvent,
       run<&Commands::of_identifiers_, &IdentifierCommands::get_event>},
      {RDMA_USER_CM_CMD_SET_OPTION, sizeof(rdma_ucm_set_option), 0,
       run<&Commands::of_options_, &OptionCommands::set_option>},
      {RDMA_USER_CM_CMD_NOTIFY, sizeof(rdma_ucm_notify), 0,
       run<&Commands::of_connections_, &ConnectionCommands::notify>},
      {RDMA_USER_CM_CMD_MIGRATE_ID, sizeof(rdma_ucm_migrate_id), 0,
       run<&Commands::of_identifiers_, &IdentifierCommands::migrate_id>},
      {RDMA_USER_CM_CMD_JOIN_IP_MCAST, sizeof(rdma_ucm_join_ip_mcast), 0,
       run<&Commands::of_groups_, &MulticastCommands::join_ip_multicast>},
      {RDMA_USER_CM_CMD_JOIN_MCAST, sizeof(rdma_ucm_join_mcast), 0,
       run<&Commands::of_groups_, &MulticastCommands::join_multicast>},
      {RDMA_USER_CM_CMD_LEAVE_MCAST, sizeof(rdma_ucm_destroy_id), kCount,
       run<&Commands::of_groups_, &MulticastCommands::leave_multicast>},
      {kWriteEvent, sizeof(WrittenEvent), 0,
       run<&Commands::of_identifiers_, &IdentifierCommands::write_event>},
  };
  const auto* const command = std::ranges::find(kCommands, number, &Command::number);
  return command == std::end(kCommands) ? nullptr : command;
}

/// The checks of ucma_write() and of its commands, in their order. Linux reads a structure that is
/// longer than the call from the memory behind it; here the missing bytes are 0.
Errno Commands::serve(Call call, std::uint64_t address, std::size_t size) {
  rdma_ucm_cmd_hdr header{};
  if (size < sizeof header) return EINVAL;
  if (!call.memory.read(address, std::as_writable_bytes(std::span(&header, 1)))) return EFAULT;
  const auto* const command = find(header.cmd);
  if (command == nullptr && header.cmd > RDMA_USER_CM_CMD_JOIN_MCAST) return EINVAL;
  if (header.in > size - sizeof header) return EINVAL;
  if (command == nullptr) return ENOSYS;
  if (header.out < command->out) return ENOSPC;
  if (header.in < command->size_min) return EINVAL;
  std::array<std::byte, kCommandMax> bytes{};
  const auto given = command->size_min == 0 ? size - sizeof header : header.in;
  const auto in = std::span(bytes).first(std::min<std::size_t>(command->size, given));
  if (!call.memory.read(address + sizeof header, in)) return EFAULT;
  call.in = in;
  call.room = header.out;
  const auto wrong = command->serve(*this, call);
  if (wrong != 0 && wrong != EAGAIN) {
    util::log(util::LogLevel::kDebug, "rdma_cm: command {}: {}", header.cmd,
              std::generic_category().message(wrong));
  }
  return wrong;
}

}  // namespace softhca::rdma_cm
