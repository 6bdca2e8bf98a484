// The verbs' queue pair of any service: maps MODIFY QP to the device's commands, and posts work
// requests of all services.
#pragma once

#include <memory>
#include <span>

#include "driver/connectx/queue_pair_base.h"
#include "driver/verbs/backend.h"

namespace softhca::driver::connectx {

class VerbsQueuePair final : public QueuePairBase, public verbs::QpBackend {
 public:
  static util::Result<std::unique_ptr<VerbsQueuePair>> create(ProtectionDomain& pd,
                                                              spec::service_type service,
                                                              const Options& options);
  ~VerbsQueuePair() override = default;

  std::uint32_t number() const override { return qpn(); }
  util::Result<void> modify(verbs::QpState from, verbs::QpState to,
                            const verbs::QpAttributes& attributes) override;
  util::Result<verbs::QpState> query_state() override;
  std::size_t post_send(std::span<const SendRequest> requests, PostStatus& status) override;
  std::size_t post_receive(std::span<const ReceiveRequest> requests, PostStatus& status) override;
  util::Result<void> attach(const Gid& group) override;
  util::Result<void> detach(const Gid& group) override;
  util::Result<void> destroy() override { return QueuePairBase::destroy(); }

 private:
  VerbsQueuePair(ProtectionDomain& pd, spec::service_type service, const Options& options);
  bool is_datagram() const { return service() == spec::service_type::UD; }
  util::Result<void> change(spec::command_opcode command, const verbs::QpAttributes& attributes);
};

}  // namespace softhca::driver::connectx
