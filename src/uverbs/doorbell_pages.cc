#include "uverbs/doorbell_pages.h"

#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>

#include <cerrno>
#include <memory>

#include "spec/connectx/resources.h"
#include "uverbs/device_command.h"
#include "uverbs/reply.h"

namespace softhca::uverbs {

namespace {

using namespace rules;

constexpr std::uint32_t kUarPageSize = 4096;

constexpr AttributeRule kAllocUar[] = {made(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE),
                                       const_in(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, 4),
                                       value_out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, 8),
                                       value_out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, 4),
                                       value_out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, 4)};
constexpr AttributeRule kDestroyUar[] = {object(MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE)};

}  // namespace

std::span<const Method<DoorbellPageCommands>> DoorbellPageCommands::methods() {
  static constexpr Method<DoorbellPageCommands> kMethods[] = {
      {MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC, kAllocUar,
       &DoorbellPageCommands::alloc_uar},
      {MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_DESTROY, kDestroyUar,
       &DoorbellPageCommands::destroy_uar},
  };
  return kMethods;
}

Errno DoorbellPageCommands::alloc_uar(Request& request) {
  const auto type = request.get<std::uint32_t>(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE);
  // Any page will do: a WQE written to a BlueFlame register is in the queue as well, and its
  // doorbell record announces it.
  if (type != MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC && type != MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF) {
    return EOPNOTSUPP;
  }
  Command<spec::alloc_uar_in> in(spec::command_opcode::ALLOC_UAR);
  in.set(spec::alloc_uar_in::uid, file_.user.uid());
  const auto out = file_.device.commands().execute<spec::alloc_uar_out>(in);
  if (!out) return ENOMEM;
  const auto page = out->get(spec::alloc_uar_out::uar);
  return Reply(request, file_.objects, std::make_unique<DoorbellPage>(file_.device, page))
      .put_handle(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE)
      .put(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, page_offset(page))
      .put(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, kUarPageSize)
      .put(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, page)
      .end();
}

Errno DoorbellPageCommands::destroy_uar(Request& request) {
  return destroy_object<DoorbellPage>(file_.objects,
                                      request.number(MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE));
}

}  // namespace softhca::uverbs
