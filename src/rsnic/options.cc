#include "rsnic/options.h"

#include <array>
#include <memory>

#include "rsnic/csr.h"
#include "rsnic/csr_inspect.h"
#include "rsnic/modules.h"

namespace softhca::rsnic {

namespace {

/// Table 2-1-1, row 24: "up to 127 RDMA queue pairs".
constexpr std::uint32_t kQps = 127;

/// Table 4-15: "Allocated from Idx 0x0 - 0x7".
constexpr std::uint32_t kFirstUar = 0;
constexpr std::uint32_t kUars = 8;

/// 7.6: "If there is Receive Queue Count, the next 4k alignment is the Send Queue."
constexpr std::uint32_t kSendQueueAlignment = 4096;

/// Capabilities that the document does not name (docs/rsnic.md): atomics, UC, DC, on-demand paging,
/// data in CQEs, block signatures. Also the UMRs with which drivers would fill a key cache larger
/// than all keys of this card.
constexpr auto kCapabilities = std::to_array<connectx::ModelCapability>({
    {"umr_modify_entity_size_disabled", 1},
    {"uc", 0},
    {"atomic", 0},
    {"dct", 0},
    {"sctr_data_cqe", 0},
    {"dc_req_scat_data_cqe", 0},
    {"sho", 0},
    {"sigerr_domain_and_sig_type", 0},
    {"log_max_bsf_list_size", 0},
    {"pg", 0},
    {"null_mkey", 0},
    {"dump_fill_mkey", 0},
    {"fixed_buffer_size", 0},
    {"umr_extended_translation_offset", 0},
    {"rts2rts_qp_udp_sport", 0},
    {"rts2rts_qp_counters_set_id", 0},
    {"uctx_cap", 0},
    {"event_cap", 0},
    {"cc_query_allowed", 0},
    {"cc_modify_allowed", 0},
    {"wqe_vlan_insert", 1},
    {"wqe_inline_mode", 2},     // 4.1.19: an SQ's own min_wqe_inline_mode counts
    {"multi_pkt_send_wqe", 1},  // 11.5
    {"max_tc", 5},              // table 4-1
    {"roce_version", 4},        // chapter 1: RoCE v2, and no other
});

using Group = spec::connectx::hca_cap_type;
constexpr std::array kWithoutGroups{Group::ATOMIC, Group::ODP, Group::DEVICE_EVENT};

/// The parts of the card that its host cannot see.
class Companion final : public connectx::Companion {
 public:
  void handle_reset() override { csr_.reset(); }
  void handle_command(spec::connectx::command_opcode opcode, std::span<const std::byte> in,
                      std::span<const std::byte> out) override {
    csr_.note(opcode, in, out);
  }
  util::TraceModules* trace_modules() override { return &modules_; }
  void inspect(util::View<spec::connectx::hca_cap> general, util::Inspection& out) const override {
    inspect_csr(csr_, general, out);
    out.part("cmac", [&](util::InspectNode& node) { modules_.inspect(node); });
  }

 private:
  CsrFile csr_;
  Modules modules_;
};

std::unique_ptr<connectx::Companion> make_companion() { return std::make_unique<Companion>(); }

connectx::Model model() {
  return {.product_name = "softhca RSNIC-IP",
          .part_number = "softhca-rsnic",
          .device_id = 0x1015,  // table 5-3-2
          .subsystem_id = 0x0057,
          .first_capability = 0x60,
          .firmware_major = 14,  // table 5-3-1, halves and bytes in its order
          .firmware_minor = 22,
          .firmware_subminor = 4020,
          .capabilities = kCapabilities,
          .without_groups = kWithoutGroups,
          .qps_max = kQps,
          .multi_packet_sends = true,  // 11.5
          .make_companion = make_companion};
}

/// Chapter 9: 256 QPs and CQs, 16 EQs, 512 keys; queue fields as in table 4-1.
connectx::Limits limits() {
  connectx::Limits limits;
  limits.log_max_qp = 7;
  limits.log_max_cq = 8;
  limits.log_max_eq = 4;
  limits.log_max_mkey = 9;
  limits.log_max_klm_list_size = 16;
  limits.log_max_current_uc_list = 4;
  // Not in the document: only what the stock driver creates anyway.
  limits.log_max_uctx = 0;
  limits.log_max_umem = 0;
  return limits;
}

}  // namespace

void set_profile(connectx::DeviceOptions& options, Profile profile) {
  auto& model = options.model;
  const connectx::Model driver;
  const bool document = profile == Profile::kDocument;
  model.first_uar = document ? kFirstUar : driver.first_uar;
  model.uar_count = document ? kUars : driver.uar_count;
  model.send_queue_alignment = document ? kSendQueueAlignment : driver.send_queue_alignment;
}

connectx::DeviceOptions device_options(Profile profile) {
  connectx::DeviceOptions options;
  options.model = model();
  options.limits = limits();
  set_profile(options, profile);
  return options;
}

}  // namespace softhca::rsnic
