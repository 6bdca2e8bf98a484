// DCTs, which programs create as QPs of the driver's type. The device has a DCT, and the DCT a
// number, only from RTR on (mlx5 driver interface 7.10).
#pragma once

#include <cstdint>

#include "uverbs/queue_pair.h"

namespace softhca::uverbs {

struct DynamicTarget final : QueuePair {
  using QueuePair::QueuePair;
  ~DynamicTarget() override { destroy(); }
  Errno create(const QpCreation& creation) override;
  Errno query(std::uint32_t mask, ib_uverbs_query_qp_resp& out) override;
  void fail() override;
  void put_dctn(mlx5_ib_modify_qp_resp& out) const override;
  bool has_name(const DevxName& name) const override;

 protected:
  std::uint32_t invalid_flags() const override { return 0; }
  Errno apply(QpChange& change) override;

 private:
  /// Runs CREATE_DCT. False: the device refuses.
  bool make(const QpAttributes& path);
  /// Drains and destroys the DCT, if the device has it.
  void destroy();

  bool exists_ = false;
  // The parts of CREATE_QP and of the step to INIT that the device gets at RTR.
  mlx5_ib_create_qp request_{};
  std::uint16_t pkey_index_ = 0;
};

}  // namespace softhca::uverbs
