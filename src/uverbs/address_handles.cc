#include "uverbs/address_handles.h"

#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5-abi.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>

#include "uverbs/abi.h"
#include "uverbs/objects.h"
#include "uverbs/reply.h"
#include "uverbs/route.h"

namespace softhca::uverbs {

namespace {

using namespace rules;

constexpr AttributeRule kDestroyAh[] = {object(UVERBS_ATTR_DESTROY_AH_HANDLE)};

}  // namespace

std::span<const Method<AddressHandleCommands>> AddressHandleCommands::methods() {
  static constexpr Method<AddressHandleCommands> kMethods[] = {
      {UVERBS_OBJECT_AH, UVERBS_METHOD_AH_DESTROY, kDestroyAh, &AddressHandleCommands::destroy_ah},
  };
  return kMethods;
}

std::span<const WriteCommand<AddressHandleCommands>> AddressHandleCommands::write_commands() {
  static constexpr WriteCommand<AddressHandleCommands> kCommands[] = {
      {{IB_USER_VERBS_CMD_CREATE_AH, 56, 4}, &AddressHandleCommands::create_ah},
  };
  return kCommands;
}

Errno AddressHandleCommands::create_ah(Request& request) {
  const auto in = request.get<ib_uverbs_create_ah>(kCoreIn);
  const auto to = address_vector(in.attr);
  if (to.port != kPort1) return EINVAL;
  ProtectionDomain* pd = nullptr;
  if (const auto missing = file_.objects.find(in.pd_handle, pd); missing != 0) return missing;
  if (const auto wrong = check_source(file_.device, to); wrong != 0) return wrong;
  Route route;
  if (const auto wrong = find_route(file_.device, to, route); wrong != 0) return wrong;
  if (!is_rate(to.static_rate)) return EINVAL;
  mlx5_ib_create_ah_resp own{};
  own.response_length = offsetof(mlx5_ib_create_ah_resp, dmac) + sizeof own.dmac;
  std::memcpy(own.dmac, route.mac.bytes.data(), sizeof own.dmac);
  Reply reply(request, file_.objects,
              std::make_unique<AddressHandle>(*pd, GidUse(file_.device, to.source)));
  return reply
      .put(kCoreOut, reply.handle())  // ib_uverbs_create_ah_resp
      .put(UVERBS_ATTR_UHW_OUT, own)
      .end();
}

Errno AddressHandleCommands::destroy_ah(Request& request) {
  return destroy_object<AddressHandle>(file_.objects,
                                       request.number(UVERBS_ATTR_DESTROY_AH_HANDLE));
}

}  // namespace softhca::uverbs
