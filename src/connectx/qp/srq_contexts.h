// Fields with the same names in the contexts of SRQs and XRC SRQs.
#pragma once

#include <cstdint>
#include <span>

#include "connectx/command/command.h"
#include "connectx/qp/shared_receive_queue.h"
#include "util/field.h"

namespace softhca::connectx {

/// Reads the PD, the number of WQEs and their size.
template <class Context>
void take_srq_layout(util::View<Context> context, unsigned log_size,
                     SharedReceiveQueue::Attributes& attributes) {
  attributes.log_size = log_size;
  attributes.log_stride = context.get(Context::log_rq_stride) + 4;
  attributes.wq_signature = context.get(Context::wq_signature) != 0;
  attributes.pd = Pd(context.get(Context::pd));
}

/// Checks these values, and acquires a use of the PD (srq_commands.cc).
CommandResult check_srq_layout(DriverState& driver, SharedReceiveQueue::Attributes& attributes);

template <class Context>
QueuePlace place_of_srq(util::View<Context> context,
                        const SharedReceiveQueue::Attributes& attributes,
                        std::span<const std::byte> pas) {
  return {.log_page_size = context.get(Context::log_page_size),
          .page_offset = context.get(Context::page_offset),
          .size = std::uint64_t{1} << (attributes.log_size + attributes.log_stride),
          .pas = pas,
          .dbr_addr = context.get(Context::dbr_addr)};
}

}  // namespace softhca::connectx
