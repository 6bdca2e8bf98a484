// RSS QPs, which spread frames over an RWQ indirection table (kernel interface 4.12).
#pragma once

#include <cerrno>
#include <cstdint>
#include <optional>

#include "uverbs/queue_pair.h"

namespace softhca::uverbs {

/// A TIR. Frames go to the queues of its table; it has none itself.
struct ScalingQp final : QueuePair {
  using QueuePair::QueuePair;
  ~ScalingQp() override;
  Errno create(const QpCreation& creation) override;
  Errno query(std::uint32_t, ib_uverbs_query_qp_resp&) override { return ENOSYS; }
  void put_numbers(mlx5_ib_create_qp_resp& out) const override;
  std::optional<std::uint32_t> tirn() const override { return tirn_; }

 protected:
  Errno apply(QpChange&) override { return ENOSYS; }

 private:
  Use table_;
  std::uint32_t tirn_ = 0;  ///< 0: create() has failed
};

}  // namespace softhca::uverbs
