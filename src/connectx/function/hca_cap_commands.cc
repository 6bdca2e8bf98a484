// QUERY_HCA_CAP, SET_HCA_CAP, QUERY_ADAPTER (PRM 12.3.3 to 12.3.5).

#include <algorithm>
#include <string_view>

#include "connectx/command/commands.h"
#include "connectx/driver_state.h"
#include "connectx/ethernet/ethernet.h"
#include "connectx/function/board.h"
#include "connectx/function/capabilities.h"
#include "connectx/qp/rdma.h"
#include "spec/connectx/hca.h"
#include "util/endian.h"
#include "util/field.h"

namespace softhca::connectx {

namespace {

/// op_mod of both commands: a capability group, and the choice of its maximum or current values.
struct OpMod {
  using Layout = spec::connectx::hca_cap_op_mod;

  explicit OpMod(std::uint16_t op_mod) {
    util::Struct<Layout> bits;
    util::store_be16(bits.bytes().data(), op_mod);
    group = static_cast<Capabilities::Type>(bits.get(Layout::group));
    mode = static_cast<spec::connectx::hca_cap_mode>(bits.get(Layout::mode));
    known = bits.get(Layout::group) <= kGroupMax;
  }

  static constexpr std::uint32_t kGroupMax = 0xFF;
  Capabilities::Type group;
  spec::connectx::hca_cap_mode mode;
  bool known;
};

}  // namespace

CommandResult query_hca_cap(DriverState& driver, const Command& command) {
  using In = spec::connectx::query_hca_cap_in;
  using Out = spec::connectx::query_hca_cap_out;
  using Mode = spec::connectx::hca_cap_mode;
  constexpr std::string_view kSection = "PRM 12.3.3";
  const auto in = command.input<In>();
  if (in.get(In::other_function) != 0 || in.get(In::function_id) != 0) {
    return refuse(Status::BAD_PARAM, kSection, "the device has function 0 only");
  }
  const OpMod asked(command.op_mod);
  if (!asked.known || to_string(asked.group).empty()) {
    return refuse(Status::BAD_OP, kSection, "no such group of capabilities");
  }
  // A group without values reads as zeros, because drivers and processes query some groups without
  // checking the bits that announce them.
  const auto image = asked.mode == Mode::MAXIMUM ? driver.capabilities().maximum(asked.group)
                                                 : driver.capabilities().current(asked.group);
  const auto out = command.out.subspan(Out::capability.kOffset);
  std::ranges::copy(image.first(std::min(image.size(), out.size())), out.begin());
  return {};
}

CommandResult set_hca_cap(DriverState& driver, const Command& command) {
  using In = spec::connectx::set_hca_cap_in;
  using Mode = spec::connectx::hca_cap_mode;
  constexpr std::string_view kSection = "PRM 12.3.4";
  const auto in = command.input<In>();
  if (in.get(In::other_function) != 0 || in.get(In::function_id) != 0) {
    return refuse(Status::BAD_PARAM, kSection, "the device has function 0 only");
  }
  const OpMod asked(command.op_mod);
  if (!asked.known || asked.mode != Mode::MAXIMUM) {
    return refuse(Status::BAD_OP, kSection, "no such group of capabilities");
  }
  // Capabilities that the driver did not send keep their values.
  const auto sent =
      command.in.first(std::min(command.sent, In::kSize)).subspan(In::capability.kOffset);
  auto result = driver.capabilities().set(asked.group, sent);
  // There are no QPs yet, since INIT_HCA comes later.
  driver.rdma().set_max_qps(Limits::count(driver.limits().log_max_qp));
  driver.ethernet().send_queues().set_max(Limits::count(driver.limits().log_max_sq));
  return result;
}

CommandResult query_adapter(DriverState&, const Command& command) {
  using Out = spec::connectx::query_adapter_out;
  using Block = spec::connectx::query_adapter_param_block;
  constexpr std::uint32_t kMellanox = 0x0002C9;
  const auto block = command.output<Out>().sub(Out::query_adapter_struct);
  block.set(Block::ieee_vendor_id, kMellanox);
  block.set(Block::vsd_vendor_id, kVendorId);
  std::ranges::copy(std::as_bytes(std::span(kBoardId)), block.sub(Block::vsd_contd_psid).begin());
  return {};
}

}  // namespace softhca::connectx
