#include "uverbs/event_subscriptions.h"

#include <algorithm>

#include "spec/connectx/eq.h"
#include "util/field.h"

namespace softhca::uverbs {

namespace spec = softhca::spec::connectx;
using Type = spec::event_type;
using driver::connectx::Event;

namespace {

/// Whether `event` is about `object`. A QP event names its queue by kind.
bool is_of(const Event& event, const DevxName& object) {
  switch (event.type) {
    case Type::COMPLETION: {
      using Data = spec::event_data_completion;
      return object == DevxName{spec::object_kind::CQ, event.as<Data>().get(Data::cqn)};
    }
    case Type::CQ_ERROR: {
      using Data = spec::event_data_cq_error;
      return object == DevxName{spec::object_kind::CQ, event.as<Data>().get(Data::cqn)};
    }
    case Type::DCT_DRAINED:
    case Type::DCT_ACCESS_KEY_VIOLATION: {
      using Data = spec::event_data_dct;
      return object == DevxName{spec::object_kind::DCT, event.as<Data>().get(Data::dctn)};
    }
    case Type::SRQ_LIMIT:
    case Type::LOCAL_SRQ_CATASTROPHIC_ERROR: {
      using Data = spec::event_data_qp_srq;
      return (object.kind == spec::object_kind::RMP || object.kind == spec::object_kind::XRC_SRQ) &&
             object.number == event.as<Data>().get(Data::qp_srq_n);
    }
    default: {
      // QPs, SQs and RQs share one number space.
      using Data = spec::event_data_qp_srq;
      return (object.kind == spec::object_kind::QP || object.kind == spec::object_kind::SQ ||
              object.kind == spec::object_kind::RQ) &&
             object.number == event.as<Data>().get(Data::qp_srq_n);
    }
  }
}

}  // namespace

void EventSubscriptions::remove(const void* owner) {
  std::erase_if(all_, [&](const Subscription& one) { return one.owner == owner; });
}

void EventSubscriptions::remove_object(const DevxName& object) {
  std::erase_if(all_, [&](const Subscription& one) { return one.subject.object == object; });
}

void EventSubscriptions::handle_event(const Event& event) const {
  if (all_.empty()) return;
  util::Struct<spec::eqe> eqe;
  eqe.set(spec::eqe::event_type, static_cast<std::uint32_t>(event.type));
  eqe.set(spec::eqe::event_sub_type, event.sub_type);
  std::ranges::copy(event.data, eqe.sub(spec::eqe::event_data).begin());
  for (const auto& one : all_) {
    if (one.subject.type != event.type) continue;
    if (one.subject.object && !is_of(event, *one.subject.object)) continue;
    one.subscriber->handle_event(eqe.bytes());
  }
}

}  // namespace softhca::uverbs
