#include "uverbs/devx_methods.h"

#include <rdma/mlx5_user_ioctl_cmds.h>

#include <cerrno>
#include <vector>

#include "uverbs/abi.h"
#include "uverbs/command_status.h"
#include "uverbs/devx_commands.h"

namespace softhca::uverbs {

namespace {

using namespace rules;

constexpr AttributeRule kOther[] = {in(MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, kDevxHeader),
                                    out(MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, kDevxHeader)};
constexpr AttributeRule kQueryUar[] = {value_in(MLX5_IB_ATTR_DEVX_QUERY_UAR_USER_IDX, 4),
                                       value_out(MLX5_IB_ATTR_DEVX_QUERY_UAR_DEV_IDX, 4)};
constexpr AttributeRule kQueryEqn[] = {value_in(MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC, 4),
                                       value_out(MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN, 4)};
constexpr AttributeRule kCreate[] = {made(MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE),
                                     in(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN, kDevxHeader),
                                     out(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT, kDevxHeader)};
constexpr AttributeRule kDestroy[] = {object(MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE)};
constexpr AttributeRule kModify[] = {object(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE),
                                     in(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN, kDevxHeader),
                                     out(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT, kDevxHeader)};
constexpr AttributeRule kQuery[] = {object(MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE),
                                    in(MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN, kDevxHeader),
                                    out(MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT, kDevxHeader)};
constexpr AttributeRule kAsyncQuery[] = {object(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_HANDLE),
                                         in(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_CMD_IN, kDevxHeader),
                                         descriptor(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_FD, true),
                                         value_in(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_WR_ID, 8),
                                         const_in(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_OUT_LEN, 2)};

}  // namespace

std::span<const Method<DevxCommands>> DevxCommands::methods() {
  static constexpr Method<DevxCommands> kMethods[] = {
      {MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER, kOther, &DevxCommands::other},
      {MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_QUERY_UAR, kQueryUar, &DevxCommands::query_uar},
      {MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_QUERY_EQN, kQueryEqn, &DevxCommands::query_eqn},
      {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_CREATE, kCreate, &DevxCommands::create},
      {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_DESTROY, kDestroy, &DevxCommands::destroy},
      {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_MODIFY, kModify, &DevxCommands::modify},
      {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_QUERY, kQuery, &DevxCommands::query},
      {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_ASYNC_QUERY, kAsyncQuery,
       &DevxCommands::async_query},
  };
  return kMethods;
}

Errno DevxCommands::find_uid(std::span<const std::byte> command, std::uint16_t& uid) const {
  uid = file_.user.uid();
  if (uid != 0) return 0;
  if (!is_for_everybody(command)) return EINVAL;
  uid = file_.device.everybodys_user_context();
  return uid == 0 ? EOPNOTSUPP : 0;
}

Errno DevxCommands::other(Request& request) {
  std::vector<std::byte> in(request.size(MLX5_IB_ATTR_DEVX_OTHER_CMD_IN));
  std::vector<std::byte> out(request.size(MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT));
  auto wrong = request.copy_in(MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, in);
  std::uint16_t uid = 0;
  if (wrong == 0) wrong = find_uid(in, uid);
  if (wrong != 0) return wrong;
  if (!is_general(in)) return EINVAL;
  set_uid(in, uid);
  wrong = execute(file_.device, in, out);
  if (wrong != 0 && wrong != EREMOTEIO) return wrong;
  const auto copied = request.put_bytes(MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, out);
  return wrong != 0 ? wrong : copied;
}

/// Asks for a doorbell page that a context has from its start: there are none.
Errno DevxCommands::query_uar(Request&) { return EINVAL; }

Errno DevxCommands::query_eqn(Request& request) {
  const auto vector = request.get<std::uint32_t>(MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC);
  if (vector >= kCompletionVectors) return EINVAL;
  return request.put(MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN,
                     file_.device.hca().completion_events(vector).eqn());
}

}  // namespace softhca::uverbs
