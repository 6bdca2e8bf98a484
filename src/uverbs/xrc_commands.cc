#include "uverbs/xrc_commands.h"

#include <fcntl.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <utility>

#include "spec/connectx/resources.h"
#include "util/log.h"
#include "uverbs/abi.h"
#include "uverbs/device_command.h"
#include "uverbs/objects.h"
#include "uverbs/reply.h"
#include "uverbs/transport_qps.h"

namespace softhca::uverbs {

using spec::command_opcode;

namespace {

using namespace rules;

constexpr AttributeRule kDestroyXrcd[] = {object(UVERBS_ATTR_DESTROY_XRCD_HANDLE)};

}  // namespace

std::span<const Method<XrcCommands>> XrcCommands::methods() {
  static constexpr Method<XrcCommands> kMethods[] = {
      {UVERBS_OBJECT_XRCD, UVERBS_METHOD_XRCD_DESTROY, kDestroyXrcd, &XrcCommands::destroy_xrcd},
  };
  return kMethods;
}

std::span<const WriteCommand<XrcCommands>> XrcCommands::write_commands() {
  static constexpr WriteCommand<XrcCommands> kCommands[] = {
      {{IB_USER_VERBS_CMD_OPEN_XRCD, 16, 4}, &XrcCommands::open_xrcd},
      {{IB_USER_VERBS_CMD_OPEN_QP, 32, 32}, &XrcCommands::open_qp},
  };
  return kCommands;
}

/// A file names a domain for the contexts of this process only: each process has a device of its
/// own.
Errno XrcCommands::open_xrcd(Request& request) {
  const auto in = request.get<ib_uverbs_open_xrcd>(kCoreIn);
  const bool named = in.fd != UINT32_MAX;
  os::UniqueFd file;
  Device::FileName name{};
  std::shared_ptr<SharedXrcDomain> domain;
  if (named) {
    file = copy_(static_cast<int>(in.fd));
    struct stat status{};
    if (::fstat(file.get(), &status) != 0) return EBADF;
    name = {status.st_dev, status.st_ino};
    domain = file_.device.find_xrc_domain(name);
  }
  if (domain == nullptr && named && (in.oflags & O_CREAT) == 0) return EAGAIN;
  if (domain != nullptr && (in.oflags & O_EXCL) != 0) return EINVAL;
  if (domain == nullptr) {
    const auto out = file_.device.commands().execute<spec::alloc_xrcd_out>(
        Command<spec::alloc_xrcd_in>(command_opcode::ALLOC_XRCD));
    if (!out) return ENOMEM;
    domain = std::make_shared<SharedXrcDomain>(file_.device, out->get(spec::alloc_xrcd_out::xrcd),
                                               std::move(file));
    if (named) file_.device.name_xrc_domain(name, domain);
  }
  Reply reply(request, file_.objects, std::make_unique<XrcDomain>(std::move(domain)));
  return reply.put(kCoreOut, reply.handle()).end();  // ib_uverbs_open_xrcd_resp
}

Errno XrcCommands::open_qp(Request& request) {
  const auto in = request.get<ib_uverbs_open_qp>(kCoreIn);
  XrcDomain* xrcd = nullptr;
  if (const auto missing = file_.objects.find(in.pd_handle, xrcd); missing != 0) return missing;
  if (in.qp_type != IB_UVERBS_QPT_XRC_TGT) return EINVAL;
  auto target = xrcd->shared->find_target(in.qpn);
  if (target == nullptr) {
    util::log(xrcd->shared->has_name() ? util::LogLevel::kWarning : util::LogLevel::kInfo,
              "no context of this process has an XRC target {:#x} in that domain. Each process has "
              "its own device, and cannot open targets of other processes",
              in.qpn);
    return EINVAL;
  }
  auto qp = std::make_unique<XrcTargetQp>(file_.device);
  qp->async.file = file_.events.async();
  qp->async.user_handle = in.user_handle;
  qp->open(*xrcd, in.qpn, std::move(target));
  ib_uverbs_create_qp_resp out{};
  out.qpn = in.qpn;
  Reply reply(request, file_.objects, std::move(qp));
  out.qp_handle = reply.handle();
  return reply.put(kCoreOut, out).end();
}

Errno XrcCommands::destroy_xrcd(Request& request) {
  return destroy_object<XrcDomain>(file_.objects, request.number(UVERBS_ATTR_DESTROY_XRCD_HANDLE));
}

}  // namespace softhca::uverbs
