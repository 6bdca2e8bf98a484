// The methods of DevX: a program sends commands to the device (kernel interface 3.4, 4.13).
#include <rdma/mlx5_user_ioctl_cmds.h>

#include "uverbs/context.h"
#include "uverbs/devx_commands.h"
#include "uverbs/method.h"

namespace softhca::uverbs {

namespace {

using namespace rules;

constexpr AttributeRule kOther[] = {in(MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, kDevxHeader),
                                    out(MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, kDevxHeader)};
constexpr AttributeRule kQueryUar[] = {value_in(MLX5_IB_ATTR_DEVX_QUERY_UAR_USER_IDX, 4),
                                       value_out(MLX5_IB_ATTR_DEVX_QUERY_UAR_DEV_IDX, 4)};
constexpr AttributeRule kQueryEqn[] = {value_in(MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC, 4),
                                       value_out(MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN, 4)};
constexpr AttributeRule kSubscribe[] = {
    descriptor(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_HANDLE, true),
    object(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE, false),
    in(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST, 2),
    value_in(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_NUM, 4, false),
    value_in(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_COOKIE, 8, false)};
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
constexpr AttributeRule kRegMemory[] = {made(MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE),
                                        value_in(MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR, 8),
                                        value_in(MLX5_IB_ATTR_DEVX_UMEM_REG_LEN, 8),
                                        flags_in(MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS, true),
                                        value_out(MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID, 4),
                                        const_in(MLX5_IB_ATTR_DEVX_UMEM_REG_PGSZ_BITMAP, 8, false)};
constexpr AttributeRule kDeregMemory[] = {object(MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE)};
constexpr AttributeRule kAllocAnswers[] = {
    new_descriptor(MLX5_IB_ATTR_DEVX_ASYNC_CMD_FD_ALLOC_HANDLE)};
constexpr AttributeRule kAllocEvents[] = {
    new_descriptor(MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE),
    flags_in(MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_FLAGS, true)};

}  // namespace

std::span<const Context::Method> Context::devx_methods() {
  static constexpr Method kMethods[] = {
      {MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER, kOther, &Context::devx_other},
      {MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_QUERY_UAR, kQueryUar, &Context::devx_query_uar},
      {MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_QUERY_EQN, kQueryEqn, &Context::devx_query_eqn},
      {MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT, kSubscribe,
       &Context::devx_subscribe},
      {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_CREATE, kCreate, &Context::devx_create},
      {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_DESTROY, kDestroy,
       &Context::destroy<DevxObject, MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE>},
      {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_MODIFY, kModify, &Context::devx_modify},
      {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_QUERY, kQuery, &Context::devx_query},
      {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_ASYNC_QUERY, kAsyncQuery,
       &Context::devx_async_query},
      {MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_REG, kRegMemory, &Context::devx_reg_umem},
      {MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_DEREG, kDeregMemory,
       &Context::destroy<DevxMemory, MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE>},
      {MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD, MLX5_IB_METHOD_DEVX_ASYNC_CMD_FD_ALLOC, kAllocAnswers,
       &Context::devx_alloc_answers},
      {MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD, MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC, kAllocEvents,
       &Context::devx_alloc_events},
  };
  return kMethods;
}

}  // namespace softhca::uverbs
