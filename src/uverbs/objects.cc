#include "uverbs/objects.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "spec/connectx/cq.h"
#include "spec/connectx/mkey.h"
#include "spec/connectx/mkey_number.h"
#include "spec/connectx/raw_queues.h"
#include "spec/connectx/resources.h"
#include "spec/connectx/srq.h"
#include "uverbs/abi.h"
#include "uverbs/command_status.h"
#include "uverbs/device_command.h"

namespace softhca::uverbs {

using spec::command_opcode;
using spec::event_type;

namespace {

/// Values of ib_event_type (kernel interface 6).
enum : std::uint32_t { kCqError = 0, kSrqError = 14, kSrqLimit = 15, kWqFatal = 19 };

template <class Record>
void write_event(EventFile& file, const Record& record) {
  file.pipe.write(std::as_bytes(std::span(&record, 1)));
}

}  // namespace

void AsyncEvents::report(std::uint32_t type) {
  if (file == nullptr) return;
  ++reported_;
  write_event(
      *file, ib_uverbs_async_event_desc{.element = user_handle, .event_type = type, .reserved = 0});
}

std::uint32_t AsyncEvents::take_back() {
  if (file == nullptr) return 0;
  return reported_ - static_cast<std::uint32_t>(file->pipe.take_back(user_handle));
}

void Objects::clear() {
  std::vector<std::uint32_t> handles;
  for (bool any = true; any && !objects_.empty();) {
    any = false;
    handles.clear();
    for (const auto& [handle, object] : objects_) handles.push_back(handle);
    std::ranges::sort(handles, std::greater());
    for (const auto handle : handles) {
      auto& object = *objects_.at(handle);
      if (object.users != 0 || object.end() != 0) continue;
      remove(handle);
      any = true;
    }
  }
  by_kind_ = {};
  // The device has refused to destroy the rest. They go in the same order.
  for (const auto handle : handles) objects_.erase(handle);
}

Errno ProtectionDomain::end() {
  if (!exists) return 0;
  Command<spec::dealloc_pd_in> in(command_opcode::DEALLOC_PD);
  in.set(spec::dealloc_pd_in::pd, pdn);
  const auto wrong = execute_own(device, in.all());
  if (wrong == 0) exists = false;
  return wrong;
}

MemoryRegion::~MemoryRegion() { revoke(); }

bool MemoryRegion::is_on_demand() const { return (access & kOnDemand) != 0; }

bool MemoryRegion::is_implicit() const {
  return is_on_demand() && memory.size == Device::kProgramMemory;
}

void MemoryRegion::revoke() {
  if (key == 0) return;
  Command<spec::destroy_mkey_in> in(command_opcode::DESTROY_MKEY);
  in.set(spec::destroy_mkey_in::mkey_index, spec::mkey_index_of(key));
  report(device.commands().run(in));
  key = 0;
}

MemoryWindow::~MemoryWindow() {
  if (index == 0) return;
  Command<spec::destroy_mkey_in> in(command_opcode::DESTROY_MKEY);
  in.set(spec::destroy_mkey_in::mkey_index, index);
  report(device.commands().run(in));
}

DoorbellPage::~DoorbellPage() {
  Command<spec::dealloc_uar_in> in(command_opcode::DEALLOC_UAR);
  in.set(spec::dealloc_uar_in::uar, page);
  report(device.commands().run(in));
}

Errno CompletionQueue::end() {
  if (!exists) return 0;
  Command<spec::destroy_cq_in> in(command_opcode::DESTROY_CQ);
  in.set(spec::destroy_cq_in::cqn, cqn);
  if (const auto wrong = execute_own(device, in.all()); wrong != 0) return wrong;
  forget();
  exists = false;
  return 0;
}

void CompletionQueue::forget() {
  device.records().remove_completion_queue(cqn);
  device.remove_completion_target(cqn);
}

void CompletionQueue::handle_event(event_type type) {
  if (type == event_type::COMPLETION) {
    if (channel == nullptr) return;
    ++completions_reported;
    return write_event(*channel, ib_uverbs_comp_event_desc{.cq_handle = user_handle});
  }
  async.report(kCqError);
}

Errno ReceiveQueue::end() {
  const auto number = queue.number();
  const auto wrong = queue.end();
  if (wrong == 0) device.remove_queue_target(number);
  return wrong;
}

void ReceiveQueue::handle_event(event_type) { async.report(kWqFatal); }

Errno ReceiveTable::end() {
  if (number == 0) return 0;
  Command<spec::destroy_rqt_in> in(command_opcode::DESTROY_RQT);
  in.set(spec::destroy_rqt_in::rqtn, number);
  const auto wrong = execute_own(device, in.all());
  if (wrong == 0) number = 0;
  return wrong;
}

Errno SharedReceiveQueue::end() {
  if (!exists) return 0;
  Errno wrong = 0;
  if (is_xrc) {
    Command<spec::destroy_xrc_srq_in> in(command_opcode::DESTROY_XRC_SRQ);
    in.set(spec::destroy_xrc_srq_in::xrc_srqn, number);
    wrong = execute_own(device, in.all());
  } else {
    Command<spec::destroy_rmp_in> in(command_opcode::DESTROY_RMP);
    in.set(spec::destroy_rmp_in::rmpn, number);
    wrong = execute_own(device, in.all());
  }
  if (wrong != 0) return wrong;
  device.remove_shared_target(number);
  exists = false;
  return 0;
}

void SharedReceiveQueue::handle_event(event_type type) {
  async.report(type == event_type::SRQ_LIMIT ? kSrqLimit : kSrqError);
}

}  // namespace softhca::uverbs
