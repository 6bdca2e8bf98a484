#include "uverbs/devx_object.h"

#include "spec/connectx/dct.h"
#include "spec/connectx/resources.h"
#include "uverbs/command_status.h"
#include "uverbs/device_command.h"

namespace softhca::uverbs {

using Op = spec::command_opcode;

Errno DevxMemory::end() {
  if (id == 0) return 0;
  Command<spec::destroy_umem_in> in(Op::DESTROY_UMEM);
  in.set(spec::destroy_umem_in::uid, uid);
  in.set(spec::destroy_umem_in::umem_id, id);
  const auto wrong = execute_own(device, in.all());
  if (wrong == 0) id = 0;
  return wrong;
}

bool DevxObject::is_queue_pair() const { return name.kind == spec::object_kind::QP; }
bool DevxObject::is_send_queue() const { return name.kind == spec::object_kind::SQ; }
bool DevxObject::is_completion_queue() const { return name.kind == spec::object_kind::CQ; }

void DevxObject::stop_doorbells() {
  if (is_queue_pair() || is_send_queue()) device.records().remove_send_queue(name.number);
  if (is_completion_queue()) device.records().remove_completion_queue(name.number);
}

/// A DCT is drained first, as the kernel does.
Errno DevxObject::end() {
  if (ending.empty()) return 0;
  if (name.kind == spec::object_kind::DCT) {
    Command<spec::drain_dct_in> drain(Op::DRAIN_DCT);
    drain.set(spec::drain_dct_in::dctn, name.number);
    (void)execute_own(device, drain.all());
  }
  const auto wrong = execute_own(device, ending);
  if (wrong != 0) return wrong;
  stop_doorbells();
  device.subscriptions().remove_object(name);
  ending.clear();
  return 0;
}

}  // namespace softhca::uverbs
