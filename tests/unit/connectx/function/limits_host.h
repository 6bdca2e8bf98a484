// A driver that tests limits. It sends each command with valid values, except one field that the
// test chooses. Its device has small limits, so that the test reaches them quickly.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "connectx/base/limits.h"
#include "connectx/fake_host.h"
#include "spec/connectx/flow_table.h"
#include "spec/connectx/qp.h"
#include "spec/connectx/raw_queues.h"
#include "spec/connectx/srq.h"

namespace softhca::connectx {

class LimitsHost {
 public:
  using Code = spec::connectx::command_status;
  using Opcode = spec::connectx::command_opcode;

  /// Calls `before_init` between ENABLE_HCA and INIT_HCA.
  explicit LimitsHost(
      const Limits& limits, const std::function<void(FakeHost&)>& before_init = [](FakeHost&) {})
      : LimitsHost(HostOptions{.limits = limits}, before_init) {}
  explicit LimitsHost(
      const HostOptions& options,
      const std::function<void(FakeHost&)>& before_init = [](FakeHost&) {});

  /// Sends `command` with the field or index that `capability` limits set to `value`. If it limits
  /// several fields, sends one command for each. Returns the worst status.
  Code send(std::string_view capability, std::string_view command, std::uint32_t value);
  /// Sends `command` until it fails, at most `most` times. Returns the number of objects, including
  /// those that the host had already made.
  std::uint32_t fill(std::string_view capability, std::string_view command, std::uint32_t most);
  /// The status that ended the last fill().
  Code end() const { return end_; }

 private:
  template <class In, class Out, class Fill>
  Reply run(Opcode opcode, Fill fill, std::size_t pages = 0, std::uint16_t op_mod = 0);

  Code create_qp(unsigned log_sq, unsigned log_rq, unsigned log_rq_stride,
                 spec::connectx::service_type service = spec::connectx::service_type::RC);
  Code attach(std::uint32_t group);
  Code modify_qp(Opcode opcode, std::string_view capability, std::uint32_t value);
  Code create_rmp(unsigned log_size, unsigned log_stride);
  Code create_srq(unsigned log_size, unsigned log_stride);
  Code create_xrc_srq(unsigned log_size, unsigned log_stride);
  Code create_cq(unsigned log_size);
  Code create_eq(unsigned log_size);
  Code create_sq(unsigned log_size, unsigned log_stride, unsigned tises);
  Code create_rq(unsigned log_size, unsigned log_stride);
  Code create_mkey(unsigned log_page_size);
  Code create_key_list(std::uint32_t entries);
  Code create_tir();
  Code create_tis();
  Code create_rqt(std::uint32_t size);
  Code alloc(Opcode opcode);
  Code create_umem();
  Code set_list(spec::connectx::allowed_list_type type, std::uint32_t size);
  Code create_flow_table(unsigned log_size);
  Code count_flow(std::uint32_t counters);
  Code query_flow_counters(std::uint32_t count);
  Code set_flow(std::uint32_t index, std::uint32_t destinations);
  Code roce_address(std::string_view command, std::uint32_t index);
  /// Creates one more object, with every value below its limit.
  Code create(std::string_view capability, std::string_view command);

  FakeHost host_;
  Limits limits_;
  Code end_ = Code::OK;
  std::uint64_t memory_;
  spec::connectx::service_type service_{};  ///< service type of the last QP
  std::uint16_t uid_ = 0;                   ///< a user context, once there is one
  std::uint32_t pd_ = 0, domain_ = 0, xrcd_ = 0, eqn_ = 0, cqn_ = 0, qpn_ = 0, rqn_ = 0, tirn_ = 0;
  std::uint32_t tisn_ = 0, table_ = 0, group_ = 0, flows_ = 0, mcgs_ = 0;
};

}  // namespace softhca::connectx
