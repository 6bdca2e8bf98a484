#include "driver/connectx/transport_domain.h"

#include <utility>

#include "spec/connectx/resources.h"
#include "util/log.h"

namespace softhca::driver::connectx {

using spec::command_opcode;

util::Result<std::unique_ptr<TransportDomain>> TransportDomain::create(Hca& hca) {
  using Out = spec::alloc_transport_domain_out;
  const auto out = hca.commands().execute<Out>(
      Request<spec::alloc_transport_domain_in>(command_opcode::ALLOC_TRANSPORT_DOMAIN));
  if (!out) return tl::unexpected(out.error());
  return std::unique_ptr<TransportDomain>(
      new TransportDomain(hca, out->get(Out::transport_domain)));
}

TransportDomain::~TransportDomain() {
  if (const auto done = destroy(); !done) {
    util::log(util::LogLevel::kWarning, "transport domain {:#x}: {}", number_,
              done.error().message);
  }
}

util::Result<void> TransportDomain::destroy() {
  if (!std::exchange(exists_, false)) return {};
  using In = spec::dealloc_transport_domain_in;
  Request<In> in(command_opcode::DEALLOC_TRANSPORT_DOMAIN);
  in.set(In::transport_domain, number_);
  return hca_.commands().run(in);
}

}  // namespace softhca::driver::connectx
