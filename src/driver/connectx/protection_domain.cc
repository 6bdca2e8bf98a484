#include "driver/connectx/protection_domain.h"

#include <utility>

#include "spec/connectx/resources.h"
#include "util/log.h"

namespace softhca::driver::connectx {

using spec::command_opcode;

util::Result<std::unique_ptr<ProtectionDomain>> ProtectionDomain::create(Hca& hca) {
  const auto out = hca.commands().execute<spec::alloc_pd_out>(
      Request<spec::alloc_pd_in>(command_opcode::ALLOC_PD));
  if (!out) return tl::unexpected(out.error());
  return std::unique_ptr<ProtectionDomain>(
      new ProtectionDomain(hca, out->get(spec::alloc_pd_out::pd)));
}

ProtectionDomain::~ProtectionDomain() {
  if (const auto done = destroy(); !done) {
    util::log(util::LogLevel::kWarning, "PD {:#x}: {}", pd_, done.error().message);
  }
}

util::Result<void> ProtectionDomain::destroy() {
  if (!std::exchange(exists_, false)) return {};
  Request<spec::dealloc_pd_in> in(command_opcode::DEALLOC_PD);
  in.set(spec::dealloc_pd_in::pd, pd_);
  return hca_.commands().run(in);
}

}  // namespace softhca::driver::connectx
