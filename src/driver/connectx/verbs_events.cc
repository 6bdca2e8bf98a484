#include "driver/connectx/verbs_events.h"

namespace softhca::driver::connectx {

using verbs::AsyncEvent;
using verbs::AsyncEventType;

namespace {

/// Sub-types of PORT_STATE_CHANGE (PRM Table 86).
constexpr std::uint8_t kPortActive = 4;

AsyncEventType type_of(const Event& event) {
  using enum spec::event_type;
  switch (event.type) {
    case COMMUNICATION_ESTABLISHED:
      return AsyncEventType::kCommunicationEstablished;
    case SQ_DRAINED:
      return AsyncEventType::kSqDrained;
    case LAST_WQE_REACHED:
      return AsyncEventType::kLastWqeReached;
    case LOCAL_WQ_CATASTROPHIC_ERROR:
      return AsyncEventType::kQpFatal;
    case INVALID_REQUEST_LOCAL_WQ_ERROR:
      return AsyncEventType::kQpRequestError;
    case LOCAL_ACCESS_VIOLATION_WQ_ERROR:
      return AsyncEventType::kQpAccessError;
    case CQ_ERROR:
      return AsyncEventType::kCqError;
    case SRQ_LIMIT:
      return AsyncEventType::kSrqLimitReached;
    case LOCAL_SRQ_CATASTROPHIC_ERROR:
      return AsyncEventType::kSrqFatal;
    case PORT_STATE_CHANGE:
      return event.sub_type == kPortActive ? AsyncEventType::kPortActive
                                           : AsyncEventType::kPortDown;
    default:
      return AsyncEventType::kOther;
  }
}

}  // namespace

AsyncEvent translate_event(const Event& event) {
  const auto type = type_of(event);
  switch (type) {
    case AsyncEventType::kOther:
      return {type, static_cast<std::uint32_t>(event.type)};
    case AsyncEventType::kCqError:
      return {type, event.as<spec::event_data_cq_error>().get(spec::event_data_cq_error::cqn)};
    case AsyncEventType::kPortActive:
    case AsyncEventType::kPortDown:
      return {type, event.as<spec::event_data_port_state_change>().get(
                        spec::event_data_port_state_change::port_num)};
    default:
      return {type, event.as<spec::event_data_qp_srq>().get(spec::event_data_qp_srq::qp_srq_n)};
  }
}

}  // namespace softhca::driver::connectx
