#include "jingzhao/qp_attributes.h"

#include <algorithm>
#include <array>

#include "jingzhao/addresses.h"
#include "jingzhao/numbers.h"
#include "spec/infiniband/constants.h"
#include "util/bits.h"

namespace softhca::jingzhao {

using rdma::QpType;
using Context = spec::jingzhao::qp_context;
using Type = spec::jingzhao::qp_type;
using Attribute = spec::infiniband::QpAttribute;

namespace {

constexpr std::uint8_t kForEver = 7;
constexpr std::uint32_t kMtuMax = 4096;

/// 3 bits in a byte: a plain number, or the top bits, as in the Arbel interface.
std::uint8_t rnr_retry_of(util::View<Context> context) {
  const auto value = static_cast<std::uint8_t>(context.get(Context::rnr_retry));
  return value <= kForEver ? value : static_cast<std::uint8_t>(value >> 5);  // no format: see above
}

std::uint32_t mtu_of(util::View<Context> context) {
  const auto bytes =
      spec::infiniband::mtu_bytes(static_cast<std::uint8_t>(context.get(Context::mtu)));
  return bytes != 0 ? bytes : kMtuMax;
}

/// Copies one field.
template <class Field>
void copy(util::MutableView<Context> to, util::View<Context> from, Field field) {
  to.set(field, from.get(field));
}

}  // namespace

std::optional<QpType> type_of(util::View<Context> context) {
  switch (Type(context.get(Context::type))) {
    case Type::RC:
      return QpType::kRc;
    case Type::UC:
      return QpType::kUc;
    case Type::UD:
      return QpType::kUd;
    case Type::RD:
      break;
  }
  return std::nullopt;
}

rdma::QpAttributes attributes_of(util::View<Context> context, wire::Link link) {
  rdma::QpAttributes out;
  out.pd = rdma::Pd(context.get(Context::pd));
  out.path = make_path(context, link);
  out.path_mtu = mtu_of(context);
  out.message_max = std::uint64_t{1} << context.get(Context::msgmax);
  out.remote_qpn = Qpn(context.get(Context::remote_qpn) & spec::infiniband::kQpnMask);
  out.qkey = context.get(Context::qkey);
  out.pkey_index = static_cast<std::uint16_t>(context.get(Context::pkey_index));
  out.rq_psn = context.get(Context::epsn);
  out.sq_psn = context.get(Context::next_send_psn) & spec::infiniband::kPsnMask;
  out.rnr_retry = rnr_retry_of(context);
  out.ack_timeout =
      static_cast<std::uint8_t>(context.get(Context::ackto) >> 3);  // no format: its top 5 bits
  out.min_rnr_timer =
      static_cast<std::uint8_t>(context.get(Context::rnr_timer) & 31);  // no format: its low 5 bits
  out.max_rd_atomic = out.max_dest_rd_atomic = limits::kReadsInFlight;
  // Without that dword, only the access flags of the MPT apply.
  const bool said = context.get(Context::limits_valid) != 0;
  out.retry_count =
      said ? static_cast<std::uint8_t>(context.get(Context::retry_cnt)) : std::uint8_t{7};
  out.access_flags.remote_read = !said || context.get(Context::remote_read) != 0;
  out.access_flags.remote_write = !said || context.get(Context::remote_write) != 0;
  out.access_flags.remote_atomic = !said || context.get(Context::remote_atomic) != 0;
  return out;
}

namespace {

/// An attribute, and its bit in the masks of Linux `mthca`.
struct MthcaBit {
  unsigned bit;
  Attribute attribute;
};

/// Those that a QP context has a field for.
constexpr std::array kMthcaBits{
    MthcaBit{1, Attribute::kAccessFlags},   MthcaBit{2, Attribute::kAccessFlags},
    MthcaBit{3, Attribute::kAccessFlags},   MthcaBit{4, Attribute::kPkeyIndex},
    MthcaBit{5, Attribute::kQkey},          MthcaBit{6, Attribute::kMinRnrTimer},
    MthcaBit{7, Attribute::kAddressVector}, MthcaBit{11, Attribute::kPort},
    MthcaBit{12, Attribute::kRetryCount},   MthcaBit{14, Attribute::kTimeout},
    MthcaBit{15, Attribute::kRnrRetry},
};

}  // namespace

rdma::QpAttributeSet optional_attributes(util::View<Context> context, const ProfileRules& rules) {
  const auto mask = context.get(Context::opt_param_mask);
  if (!rules.has_mthca_masks) return rdma::QpAttributeSet::from_bits(mask);
  rdma::QpAttributeSet given;
  for (const auto& [bit, attribute] : kMthcaBits) {
    if (util::has_bit(mask, bit)) given = given | rdma::QpAttributeSet{attribute};
  }
  return given;
}

void take_fields(util::MutableView<Context> context, util::View<Context> from,
                 rdma::QpAttributeSet taken) {
  const auto take = [&](Attribute attribute, auto... fields) {
    if (taken.has(attribute)) (copy(context, from, fields), ...);
  };
  using enum Attribute;
  using C = Context;
  take(kPkeyIndex, C::pkey_index);
  take(kPort, C::port);
  take(kQkey, C::qkey);
  take(kAddressVector, C::g_mylmc, C::mgid_index, C::static_rate, C::hop_limit,
       C::sl_tclass_flowlabel, C::dlid_dmac, C::slid_smac, C::smac_h, C::dmac_h, C::sip, C::dip);
  if (taken.has(kAddressVector)) std::ranges::copy(from.get(C::rgid), context.sub(C::rgid).begin());
  take(kPathMtu, C::mtu, C::msgmax);  // one field, mtu_msgmax
  take(kTimeout, C::ackto);
  take(kRetryCount, C::limits_valid, C::retry_cnt);
  take(kRnrRetry, C::rnr_retry);
  take(kRqPsn, C::epsn);
  take(kMinRnrTimer, C::rnr_timer);
  take(kSqPsn, C::next_send_psn, C::last_acked_psn);
  take(kDestinationQpn, C::remote_qpn);
  take(kAccessFlags, C::limits_valid, C::remote_read, C::remote_write, C::remote_atomic);
}

}  // namespace softhca::jingzhao
