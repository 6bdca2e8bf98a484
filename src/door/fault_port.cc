#include "door/fault_port.h"

#include "util/memory_faults.h"

namespace softhca::door {

void FaultPort::set_receiver(fabric::Receiver* receiver) {
  filter_.behind = receiver;
  below_.set_receiver(receiver == nullptr ? nullptr : &filter_);
}

void FaultPort::Filter::handle_frame(const wire::Frame& frame) {
  if (!util::MemoryFaults::pending()) behind->handle_frame(frame);
}

void FaultPort::Filter::handle_loopback(const wire::Frame& frame, std::uint32_t mark) {
  if (!util::MemoryFaults::pending()) behind->handle_loopback(frame, mark);
}

}  // namespace softhca::door
