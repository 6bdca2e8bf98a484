#include "rdma/types.h"

namespace softhca::rdma {

std::string_view to_string(WorkStatus status) {
  constexpr std::string_view kNames[] = {
      "success",
      "local length error",
      "local QP operation error",
      "local protection error",
      "flushed",
      "memory window bind error",
      "bad response",
      "local access error",
      "remote invalid request",
      "remote access error",
      "remote operation error",
      "transport retries exceeded",
      "RNR retries exceeded",
  };
  return kNames[static_cast<std::size_t>(status)];
}

}  // namespace softhca::rdma
