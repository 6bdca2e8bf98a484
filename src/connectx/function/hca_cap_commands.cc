// QUERY_HCA_CAP, SET_HCA_CAP, QUERY_ADAPTER (PRM 12.3.3 to 12.3.5).

#include <algorithm>
#include <string_view>

#include "connectx/command/commands.h"
#include "connectx/device.h"
#include "connectx/ethernet/ethernet.h"
#include "connectx/function/capabilities.h"
#include "connectx/qp/rdma.h"
#include "spec/connectx/hca.h"

namespace softhca::connectx {

namespace {

Capabilities::Type group_of(std::uint16_t op_mod) {
  return static_cast<Capabilities::Type>(op_mod >> 1);
}

}  // namespace

CommandResult query_hca_cap(Device& device, const Command& command) {
  using In = spec::connectx::query_hca_cap_in;
  using Out = spec::connectx::query_hca_cap_out;
  using Mode = spec::connectx::hca_cap_mode;
  constexpr std::string_view kSection = "PRM 12.3.3";
  const auto in = command.input<In>();
  if (in.get(In::other_function) != 0 || in.get(In::function_id) != 0) {
    return refuse(Status::BAD_PARAM, kSection, "the device has function 0 only");
  }
  const auto mode = static_cast<Mode>(command.op_mod & 1);
  const auto group = group_of(command.op_mod);
  const auto image = command.op_mod > 0x1FF  ? std::span<const std::byte>()
                     : mode == Mode::MAXIMUM ? device.capabilities().maximum(group)
                                             : device.capabilities().current(group);
  if (image.empty()) return refuse(Status::BAD_OP, kSection, "no such group of capabilities");
  std::ranges::copy(image, command.output<Out>().sub(Out::capability).begin());
  return {};
}

CommandResult set_hca_cap(Device& device, const Command& command) {
  using In = spec::connectx::set_hca_cap_in;
  constexpr std::string_view kSection = "PRM 12.3.4";
  const auto in = command.input<In>();
  if (in.get(In::other_function) != 0 || in.get(In::function_id) != 0) {
    return refuse(Status::BAD_PARAM, kSection, "the device has function 0 only");
  }
  if (command.op_mod > 0x1FF || command.op_mod % 2 != 0) {
    return refuse(Status::BAD_OP, kSection, "no such group of capabilities");
  }
  auto result = device.capabilities().set(group_of(command.op_mod), in.get(In::capability));
  // There are no objects yet: INIT_HCA comes later.
  device.rdma().set_max_qps(Limits::count(device.limits().log_max_qp));
  device.ethernet().send_queues().set_max(Limits::count(device.limits().log_max_sq));
  return result;
}

CommandResult query_adapter(Device&, const Command& command) {
  using Out = spec::connectx::query_adapter_out;
  using Block = spec::connectx::query_adapter_param_block;
  constexpr std::uint32_t kMellanox = 0x0002C9;
  // The board's name. Not one of the vendor's, so that no flashing tool takes this for its board.
  constexpr std::string_view kPsid = "SHC_0000000001";
  const auto block = command.output<Out>().sub(Out::query_adapter_struct);
  block.set(Block::ieee_vendor_id, kMellanox);
  block.set(Block::vsd_vendor_id, 0x15B3);
  std::ranges::copy(std::as_bytes(std::span(kPsid)), block.sub(Block::vsd_contd_psid).begin());
  return {};
}

}  // namespace softhca::connectx
