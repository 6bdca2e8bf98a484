#include "uverbs/xrc_targets.h"

#include <fcntl.h>
#include <rdma/ib_user_verbs.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "spec/connectx/qp.h"
#include "spec/connectx/resources.h"
#include "util/log.h"
#include "uverbs/abi.h"
#include "uverbs/context.h"
#include "uverbs/device_command.h"

namespace softhca::uverbs {

using spec::command_opcode;

namespace {}  // namespace

void destroy_qp(Device& device, std::uint32_t qpn) {
  Command<spec::qp_2rst_in> reset(command_opcode::QP_2RST);
  reset.set(spec::qp_2rst_in::qpn, qpn);
  report(device.commands().run(reset));
  Command<spec::destroy_qp_in> in(command_opcode::DESTROY_QP);
  in.set(spec::destroy_qp_in::qpn, qpn);
  report(device.commands().run(in));
}

SharedXrcDomain::~SharedXrcDomain() {
  Command<spec::dealloc_xrcd_in> in(command_opcode::DEALLOC_XRCD);
  in.set(spec::dealloc_xrcd_in::xrcd, number_);
  report(device_.commands().run(in));
}

std::shared_ptr<XrcTarget> SharedXrcDomain::find_target(std::uint32_t qpn) const {
  const auto at = targets_.find(qpn);
  return at == targets_.end() ? nullptr : at->second.lock();
}

std::shared_ptr<XrcTarget> XrcTarget::share(Device& device, std::uint32_t qpn,
                                            std::shared_ptr<SharedXrcDomain> domain) {
  auto& targets = domain->targets_;
  std::shared_ptr<XrcTarget> target(new XrcTarget(device, qpn, std::move(domain)));
  targets[qpn] = target;
  device.add_queue_target(qpn, *target);
  return target;
}

XrcTarget::~XrcTarget() {
  domain_->targets_.erase(qpn_);
  device_.remove_queue_target(qpn_);
  destroy_qp(device_, qpn_);
}

void XrcTarget::handle_event(spec::event_type type) {
  for (auto* opener : openers_) opener->handle_event(type);
}

void QueuePair::share_xrc_target() {
  xrc_target = XrcTarget::share(device, qpn, static_cast<XrcDomain*>(xrcd.get())->shared);
  xrc_target->open(*this);
  exists = false;
}

/// A file names a domain for the contexts of this process only: each process has a device of its
/// own.
Errno Context::open_xrcd(Request& request) {
  const auto in = request.get<ib_uverbs_open_xrcd>(kCoreIn);
  const bool named = in.fd != UINT32_MAX;
  vfio_user::UniqueFd file;
  Device::FileName name{};
  std::shared_ptr<SharedXrcDomain> domain;
  if (named) {
    file = options_.copy(static_cast<int>(in.fd));
    struct stat status{};
    if (::fstat(file.get(), &status) != 0) return EBADF;
    name = {status.st_dev, status.st_ino};
    domain = device_.find_xrc_domain(name);
  }
  if (domain == nullptr && named && (in.oflags & O_CREAT) == 0) return EAGAIN;
  if (domain != nullptr && (in.oflags & O_EXCL) != 0) return EINVAL;
  if (domain == nullptr) {
    const auto out = device_.commands().execute<spec::alloc_xrcd_out>(
        Command<spec::alloc_xrcd_in>(command_opcode::ALLOC_XRCD));
    if (!out) return ENOMEM;
    domain = std::make_shared<SharedXrcDomain>(device_, out->get(spec::alloc_xrcd_out::xrcd),
                                               std::move(file));
    if (named) device_.name_xrc_domain(name, domain);
  }
  const auto handle = objects_.add(std::make_unique<XrcDomain>(std::move(domain)));
  const auto wrong = request.put(kCoreOut, handle);  // ib_uverbs_open_xrcd_resp
  if (wrong != 0) objects_.remove(handle);
  return wrong;
}

Errno Context::open_qp(Request& request) {
  const auto in = request.get<ib_uverbs_open_qp>(kCoreIn);
  XrcDomain* xrcd = nullptr;
  if (const auto missing = objects_.find(in.pd_handle, xrcd); missing != 0) return missing;
  if (in.qp_type != IB_UVERBS_QPT_XRC_TGT) return EINVAL;
  auto target = xrcd->shared->find_target(in.qpn);
  if (target == nullptr) {
    util::log(xrcd->shared->has_name() ? util::LogLevel::kWarning : util::LogLevel::kInfo,
              "no context of this process has an XRC target {:#x} in that domain. Each process has "
              "its own device, and cannot open targets of other processes",
              in.qpn);
    return EINVAL;
  }
  auto qp = std::make_unique<QueuePair>(device_);
  qp->type = in.qp_type;
  qp->service = spec::service_type::XRC;
  qp->xrcd = Use(xrcd);
  qp->pdn = device_.own_pd();
  qp->qpn = in.qpn;
  qp->async.file = events_.async();
  qp->async.user_handle = in.user_handle;
  target->open(*qp);
  qp->xrc_target = std::move(target);
  ib_uverbs_create_qp_resp out{};
  out.qpn = in.qpn;
  out.qp_handle = objects_.add(std::move(qp));
  const auto wrong = request.put(kCoreOut, out);
  if (wrong != 0) objects_.remove(out.qp_handle);
  return wrong;
}

}  // namespace softhca::uverbs
