#include "driver/work.h"

namespace softhca::driver {

std::string_view to_string(PostStatus status) {
  switch (status) {
    case PostStatus::kOk:
      return "ok";
    case PostStatus::kQueueFull:
      return "queue full";
    case PostStatus::kTooManyPieces:
      return "too many pieces";
    case PostStatus::kInlineTooLong:
      return "inline data too long";
    case PostStatus::kBadRequest:
      return "bad request";
    case PostStatus::kWrongState:
      return "queue pair in RESET";
  }
  return "";
}

std::string_view to_string(WorkStatus status) {
  switch (status) {
    case WorkStatus::kSuccess:
      return "success";
    case WorkStatus::kLocalLength:
      return "local length error";
    case WorkStatus::kLocalQpOperation:
      return "local QP operation error";
    case WorkStatus::kLocalProtection:
      return "local protection error";
    case WorkStatus::kFlushed:
      return "flushed";
    case WorkStatus::kMemoryWindowBind:
      return "memory window bind error";
    case WorkStatus::kBadResponse:
      return "bad response";
    case WorkStatus::kLocalAccess:
      return "local access error";
    case WorkStatus::kRemoteInvalidRequest:
      return "remote invalid request";
    case WorkStatus::kRemoteAccess:
      return "remote access error";
    case WorkStatus::kRemoteOperation:
      return "remote operation error";
    case WorkStatus::kTransportRetryExceeded:
      return "transport retry counter exceeded";
    case WorkStatus::kRnrRetryExceeded:
      return "RNR retry counter exceeded";
    case WorkStatus::kRemoteAborted:
      return "remote aborted";
    case WorkStatus::kUnknown:
      return "unknown error";
  }
  return "";
}

std::string_view to_string(CompletionOpcode opcode) {
  switch (opcode) {
    case CompletionOpcode::kSend:
      return "send";
    case CompletionOpcode::kRdmaWrite:
      return "RDMA write";
    case CompletionOpcode::kRdmaRead:
      return "RDMA read";
    case CompletionOpcode::kCompareSwap:
      return "compare and swap";
    case CompletionOpcode::kFetchAdd:
      return "fetch and add";
    case CompletionOpcode::kReceive:
      return "receive";
    case CompletionOpcode::kReceiveRdmaWithImmediate:
      return "receive of RDMA with immediate";
    case CompletionOpcode::kOther:
      return "other";
  }
  return "";
}

}  // namespace softhca::driver
