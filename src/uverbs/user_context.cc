#include "uverbs/user_context.h"

#include <utility>

#include "spec/connectx/resources.h"
#include "uverbs/device_command.h"

namespace softhca::uverbs {

UserContext::~UserContext() {
  if (transport_domain_ != 0) {
    using In = spec::dealloc_transport_domain_in;
    Command<In> in(spec::command_opcode::DEALLOC_TRANSPORT_DOMAIN);
    in.set(In::transport_domain, transport_domain_);
    (void)device_.commands().run(in);
  }
  end_uid();
}

bool UserContext::make_uid() {
  uid_ = device_.make_user_context();
  return uid_ != 0;
}

void UserContext::end_uid() {
  if (uid_ != 0) device_.end_user_context(std::exchange(uid_, std::uint16_t{0}));
}

std::uint32_t UserContext::transport_domain() {
  if (transport_domain_ != 0) return transport_domain_;
  using In = spec::alloc_transport_domain_in;
  using Out = spec::alloc_transport_domain_out;
  Command<In> in(spec::command_opcode::ALLOC_TRANSPORT_DOMAIN);
  in.set(In::uid, uid_);
  const auto out = device_.commands().execute<Out>(in);
  if (out) transport_domain_ = out->get(Out::transport_domain);
  return transport_domain_;
}

}  // namespace softhca::uverbs
