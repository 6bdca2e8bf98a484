// What a QP context means to the transport, and which of its fields belong to which attribute of
// MODIFY_QP (JingZhao 3.2.6.1, table A1-3).
#pragma once

#include <optional>

#include "rdma/queue_pair.h"
#include "spec/jingzhao/context.h"
#include "util/field.h"

namespace softhca::jingzhao {

/// Nothing: there is no such service.
std::optional<rdma::QpType> type_of(util::View<spec::jingzhao::qp_context> context);

rdma::QpAttributes attributes_of(util::View<spec::jingzhao::qp_context> context, wire::Link link);

/// Replaces the fields of `taken` in `context` by those of `from`.
void take_fields(util::MutableView<spec::jingzhao::qp_context> context,
                 util::View<spec::jingzhao::qp_context> from, rdma::QpAttributeSet taken);

}  // namespace softhca::jingzhao
