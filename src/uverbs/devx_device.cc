// DevX commands about the device itself (kernel interface 4.13).
#include <rdma/mlx5_user_ioctl_cmds.h>

#include <cerrno>
#include <vector>

#include "uverbs/abi.h"
#include "uverbs/command_status.h"
#include "uverbs/context.h"

namespace softhca::uverbs {

Errno Context::find_uid(std::span<const std::byte> command, std::uint16_t& uid) {
  uid = user_.uid();
  if (uid != 0) return 0;
  if (!is_for_everybody(command)) return EINVAL;
  uid = device_.everybodys_user_context();
  return uid == 0 ? EOPNOTSUPP : 0;
}

Errno Context::devx_other(Request& request) {
  std::vector<std::byte> in(request.size(MLX5_IB_ATTR_DEVX_OTHER_CMD_IN));
  std::vector<std::byte> out(request.size(MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT));
  auto wrong = request.copy_in(MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, in);
  std::uint16_t uid = 0;
  if (wrong == 0) wrong = find_uid(in, uid);
  if (wrong != 0) return wrong;
  if (!is_general(in)) return EINVAL;
  set_uid(in, uid);
  wrong = execute(device_, in, out);
  if (wrong != 0 && wrong != EREMOTEIO) return wrong;
  const auto told = request.put_bytes(MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, out);
  return wrong != 0 ? wrong : told;
}

/// Asks for a doorbell page that a context has from its start: there are none.
Errno Context::devx_query_uar(Request&) { return EINVAL; }

Errno Context::devx_query_eqn(Request& request) {
  const auto vector = request.get<std::uint32_t>(MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC);
  if (vector >= kCompletionVectors) return EINVAL;
  return request.put(MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN,
                     device_.hca().completion_events(vector).eqn());
}

}  // namespace softhca::uverbs
