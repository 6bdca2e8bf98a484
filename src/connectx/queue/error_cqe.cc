#include "connectx/queue/error_cqe.h"

#include <algorithm>

#include "spec/connectx/cqe.h"
#include "util/field.h"

namespace softhca::connectx {

void encode_error_cqe(std::span<std::byte, 64> cqe, const ErrorCqe& error) {
  using Layout = spec::connectx::cqe_error;
  using spec::connectx::cqe_opcode;
  std::ranges::fill(cqe, std::byte{0});
  const util::MutableView<Layout> out(cqe);
  out.set(Layout::user_index, error.user_index);
  out.set(Layout::hw_error_syndrome, static_cast<std::uint32_t>(error.reason));
  out.set(Layout::vendor_error_syndrome, vendor_error(error.queue, error.syndrome, error.reason));
  out.set(Layout::syndrome, static_cast<std::uint32_t>(error.syndrome));
  out.set(Layout::s_wqe_opcode, error.wqe_opcode);
  out.set(Layout::qpn, error.number);
  out.set(Layout::wqe_counter, error.wqe_counter);
  const auto opcode = error.queue == ErrorQueue::kReceives ? cqe_opcode::RESPONDER_ERROR
                                                           : cqe_opcode::REQUESTER_ERROR;
  out.set(Layout::opcode, static_cast<std::uint32_t>(opcode));
}

}  // namespace softhca::connectx
