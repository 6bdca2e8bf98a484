#include "uverbs/memory_windows.h"

#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5-abi.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <utility>

#include "spec/connectx/mkey.h"
#include "spec/connectx/mkey_number.h"
#include "spec/connectx/opcodes.h"
#include "uverbs/abi.h"
#include "uverbs/device_command.h"
#include "uverbs/objects.h"
#include "uverbs/reply.h"

namespace softhca::uverbs {

using spec::command_opcode;

namespace {

using namespace rules;

constexpr AttributeRule kDestroyMw[] = {object(UVERBS_ATTR_DESTROY_MW_HANDLE)};

}  // namespace

std::span<const Method<MemoryWindowCommands>> MemoryWindowCommands::methods() {
  static constexpr Method<MemoryWindowCommands> kMethods[] = {
      {UVERBS_OBJECT_MW, UVERBS_METHOD_MW_DESTROY, kDestroyMw, &MemoryWindowCommands::destroy_mw},
  };
  return kMethods;
}

std::span<const WriteCommand<MemoryWindowCommands>> MemoryWindowCommands::write_commands() {
  static constexpr WriteCommand<MemoryWindowCommands> kCommands[] = {
      {{IB_USER_VERBS_CMD_ALLOC_MW, 16, 8}, &MemoryWindowCommands::alloc_mw},
  };
  return kCommands;
}

Errno MemoryWindowCommands::alloc_mw(Request& request) {
  enum : std::uint8_t { kType1 = 1, kType2 = 2 };  // ib_mw_type
  const auto in = request.get<ib_uverbs_alloc_mw>(kCoreIn);
  const auto own = request.get<mlx5_ib_alloc_mw>(UVERBS_ATTR_UHW_IN);
  ProtectionDomain* pd = nullptr;
  if (const auto missing = file_.objects.find(in.pd_handle, pd); missing != 0) return missing;
  if (in.mw_type != kType1 && in.mw_type != kType2) return EINVAL;
  if (own.comp_mask != 0 || own.reserved1 != 0 || own.reserved2 != 0) return EOPNOTSUPP;
  Command<spec::create_mkey_in> create(command_opcode::CREATE_MKEY);
  using Mkc = spec::mkey_context;
  const auto context = create.sub(spec::create_mkey_in::mkey_context);
  context.set(Mkc::free, 1);
  context.set(Mkc::access_mode, static_cast<std::uint32_t>(spec::mkey_access_mode::KLM));
  context.set(Mkc::lr, 1);
  context.set(Mkc::umr_en, 1);
  context.set(Mkc::en_rinval, in.mw_type == kType2);
  context.set(Mkc::pd, pd->pdn);
  context.set(Mkc::qpn, Mkc::qpn.kMax);  // any QP
  // KLMs are allocated in fours.
  const auto entries = (std::max<std::uint32_t>(own.num_klms, 1) + 3) / 4 * 4;
  context.set(Mkc::translations_octword_size, entries);
  const auto variant = file_.device.hca().next_key_variant();
  context.set(Mkc::mkey, variant);
  const auto out = file_.device.commands().execute<spec::create_mkey_out>(create);
  if (!out) return ENOMEM;
  auto window = std::make_unique<MemoryWindow>(file_.device, *pd);
  window->index = out->get(spec::create_mkey_out::mkey_index);
  const auto key = spec::mkey_of(window->index, variant);
  Reply reply(request, file_.objects, std::move(window));
  const std::array answer{reply.handle(), key};  // ib_uverbs_alloc_mw_resp
  return reply.put(kCoreOut, answer).end();
}

Errno MemoryWindowCommands::destroy_mw(Request& request) {
  return destroy_object<MemoryWindow>(file_.objects, request.number(UVERBS_ATTR_DESTROY_MW_HANDLE));
}

}  // namespace softhca::uverbs
