// Maps a QP context to the transport's attributes, and its fields to the attributes of MODIFY_QP
// (JingZhao 3.2.6.1, table A1-3).
#pragma once

#include <optional>

#include "jingzhao/profile.h"
#include "rdma/queue_pair.h"
#include "spec/jingzhao/context.h"
#include "util/field.h"

namespace softhca::jingzhao {

/// Nothing if the service type is unknown.
std::optional<rdma::QpType> type_of(util::View<spec::jingzhao::qp_context> context);

rdma::QpAttributes attributes_of(util::View<spec::jingzhao::qp_context> context, wire::Link link);

/// The attributes that opt_param_mask names.
rdma::QpAttributeSet optional_attributes(util::View<spec::jingzhao::qp_context> context,
                                         const ProfileRules& rules);

/// Copies the fields of the attributes in `taken` from `from` to `context`.
void take_fields(util::MutableView<spec::jingzhao::qp_context> context,
                 util::View<spec::jingzhao::qp_context> from, rdma::QpAttributeSet taken);

}  // namespace softhca::jingzhao
