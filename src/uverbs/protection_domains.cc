#include "uverbs/protection_domains.h"

#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5-abi.h>
#include <rdma/mlx5_user_ioctl_cmds.h>

#include <cerrno>
#include <memory>

#include "spec/connectx/resources.h"
#include "uverbs/abi.h"
#include "uverbs/device_command.h"
#include "uverbs/objects.h"
#include "uverbs/reply.h"

namespace softhca::uverbs {

using spec::command_opcode;

namespace {

using namespace rules;

constexpr AttributeRule kQueryPd[] = {object(MLX5_IB_ATTR_QUERY_PD_HANDLE),
                                      value_out(MLX5_IB_ATTR_QUERY_PD_RESP_PDN, 4)};
constexpr AttributeRule kDestroyPd[] = {object(UVERBS_ATTR_DESTROY_PD_HANDLE)};

}  // namespace

std::span<const Method<ProtectionDomainCommands>> ProtectionDomainCommands::methods() {
  static constexpr Method<ProtectionDomainCommands> kMethods[] = {
      {UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY, kDestroyPd,
       &ProtectionDomainCommands::destroy_pd},
      {UVERBS_OBJECT_PD, MLX5_IB_METHOD_PD_QUERY, kQueryPd, &ProtectionDomainCommands::query_pd},
  };
  return kMethods;
}

std::span<const WriteCommand<ProtectionDomainCommands>> ProtectionDomainCommands::write_commands() {
  static constexpr WriteCommand<ProtectionDomainCommands> kCommands[] = {
      {{IB_USER_VERBS_CMD_ALLOC_PD, 8, 4}, &ProtectionDomainCommands::alloc_pd},
  };
  return kCommands;
}

Errno ProtectionDomainCommands::alloc_pd(Request& request) {
  Command<spec::alloc_pd_in> in(command_opcode::ALLOC_PD);
  in.set(spec::alloc_pd_in::uid, file_.user.uid());
  const auto out = file_.device.commands().execute<spec::alloc_pd_out>(in);
  if (!out) return ENOMEM;
  const auto pdn = out->get(spec::alloc_pd_out::pd);
  Reply reply(request, file_.objects, std::make_unique<ProtectionDomain>(file_.device, pdn));
  return reply
      .put(kCoreOut, reply.handle())  // ib_uverbs_alloc_pd_resp
      .put(UVERBS_ATTR_UHW_OUT, mlx5_ib_alloc_pd_resp{.pdn = pdn})
      .end();
}

/// Serves a process that imports a PD of another process by its device file (ibv_import_pd).
Errno ProtectionDomainCommands::query_pd(Request& request) {
  const ProtectionDomain* pd = nullptr;
  if (const auto missing = file_.find(request, MLX5_IB_ATTR_QUERY_PD_HANDLE, pd); missing != 0) {
    return missing;
  }
  return request.put(MLX5_IB_ATTR_QUERY_PD_RESP_PDN, pd->pdn);
}

Errno ProtectionDomainCommands::destroy_pd(Request& request) {
  return destroy_object<ProtectionDomain>(file_.objects,
                                          request.number(UVERBS_ATTR_DESTROY_PD_HANDLE));
}

}  // namespace softhca::uverbs
