#include <netinet/in.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_cm.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <span>

#include "cm/message.h"
#include "rdma_cm/commands.h"
#include "spec/infiniband/mad.h"

namespace softhca::rdma_cm {
namespace {

/// Linux's KMALLOC_MAX_SIZE with pages of 4 KiB.
constexpr std::uint32_t kValueMax = 4u << 20;
/// Paths beyond this number are ignored.
constexpr std::size_t kPathsMax = 8;

/// Whether QPs of the type have a Local ACK Timeout (rdma_set_ack_timeout of Linux).
bool waits_for_acknowledgments(std::uint8_t type) {
  return type == IB_UVERBS_QPT_RC || type == IB_UVERBS_QPT_XRC_INI;
}

Errno set_id_option(Identifier& id, std::uint32_t name, std::span<const std::byte> value) {
  const auto set = [&](auto& to, bool allowed) -> Errno {
    using Value = std::remove_reference_t<decltype(to)>;
    if (value.size() != sizeof(Value)) return EINVAL;
    if (!allowed) return EINVAL;
    std::memcpy(&to, value.data(), sizeof to);
    return 0;
  };
  std::uint8_t byte = 0;
  int number = 0;
  Errno wrong = ENOSYS;
  const bool is_bound = id.state != State::kIdle || id.has_source();
  switch (name) {
    case RDMA_OPTION_ID_TOS:
      wrong = set(byte, true);
      if (wrong == 0) id.route.wanted_tos = byte;
      return wrong;
    case RDMA_OPTION_ID_REUSEADDR:
      wrong = set(number, true);
      if (wrong != 0) return wrong;
      if (is_bound && (number == 0 || id.state == State::kListening)) return EINVAL;
      id.binding.reuses_port = number != 0;
      return 0;
    case RDMA_OPTION_ID_AFONLY:
      wrong = set(number, id.state == State::kIdle);
      if (wrong != 0) return wrong;
      id.binding.one_family = number != 0;
      id.binding.chose_family = true;
      return 0;
    case RDMA_OPTION_ID_ACK_TIMEOUT:
      wrong = set(byte, waits_for_acknowledgments(id.connection.qp_type));
      if (wrong == 0) id.route.wanted_ack_timeout = byte;
      return wrong;
    default:
      return ENOSYS;
  }
}

using PathRecord = spec::path_record;

/// Takes the attributes of packets from the record.
void describe_path(util::View<PathRecord> record, Identifier& id) {
  constexpr std::uint32_t kMtuMax = 15, kAckTimeoutMax = 31;
  const auto lifetime = std::min(record.get(PathRecord::life), kAckTimeoutMax);
  id.connection.path = {
      .mtu = static_cast<std::uint8_t>(std::min(record.get(PathRecord::mtu), kMtuMax)),
      .traffic_class = static_cast<std::uint8_t>(record.get(PathRecord::tclass)),
      .flow_label = record.get(PathRecord::flow_label),
      .ack_timeout = static_cast<std::uint8_t>(std::min(lifetime + 1, kAckTimeoutMax))};
  id.connection.exchange.response_timeout =
      cm::timeout_of(cm::kResponseTimeout) + 2 * cm::timeout_of(lifetime);
}

}  // namespace

Errno OptionCommands::set_option(const Call& call) {
  const auto command = take<rdma_ucm_set_option>(call.in);
  if (command.optlen > kValueMax) return EINVAL;
  Identifier* id = nullptr;
  if (const auto wrong = identifiers_.find(call.channel, command.id, id); wrong != 0) return wrong;
  std::array<std::byte, kPathsMax * sizeof(ib_path_rec_data)> bytes{};
  const auto value = std::span(bytes).first(std::min<std::size_t>(command.optlen, bytes.size()));
  if (!value.empty() && !call.memory.read(command.optval, value)) return EFAULT;
  if (command.level == RDMA_OPTION_ID) {
    return set_id_option(*id, command.optname, value);
  }
  if (command.level != RDMA_OPTION_IB || command.optname != RDMA_OPTION_IB_PATH) return ENOSYS;
  return command.optlen % sizeof(ib_path_rec_data) != 0 ? EINVAL : set_path(*id, value);
}

/// Accepts a path that the program has resolved itself (rdma_set_ib_path). The addresses stay those
/// of the identifier.
Errno OptionCommands::set_path(Identifier& id, std::span<const std::byte> value) {
  constexpr std::uint32_t kWanted = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL;
  bool found = false;
  for (; !value.empty(); value = value.subspan(sizeof(ib_path_rec_data))) {
    std::uint32_t flags;
    std::memcpy(&flags, value.data(), sizeof flags);
    found = flags == kWanted;
    if (found) break;
  }
  if (!found || id.state != State::kResolved) return EINVAL;
  resolver_.resolve_route(id);
  const auto record = value.subspan(offsetof(ib_path_rec_data, path_rec));
  describe_path(util::View<PathRecord>(record.first<PathRecord::kSize>()), id);
  return 0;
}

}  // namespace softhca::rdma_cm
