#include "uverbs/method.h"

#include <algorithm>

#include "uverbs/abi.h"

namespace softhca::uverbs {

namespace {

/// Whether Linux refuses the method before GET_CONTEXT. It looks for the context when it makes an
/// object or asks the device. A method that names an object fails earlier: without a context there
/// are no objects (rdma_core.c).
bool needs_context(const Request& request, std::span<const AttributeRule> attributes) {
  using Is = AttributeRule::Kind;
  if (request.object() == UVERBS_OBJECT_DEVICE) {
    return request.method() != UVERBS_METHOD_GET_CONTEXT &&
           request.method() != UVERBS_METHOD_INFO_HANDLES &&
           request.method() != UVERBS_METHOD_INVOKE_WRITE;  // asks for each command
  }
  const auto has = [&](Is kind) {
    return std::ranges::any_of(attributes, [kind](const AttributeRule& rule) {
      return rule.mandatory && rule.kind == kind;
    });
  };
  const bool makes_one = has(Is::kNewObject) || has(Is::kNewDescriptor);
  const bool names_one = has(Is::kObject) || has(Is::kDescriptor);
  return makes_one || !names_one;
}

}  // namespace

Errno check_method(const Request& request, std::span<const AttributeRule> attributes,
                   const UserContext& user) {
  auto wrong = request.check(attributes);
  if (wrong == 0 && !user.exists() && needs_context(request, attributes)) wrong = EINVAL;
  return wrong;
}

Errno check_write(const Request& request, const WriteForm& form, const UserContext& user) {
  if (request.size(kCoreIn) < form.in || request.size(kCoreOut) < form.out) return ENOSPC;
  // REREG_MR is the one command that gives the errno of its missing object: ENOENT.
  if (!user.exists() && form.number != IB_USER_VERBS_CMD_REREG_MR) return EINVAL;
  return request.is_zero_behind(kCoreIn, form.known) ? 0 : EOPNOTSUPP;
}

}  // namespace softhca::uverbs
