// DevX objects: a program creates them by its own commands, and may query any of its objects
// (kernel interface 4.13).
#include <rdma/mlx5_user_ioctl_cmds.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "spec/connectx/cq.h"
#include "spec/connectx/raw_queues.h"
#include "uverbs/command_status.h"
#include "uverbs/devx_methods.h"
#include "uverbs/doorbell_pages.h"
#include "uverbs/program_pages.h"
#include "uverbs/queue_pair.h"
#include "uverbs/read_struct.h"
#include "uverbs/reply.h"

namespace softhca::uverbs {

namespace spec = softhca::spec::connectx;
using Op = spec::command_opcode;

namespace {

/// Whether `object` was created by a verb, and `name` is its DevX name.
bool is_of_verbs(const Object& object, const DevxName& name) {
  switch (object.kind) {
    case Kind::kCq:
      return name ==
             DevxName{spec::object_kind::CQ, static_cast<const CompletionQueue&>(object).cqn};
    case Kind::kSrq: {
      const auto& srq = static_cast<const SharedReceiveQueue&>(object);
      return name ==
             DevxName{srq.is_xrc ? spec::object_kind::XRC_SRQ : spec::object_kind::RMP, srq.number};
    }
    case Kind::kQp:
      return static_cast<const QueuePair&>(object).has_name(name);
    case Kind::kReceiveQueue:
      return name == DevxName{spec::object_kind::RQ,
                              static_cast<const ReceiveQueue&>(object).queue.number()};
    case Kind::kReceiveTable:
      return name ==
             DevxName{spec::object_kind::RQT, static_cast<const ReceiveTable&>(object).number};
    default:
      return false;
  }
}

bool is_about(const Object& object, const std::optional<DevxName>& name) {
  if (!name) return false;
  if (object.kind != Kind::kDevxObject) return is_of_verbs(object, *name);
  return static_cast<const DevxObject&>(object).name == *name;
}

/// The state that a MODIFY_SQ command asks for.
spec::sq_state wanted_state(std::span<const std::byte> command) {
  using In = spec::modify_sq_in;
  if (command.size() < In::kSize) return spec::sq_state::ERR;
  const auto context = util::View<In>(command).get(In::sq_context);
  return static_cast<spec::sq_state>(context.get(spec::sq_context::state));
}

/// The kernel's mlx5_create_cq looks up the event queue of a CQ before the device does.
bool has_event_queue(Device& device, std::span<const std::byte> command) {
  using In = spec::create_cq_in;
  if (opcode_of(command) != Op::CREATE_CQ) return true;
  const auto eqn = Read<In>(command).get(In::cq_context_entry).get(spec::cq_context::c_eqn);
  return eqn == device.hca().completion_events(0).eqn();
}

}  // namespace

/// Polls the doorbell record of a queue at its place in a UMEM. A record that lies outside the UMEM
/// is not polled.
void DevxCommands::start_doorbells(DevxObject& object) {
  const auto* memory = file_.objects.find_if<DevxMemory>(
      [&](const DevxMemory& one) { return one.id == object.place.record_memory; });
  if (memory == nullptr || find_page(file_.objects, object.place.uar) == nullptr) return;
  const auto& range = memory->memory;
  const auto offset = object.place.record_offset;
  if (offset > range.size || range.size - offset < kRecordSize) return;
  object.record = range.begin + offset;
  if (object.record % kRecordSize != 0 || !is_there(file_.memory, object.record, kRecordSize)) {
    object.record = 0;
  } else if (object.is_completion_queue()) {
    file_.device.records().add_completion_queue(
        object.name.number, object.place.uar, reinterpret_cast<std::uint32_t*>(object.record + 4));
  }
}

Errno DevxCommands::create(Request& request) {
  std::vector<std::byte> in(request.size(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN));
  std::vector<std::byte> out(request.size(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT));
  auto wrong = request.copy_in(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN, in);
  if (wrong != 0) return wrong;
  if (file_.user.uid() == 0 || !makes_object(in)) return EINVAL;
  if (!has_event_queue(file_.device, in)) return ENOENT;
  set_uid(in, file_.user.uid());
  mark_umems(in);
  wrong = execute(file_.device, in, out);
  if (wrong == EREMOTEIO) (void)request.put_bytes(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT, out);
  if (wrong != 0) return wrong;
  auto object = std::make_unique<DevxObject>(file_.device);
  object->uid = file_.user.uid();
  object->name = made_object(in, out);
  object->ending = end_of(in, object->name);
  object->place = place_of(in);
  auto& made = *object;
  wrong = Reply(request, file_.objects, std::move(object))
              .put_bytes(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT, out)
              .put_handle(MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE)
              .end();
  if (wrong == 0 && made.place.record_memory != 0) start_doorbells(made);
  return wrong;
}

/// Starts or stops polling doorbells as the state of a queue changes (kernel interface 12.2, rule
/// D2).
void DevxCommands::note_change(Object& object, std::span<const std::byte> command) {
  SendDoorbell bell;
  if (object.kind == Kind::kDevxObject) {
    const auto& own = static_cast<DevxObject&>(object);
    bell = {.number = own.name.number, .uar = own.place.uar, .record = own.record};
  } else if (object.kind == Kind::kQp) {
    bell = static_cast<QueuePair&>(object).doorbell();
  }
  if (bell.record == 0) return;
  const auto opcode = opcode_of(command);
  const auto state = opcode == Op::MODIFY_SQ ? wanted_state(command) : spec::sq_state::ERR;
  if (opcode == Op::RTR2RTS_QP || state == spec::sq_state::RDY) {
    file_.device.records().add_send_queue(bell.number, bell.uar, bell.counter());
  } else if (opcode == Op::QP_2RST || state == spec::sq_state::RST) {
    file_.device.records().reset_send_queue(bell.number, bell.counter());
  }
}

Errno DevxCommands::modify(Request& request) {
  std::vector<std::byte> in(request.size(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN));
  std::vector<std::byte> out(request.size(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT));
  auto wrong = request.copy_in(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN, in);
  if (wrong != 0) return wrong;
  auto* object = file_.objects.find_any(request.number(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE));
  if (object == nullptr) return ENOENT;
  if (file_.user.uid() == 0 || !is_about(*object, changed_object(in))) return EINVAL;
  set_uid(in, file_.user.uid());
  mark_umems(in);
  wrong = execute(file_.device, in, out);
  if (wrong != 0 && wrong != EREMOTEIO) return wrong;
  if (wrong == 0) note_change(*object, in);
  const auto copied = request.put_bytes(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT, out);
  return wrong != 0 ? wrong : copied;
}

Errno DevxCommands::query(Request& request) {
  std::vector<std::byte> in(request.size(MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN));
  std::vector<std::byte> out(request.size(MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT));
  auto wrong = request.copy_in(MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN, in);
  if (wrong != 0) return wrong;
  const auto* object = file_.objects.find_any(request.number(MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE));
  if (object == nullptr) return ENOENT;
  if (file_.user.uid() == 0 || !is_about(*object, asked_object(in))) return EINVAL;
  set_uid(in, file_.user.uid());
  wrong = execute(file_.device, in, out);
  if (wrong != 0 && wrong != EREMOTEIO) return wrong;
  const auto copied = request.put_bytes(MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT, out);
  return wrong != 0 ? wrong : copied;
}

/// Executes a query now and queues its answer, behind an mlx5_ib_uapi_devx_async_cmd_hdr, for the
/// program to read later.
Errno DevxCommands::async_query(Request& request) {
  std::vector<std::byte> in(request.size(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_CMD_IN));
  auto wrong = request.copy_in(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_CMD_IN, in);
  if (wrong != 0) return wrong;
  const auto* object =
      file_.objects.find_any(request.number(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_HANDLE));
  if (object == nullptr) return ENOENT;
  const auto number = request.number(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_FD);
  const auto answers = channels_.find_answers(static_cast<int>(number));
  if (answers == nullptr) return EBADF;
  if (file_.user.uid() == 0 || !is_about(*object, asked_object(in))) return EINVAL;
  const auto wr_id = request.get<std::uint64_t>(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_WR_ID);
  const auto size = request.get<std::uint16_t>(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_OUT_LEN);
  if (size < kDevxHeader) return EINVAL;
  std::vector<std::byte> record(sizeof wr_id + size);
  if (!answers->has_room(record.size())) return EAGAIN;
  std::memcpy(record.data(), &wr_id, sizeof wr_id);
  set_uid(in, file_.user.uid());
  wrong = execute(file_.device, in, std::span(record).subspan(sizeof wr_id));
  if (wrong != 0 && wrong != EREMOTEIO) return wrong;
  answers->write(record);
  return 0;
}

Errno DevxCommands::destroy(Request& request) {
  return destroy_object<DevxObject>(file_.objects,
                                    request.number(MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE));
}

}  // namespace softhca::uverbs
