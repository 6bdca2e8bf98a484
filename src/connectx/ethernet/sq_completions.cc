#include "connectx/ethernet/sq_completions.h"

#include <array>
#include <utility>

#include "connectx/base/timestamp.h"
#include "connectx/port/network_port.h"
#include "connectx/queue/error_cqe.h"
#include "spec/connectx/cqe.h"
#include "util/field.h"

namespace softhca::connectx {

namespace {

using spec::connectx::cqe64_requester;
using spec::connectx::cqe_opcode;

}  // namespace

void SqCompletions::reset() {
  has_reported_error_ = false;
  waiting_.clear();
}

bool SqCompletions::finish(std::uint64_t frame, const SendWqeControl& control,
                           const std::optional<EthWqeFault>& fault) {
  const Ending ending{frame, control, fault};
  if (waiting_.empty() && port_.released() >= frame) return report(ending);
  waiting_.push_back(ending);
  return true;
}

bool SqCompletions::report_released() {
  bool works = true;
  const auto released = port_.released();
  auto end = waiting_.begin();
  for (; end != waiting_.end() && released >= end->frame; ++end) works &= report(*end);
  waiting_.erase(waiting_.begin(), end);
  return works;
}

bool SqCompletions::report(const Ending& ending) {
  if (!ending.fault) return write_success(ending.control);
  // PRM Table 26, CE: "if CQE on previous WQE completed in error, no CQE will be generated".
  const bool is_first = !std::exchange(has_reported_error_, true);
  if (!is_first && ending.control.completion == WqeCompletion::ON_FIRST_ERROR) return true;
  return write_error(ending.control, *ending.fault);
}

bool SqCompletions::write_success(const SendWqeControl& control) {
  util::Struct<cqe64_requester> cqe;
  cqe.set(cqe64_requester::opcode, static_cast<std::uint32_t>(cqe_opcode::REQUESTER));
  cqe.set(cqe64_requester::srqn_user_index, user_index_);
  cqe.set(cqe64_requester::timestamp, device_ticks(now_));
  cqe.set(cqe64_requester::s_wqe_opcode, static_cast<std::uint32_t>(control.opcode));
  cqe.set(cqe64_requester::qpn, sqn_.value());
  cqe.set(cqe64_requester::wqe_counter, control.index);
  return cq_.write(cqe.bytes().first<64>(), has_event(control.completion));
}

bool SqCompletions::write_error(const SendWqeControl& control, const EthWqeFault& fault) {
  std::array<std::byte, 64> cqe;
  encode_error_cqe(cqe, {.queue = ErrorQueue::kSq,
                         .syndrome = fault.syndrome,
                         .reason = fault.reason,
                         .user_index = user_index_,
                         .number = sqn_.value(),
                         .wqe_counter = control.index,
                         .wqe_opcode = static_cast<std::uint8_t>(control.opcode)});
  return cq_.write(cqe, true);
}

}  // namespace softhca::connectx
