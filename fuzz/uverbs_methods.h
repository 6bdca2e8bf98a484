// Calls on existing objects: methods with the attributes that they take, and modifying commands in
// the form of write().
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>

#include "uverbs_caller.h"

namespace softhca::fuzz {

class UverbsMethods : public UverbsCaller {
 public:
  using UverbsCaller::UverbsCaller;

 protected:
  // --------------------------------------------------------------------

  enum class What : std::uint8_t { kMade, kNewDescriptor, kDescriptor, kObject, kIn, kOut };
  struct Attribute {
    std::uint16_t id;
    What what;
    std::uint16_t value = 0;  ///< bytes, or the kind of object
    bool mandatory = true;
  };
  struct Method {
    std::uint16_t object, method;
    std::span<const Attribute> attributes;
  };

  /// A method without a step of its own, with nearly valid attributes.
  void method_call() {
    using enum What;
    static constexpr Attribute kAsyncEvents[] = {
        {UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, kNewDescriptor}};
    static constexpr Attribute kAllocUar[] = {{MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, kMade},
                                              {MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, kIn, 4},
                                              {MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, kOut, 8},
                                              {MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, kOut, 4},
                                              {MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, kOut, 4}};
    static constexpr Attribute kDestroyUar[] = {
        {MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE, kObject, MLX5_IB_OBJECT_UAR}};
    static constexpr Attribute kQueryContext[] = {
        {UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS, kOut, 4},
        {UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT, kOut, 8},
        {MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX, kOut, 64}};
    static constexpr Attribute kQueryPort[] = {{UVERBS_ATTR_QUERY_PORT_PORT_NUM, kIn, 1},
                                               {UVERBS_ATTR_QUERY_PORT_RESP, kOut, 40}};
    static constexpr Attribute kQueryDevicePort[] = {{MLX5_IB_ATTR_QUERY_PORT_PORT_NUM, kIn, 4},
                                                     {MLX5_IB_ATTR_QUERY_PORT, kOut, 32}};
    static constexpr Attribute kQueryGids[] = {
        {UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, kIn, 8},
        {UVERBS_ATTR_QUERY_GID_TABLE_FLAGS, kIn, 4, false},
        {UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, kOut, 256},
        {UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, kOut, 8}};
    static constexpr Attribute kQueryGid[] = {{UVERBS_ATTR_QUERY_GID_ENTRY_PORT, kIn, 4},
                                              {UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX, kIn, 4},
                                              {UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS, kIn, 4, false},
                                              {UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, kOut, 32}};
    static constexpr Attribute kQueryPd[] = {
        {MLX5_IB_ATTR_QUERY_PD_HANDLE, kObject, UVERBS_OBJECT_PD},
        {MLX5_IB_ATTR_QUERY_PD_RESP_PDN, kOut, 4}};
    static constexpr Attribute kQueryMr[] = {
        {UVERBS_ATTR_QUERY_MR_HANDLE, kObject, UVERBS_OBJECT_MR},
        {UVERBS_ATTR_QUERY_MR_RESP_LKEY, kOut, 4},
        {UVERBS_ATTR_QUERY_MR_RESP_RKEY, kOut, 4},
        {UVERBS_ATTR_QUERY_MR_RESP_LENGTH, kOut, 8},
        {UVERBS_ATTR_QUERY_MR_RESP_IOVA, kOut, 8, false}};
    static constexpr Attribute kAllocCounters[] = {{UVERBS_ATTR_CREATE_COUNTERS_HANDLE, kMade}};
    static constexpr Attribute kFreeCounters[] = {
        {UVERBS_ATTR_DESTROY_COUNTERS_HANDLE, kObject, UVERBS_OBJECT_COUNTERS}};
    static constexpr Attribute kReadCounters[] = {
        {UVERBS_ATTR_READ_COUNTERS_HANDLE, kObject, UVERBS_OBJECT_COUNTERS},
        {UVERBS_ATTR_READ_COUNTERS_BUFF, kOut, 64},
        {UVERBS_ATTR_READ_COUNTERS_FLAGS, kIn, 4}};
    static constexpr Attribute kFreeMatcher[] = {
        {MLX5_IB_ATTR_FLOW_MATCHER_DESTROY_HANDLE, kObject, MLX5_IB_OBJECT_FLOW_MATCHER}};
    static constexpr Attribute kMatchedFlow[] = {
        {MLX5_IB_ATTR_CREATE_FLOW_HANDLE, kMade},
        {MLX5_IB_ATTR_CREATE_FLOW_MATCH_VALUE, kIn, 64},
        {MLX5_IB_ATTR_CREATE_FLOW_MATCHER, kObject, MLX5_IB_OBJECT_FLOW_MATCHER},
        {MLX5_IB_ATTR_CREATE_FLOW_DEST_QP, kObject, UVERBS_OBJECT_QP, false},
        {MLX5_IB_ATTR_CREATE_FLOW_DEST_DEVX, kObject, MLX5_IB_OBJECT_DEVX_OBJ, false},
        {MLX5_IB_ATTR_CREATE_FLOW_TAG, kIn, 4, false},
        {MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX, kObject, MLX5_IB_OBJECT_DEVX_OBJ, false},
        {MLX5_IB_ATTR_CREATE_FLOW_FLAGS, kIn, 4, false}};
    static constexpr Attribute kQueryUar[] = {{MLX5_IB_ATTR_DEVX_QUERY_UAR_USER_IDX, kIn, 4},
                                              {MLX5_IB_ATTR_DEVX_QUERY_UAR_DEV_IDX, kOut, 4}};
    static constexpr Attribute kQueryEqn[] = {{MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC, kIn, 4},
                                              {MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN, kOut, 4}};
    static constexpr Attribute kAnswers[] = {
        {MLX5_IB_ATTR_DEVX_ASYNC_CMD_FD_ALLOC_HANDLE, kNewDescriptor}};
    static constexpr Attribute kEvents[] = {
        {MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE, kNewDescriptor},
        {MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_FLAGS, kIn, 4}};
    static constexpr Attribute kAsyncQuery[] = {
        {MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_HANDLE, kObject, MLX5_IB_OBJECT_DEVX_OBJ},
        {MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_CMD_IN, kIn, 16},
        {MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_FD, kDescriptor},
        {MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_WR_ID, kIn, 8},
        {MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_OUT_LEN, kIn, 2}};
    static constexpr Attribute kCreateWq[] = {
        {UVERBS_ATTR_CREATE_WQ_HANDLE, kMade},
        {UVERBS_ATTR_CREATE_WQ_PD_HANDLE, kObject, UVERBS_OBJECT_PD},
        {UVERBS_ATTR_CREATE_WQ_CQ_HANDLE, kObject, UVERBS_OBJECT_CQ},
        {UVERBS_ATTR_CREATE_WQ_USER_HANDLE, kIn, 8},
        {UVERBS_ATTR_CREATE_WQ_TYPE, kIn, 4},
        {UVERBS_ATTR_CREATE_WQ_MAX_WR, kIn, 4},
        {UVERBS_ATTR_CREATE_WQ_MAX_SGE, kIn, 4},
        {UVERBS_ATTR_CREATE_WQ_FLAGS, kIn, 4, false},
        {UVERBS_ATTR_CREATE_WQ_RESP_MAX_WR, kOut, 4},
        {UVERBS_ATTR_CREATE_WQ_RESP_MAX_SGE, kOut, 4},
        {UVERBS_ATTR_CREATE_WQ_RESP_WQ_NUM, kOut, 4, false}};
    static constexpr Attribute kAdvise[] = {
        {UVERBS_ATTR_ADVISE_MR_PD_HANDLE, kObject, UVERBS_OBJECT_PD},
        {UVERBS_ATTR_ADVISE_MR_ADVICE, kIn, 4},
        {UVERBS_ATTR_ADVISE_MR_FLAGS, kIn, 4, false},
        {UVERBS_ATTR_ADVISE_MR_SGE_LIST, kIn, 32}};
    static constexpr Method kMethods[] = {
        {UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC, kAsyncEvents},
        {MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC, kAllocUar},
        {MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_DESTROY, kDestroyUar},
        {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT, kQueryContext},
        {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT, kQueryPort},
        {UVERBS_OBJECT_DEVICE, MLX5_IB_METHOD_QUERY_PORT, kQueryDevicePort},
        {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_TABLE, kQueryGids},
        {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_ENTRY, kQueryGid},
        {UVERBS_OBJECT_PD, MLX5_IB_METHOD_PD_QUERY, kQueryPd},
        {UVERBS_OBJECT_MR, UVERBS_METHOD_QUERY_MR, kQueryMr},
        {UVERBS_OBJECT_COUNTERS, UVERBS_METHOD_COUNTERS_CREATE, kAllocCounters},
        {UVERBS_OBJECT_COUNTERS, UVERBS_METHOD_COUNTERS_DESTROY, kFreeCounters},
        {UVERBS_OBJECT_COUNTERS, UVERBS_METHOD_COUNTERS_READ, kReadCounters},
        {MLX5_IB_OBJECT_FLOW_MATCHER, MLX5_IB_METHOD_FLOW_MATCHER_DESTROY, kFreeMatcher},
        {UVERBS_OBJECT_FLOW, MLX5_IB_METHOD_CREATE_FLOW, kMatchedFlow},
        {MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_QUERY_UAR, kQueryUar},
        {MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_QUERY_EQN, kQueryEqn},
        {MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD, MLX5_IB_METHOD_DEVX_ASYNC_CMD_FD_ALLOC, kAnswers},
        {MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD, MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC, kEvents},
        {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_ASYNC_QUERY, kAsyncQuery},
        {UVERBS_OBJECT_WQ, UVERBS_METHOD_WQ_CREATE, kCreateWq},
        {UVERBS_OBJECT_MR, UVERBS_METHOD_ADVISE_MR, kAdvise}};
    give(kMethods[script_.byte() % std::size(kMethods)]);
  }

  /// Bit n of the script's word says whether optional attribute n is present.
  void give(const Method& method) {
    Call call(method.object, method.method);
    std::array<std::byte, 256> out{};
    const auto there = script_.word();
    std::size_t made = 0, descriptor_at = 0, count = 0;
    bool makes = false, makes_descriptor = false;
    for (std::size_t i = 0; i != method.attributes.size(); ++i) {
      const auto& one = method.attributes[i];
      if (!one.mandatory && (there >> i & 1) == 0) continue;
      switch (one.what) {
        case What::kMade:
          call.number(one.id, 0);
          made = count;
          makes = true;
          break;
        case What::kNewDescriptor:
          if (channels_.size() >= kChannelsMax) return;
          call.number(one.id, 0);
          descriptor_at = count;
          makes_descriptor = true;
          break;
        case What::kDescriptor:
          call.number(one.id, descriptor());
          break;
        case What::kObject:
          call.number(one.id, handle(one.value));
          break;
        case What::kIn:
          give_bytes(call, one.id, one.value);
          break;
        case What::kOut:
          call.add(one.id, one.value, reinterpret_cast<std::uint64_t>(out.data()));
          break;
      }
      ++count;
    }
    mlx5_ib_create_wq own{};
    if (method.object == UVERBS_OBJECT_WQ) {
      own.buf_addr = address();
      own.db_addr = address();
      own.rq_wqe_count = power();
      own.rq_wqe_shift = script_.byte() % 10u;
      call.in(UVERBS_ATTR_UHW_IN, own);
    }
    const auto wrong = call.on(program_.context());
    served(wrong);
    if (wrong != 0) return;
    if (makes) note_made(method.object, call.made(made));
    if (makes_descriptor) channels_.push_back(static_cast<int>(call.made(descriptor_at)));
  }
  /// A few bytes of the script, then zeros. Up to 8 bytes stand in the attribute itself.
  void give_bytes(Call& call, std::uint16_t id, std::size_t size) {
    std::array<std::byte, 256> bytes{};
    const auto some = script_.take(script_.byte() % (size + 1));
    std::ranges::copy(some, bytes.begin());
    if (size <= 8) {
      std::uint64_t value;
      std::memcpy(&value, bytes.data(), sizeof value);
      call.add(id, static_cast<std::uint16_t>(size), value);
    } else {
      call.in(id, bytes);
    }
  }

  /// A matcher in the device's format. Its first attribute holds the priority.
  void matcher() {
    Call call(MLX5_IB_OBJECT_FLOW_MATCHER, MLX5_IB_METHOD_FLOW_MATCHER_CREATE);
    const auto how = script_.byte();
    call.number(MLX5_IB_ATTR_FLOW_MATCHER_CREATE_HANDLE, 0);
    std::array<std::byte, 256> mask{};
    const auto some = script_.take(script_.byte() % 65);
    std::ranges::copy(some, mask.begin());
    call.in(MLX5_IB_ATTR_FLOW_MATCHER_MATCH_MASK, mask)
        .in(MLX5_IB_ATTR_FLOW_MATCHER_FLOW_TYPE, std::uint16_t{script_.byte()})
        .in(MLX5_IB_ATTR_FLOW_MATCHER_MATCH_CRITERIA, std::uint8_t(how % 8));
    if ((how & 0x40) != 0) {
      call.in(MLX5_IB_ATTR_FLOW_MATCHER_FLOW_FLAGS, std::uint32_t{script_.byte()});
    }
    if ((how & 0x80) != 0) {
      call.in(MLX5_IB_ATTR_FLOW_MATCHER_FT_TYPE, std::uint8_t(script_.byte() % 4));
    }
    make(call, MLX5_IB_OBJECT_FLOW_MATCHER);
  }

  /// A receive queue table, and perhaps a QP that uses it.
  void receive_table() {
    const auto how = script_.byte();
    if ((how & 1) == 0) {
      std::array<std::uint32_t, 6> in{0, how / 2 % 3u};
      for (auto& queue : std::span(in).subspan(2)) queue = handle(UVERBS_OBJECT_WQ);
      return write(IB_USER_VERBS_EX_CMD_CREATE_RWQ_IND_TBL | kExtended, in);
    }
    mlx5_ib_create_qp_rss own{};
    own.rx_hash_fields_mask = (how & 2) != 0 ? script_.word() : 0;
    own.rx_hash_function = MLX5_RX_HASH_FUNC_TOEPLITZ;
    own.rx_key_len = 40;
    own.flags = (how & 4) != 0 ? script_.byte() : 0;
    mlx5_ib_create_qp_resp answer{};
    ib_uverbs_qp_cap caps{};
    std::uint32_t number = 0;
    Call call(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE);
    call.number(UVERBS_ATTR_CREATE_QP_HANDLE, 0)
        .number(UVERBS_ATTR_CREATE_QP_PD_HANDLE, handle(UVERBS_OBJECT_PD))
        .number(UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE, handle(UVERBS_OBJECT_RWQ_IND_TBL))
        .in(UVERBS_ATTR_CREATE_QP_USER_HANDLE, std::uint64_t{9})
        .in(UVERBS_ATTR_CREATE_QP_CAP, caps)
        .in(UVERBS_ATTR_CREATE_QP_TYPE, std::uint32_t{8})
        .out(UVERBS_ATTR_CREATE_QP_RESP_CAP, caps)
        .out(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, number)
        .in(UVERBS_ATTR_UHW_IN, own)
        .out(UVERBS_ATTR_UHW_OUT, answer);
    make(call, UVERBS_OBJECT_QP);
  }

  /// Modifying commands in the form of write(), with the handles of their objects.
  void change() {
    const auto how = script_.byte();
    std::array<std::uint32_t, 16> in{};
    const auto put = [&](std::size_t at, std::uint64_t value) {
      std::memcpy(reinterpret_cast<std::byte*>(in.data()) + at, &value, sizeof value);
    };
    switch (how % 10) {
      case 0: {  // ib_uverbs_resize_cq
        in[2] = handle(UVERBS_OBJECT_CQ);
        in[3] = power();
        return write(IB_USER_VERBS_CMD_RESIZE_CQ, in);
      }
      case 1:  // ib_uverbs_ex_modify_cq
        in[0] = handle(UVERBS_OBJECT_CQ);
        in[1] = script_.byte() % 4;
        in[2] = script_.dword();
        return write(IB_USER_VERBS_EX_CMD_MODIFY_CQ | kExtended, in);
      case 2:  // ib_uverbs_modify_srq
        in[0] = handle(UVERBS_OBJECT_SRQ);
        in[1] = script_.byte() % 4;
        in[2] = script_.byte();
        in[3] = script_.byte();
        return write(IB_USER_VERBS_CMD_MODIFY_SRQ, in);
      case 3:  // ib_uverbs_query_srq
        in[2] = handle(UVERBS_OBJECT_SRQ);
        return write(IB_USER_VERBS_CMD_QUERY_SRQ, in);
      case 4:  // ib_uverbs_ex_modify_wq
        in[0] = script_.byte() % 4;
        in[1] = handle(UVERBS_OBJECT_WQ);
        in[2] = script_.byte() % 4;
        in[3] = script_.byte() % 4;
        return write(IB_USER_VERBS_EX_CMD_MODIFY_WQ | kExtended, in);
      case 5:  // ib_uverbs_open_xrcd
        in[2] = (how & 0x80) != 0 ? script_.byte() % 16u : ~0u;
        in[3] = 0100;  // O_CREAT
        return write(IB_USER_VERBS_CMD_OPEN_XRCD, in);
      case 6: {  // ib_uverbs_attach_mcast
        const auto group = script_.byte();
        in[0] = 0xff;
        in[3] = group;
        in[4] = handle(UVERBS_OBJECT_QP);
        return write(
            (how & 0x80) != 0 ? IB_USER_VERBS_CMD_DETACH_MCAST : IB_USER_VERBS_CMD_ATTACH_MCAST,
            in);
      }
      case 7: {  // ib_uverbs_rereg_mr
        in[2] = handle(UVERBS_OBJECT_MR);
        in[3] = script_.byte() % 8;
        const auto begin = address();
        put(16, begin);
        put(24, script_.word() * 4u);
        put(32, begin);
        in[10] = handle(UVERBS_OBJECT_PD);
        in[11] = script_.byte();
        return write(IB_USER_VERBS_CMD_REREG_MR, in);
      }
      case 9:  // ib_uverbs_open_qp
        in[4] = handle(UVERBS_OBJECT_XRCD);
        in[5] = (how & 0x80) != 0 ? script_.dword() : last_qpn_;
        in[6] = 10;
        return write(IB_USER_VERBS_CMD_OPEN_QP, in);
      case 8:
        if (channels_.size() >= kChannelsMax) return;
        return write(IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, in);
    }
  }
};

}  // namespace softhca::fuzz
