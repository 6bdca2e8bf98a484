// Chapters groups and handles (and a case of long_runs): address handles, multicast, orders of
// destruction, invalid handles, and the device descriptor.
#include <arpa/inet.h>
#include <fcntl.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>

#include "world.h"

namespace oracle {
namespace {

void try_ah(World& world, ibv_ah_attr attr, const std::string& name) {
  auto* const ah = made(name, [&] { return ibv_create_ah(world.pd, &attr); });
  if (ah != nullptr) ibv_destroy_ah(ah);
}

template <class T>
void ah_values(World& world, const char* name, const std::vector<int>& values, T set) {
  for (const int value : values) {
    ibv_ah_attr attr{};
    attr.is_global = 1;
    attr.port_num = 1;
    attr.grh.dgid = world.gid;
    attr.grh.sgid_index = kGidIndex;
    attr.grh.hop_limit = 64;
    set(attr, value);
    try_ah(world, attr, text("%s %d", name, value));
  }
}

ibv_gid gid_of(const char* words) {
  ibv_gid gid{};
  need(inet_pton(AF_INET6, words, gid.raw) == 1, words);
  return gid;
}

/// A UD QP in INIT or later, so that it may be attached.
ibv_qp* datagram_qp(World& world, ibv_qp_state state = IBV_QPS_RTS) {
  auto* const qp = create(world, Kind::kUd);
  need(qp != nullptr, "QP");
  need(bring(world, qp, Kind::kUd, state) == 0, "QP's state");
  return qp;
}

/// One datagram of each length, with its GRH and all fields of the completion.
void datagrams(World& world) {
  auto* const one = datagram_qp(world);
  auto* const other = datagram_qp(world);
  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.port_num = 1;
  attr.grh.dgid = world.gid;
  attr.grh.sgid_index = kGidIndex;
  attr.grh.hop_limit = 64;
  auto* const ah = made("AH", [&] { return ibv_create_ah(world.pd, &attr); });
  need(ah != nullptr, "AH");
  for (const unsigned length : {0u, 1u, 64u, 1000u, 1024u, 1025u, 2048u, 4096u, 4097u}) {
    for (const bool immediate : {false, true}) {
      const auto name = text("%u bytes%s", length, immediate ? ", immediate" : "");
      post_receive(other, world.bytes + 65536, 40 + 8192, world.mr->lkey);
      ibv_sge piece{reinterpret_cast<std::uintptr_t>(world.bytes), length, world.mr->lkey};
      ibv_send_wr wr{}, *bad = nullptr;
      wr.wr_id = 1;
      wr.sg_list = &piece;
      wr.num_sge = 1;
      wr.opcode = immediate ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
      wr.send_flags = IBV_SEND_SIGNALED;
      wr.imm_data = htobe32(7);
      wr.wr.ud = {ah, other->qp_num, kQKey};
      did(name + ", post", [&] { return ibv_post_send(one, &wr, &bad); });
      for (int i = 0; i != 2; ++i) {
        const auto wc = completion(world.cq, 2);
        if (wc.status == static_cast<ibv_wc_status>(-1)) {
          line(name, "nothing more");
          continue;
        }
        line(name + (wc.qp_num == one->qp_num ? ", sender" : ", receiver"),
             describe(wc, one, other));
        if (wc.qp_num == one->qp_num && wc.status != IBV_WC_SUCCESS) stop("the sender is in error");
      }
    }
  }
}

/// Destroys an object while another uses it, then in the right order.
void orders(World& world) {
  auto* const context = world.context;
  auto* const pd = ibv_alloc_pd(context);
  auto* const mr = ibv_reg_mr(pd, world.bytes, 4096, kAllAccess);
  did("PD with an MR", [&] { return ibv_dealloc_pd(pd); });
  did("MR", [&] { return ibv_dereg_mr(mr); });
  auto* const mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
  did("PD with a window", [&] { return ibv_dealloc_pd(pd); });
  did("window", [&] { return ibv_dealloc_mw(mw); });
  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.port_num = 1;
  attr.grh.dgid = world.gid;
  attr.grh.sgid_index = kGidIndex;
  auto* const ah = ibv_create_ah(pd, &attr);
  did("PD with an AH", [&] { return ibv_dealloc_pd(pd); });
  did("AH", [&] { return ibv_destroy_ah(ah); });
  auto* const fresh = ibv_alloc_pd(context);
  ibv_srq_init_attr srq_in{};
  srq_in.attr = {16, 1, 0};
  auto* const srq = ibv_create_srq(fresh, &srq_in);
  did("PD with an SRQ", [&] { return ibv_dealloc_pd(fresh); });
  auto* const channel = ibv_create_comp_channel(context);
  auto* const cq = ibv_create_cq(context, 16, nullptr, channel, 0);
  did("channel with a CQ", [&] { return ibv_destroy_comp_channel(channel); });
  ibv_qp_init_attr in{};
  in.send_cq = in.recv_cq = cq;
  in.srq = srq;
  in.cap = {4, 0, 1, 0, 0};
  in.qp_type = IBV_QPT_RC;
  auto* const qp = ibv_create_qp(fresh, &in);
  did("CQ with a QP", [&] { return ibv_destroy_cq(cq); });
  did("SRQ with a QP", [&] { return ibv_destroy_srq(srq); });
  did("PD with a QP", [&] { return ibv_dealloc_pd(fresh); });
  did("QP", [&] { return ibv_destroy_qp(qp); });
  did("SRQ", [&] { return ibv_destroy_srq(srq); });
  did("CQ", [&] { return ibv_destroy_cq(cq); });
  did("channel", [&] { return ibv_destroy_comp_channel(channel); });
  did("PD", [&] { return ibv_dealloc_pd(fresh); });
}

void domains(World& world) {
  ibv_td_init_attr in{};
  auto* const td = made("TD", [&] { return ibv_alloc_td(world.context, &in); });
  ibv_parent_domain_init_attr parent{};
  parent.pd = world.pd;
  parent.td = td;
  auto* const pd =
      made("parent domain", [&] { return ibv_alloc_parent_domain(world.context, &parent); });
  if (td != nullptr) did("TD in use", [&] { return ibv_dealloc_td(td); });
  if (pd != nullptr) did("parent domain", [&] { return ibv_dealloc_pd(pd); });
  if (td != nullptr) did("TD", [&] { return ibv_dealloc_td(td); });
  in.comp_mask = 1;
  made("TD, comp_mask", [&] { return ibv_alloc_td(world.context, &in); });
  auto* const xrcd = world.xrcd();
  ibv_srq_init_attr_ex srq{};
  srq.attr = {16, 1, 0};
  srq.srq_type = IBV_SRQT_XRC;
  srq.comp_mask =
      IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  srq.pd = world.pd;
  srq.cq = world.cq;
  srq.xrcd = xrcd;
  auto* const made_srq = made("XRC SRQ", [&] { return ibv_create_srq_ex(world.context, &srq); });
  did("XRC domain in use", [&] { return ibv_close_xrcd(xrcd); });
  if (made_srq != nullptr) did("XRC SRQ", [&] { return ibv_destroy_srq(made_srq); });
  did("XRC domain", [&] { return ibv_close_xrcd(xrcd); });
  for (const int flags : {0, O_CREAT, O_EXCL, O_CREAT | O_EXCL, O_RDWR, 1 << 30}) {
    for (const int file : {-1, 0, 1000}) {
      ibv_xrcd_init_attr file_in{IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, file, flags};
      made(text("XRC domain of file %d, flags 0x%x", file, flags),
           [&] { return ibv_open_xrcd(world.context, &file_in); });
    }
  }
}

/// Handles of no object, or of an object of another kind.
void wrong_handles(World& world) {
  const auto with = [&](auto* object, std::uint32_t handle, const std::function<void()>& use) {
    const auto own = object->handle;
    object->handle = handle;
    use();
    object->handle = own;
  };
  auto* const qp = create(world, Kind::kRc);
  auto* const srq = world.srq();
  const std::uint32_t others[] = {0x7fffffff, 0xffffffff, world.pd->handle, world.mr->handle,
                                  world.cq->handle};
  for (const auto handle : others) {
    const bool none = handle >= 0x7fffffff;
    const auto of = none ? text("none 0x%x", handle)
                         : std::string(handle == world.pd->handle   ? "a PD"
                                       : handle == world.mr->handle ? "an MR"
                                                                    : "a CQ");
    if (of != "a PD")
      with(world.pd, handle, [&] {
        made(of + " as PD: MR", [&] { return ibv_reg_mr(world.pd, world.bytes, 4096, 0); });
        made(of + " as PD: window", [&] { return ibv_alloc_mw(world.pd, IBV_MW_TYPE_1); });
      });
    if (of != "a CQ")
      with(world.cq, handle,
           [&] { did(of + " as CQ: resize", [&] { return ibv_resize_cq(world.cq, 300); }); });
    with(qp, handle, [&] {
      auto all = attributes(world, qp, IBV_QPS_INIT);
      ibv_qp_init_attr in{};
      did(of + " as QP: modify", [&] { return ibv_modify_qp(qp, &all, IBV_QP_STATE); });
      did(of + " as QP: query", [&] { return ibv_query_qp(qp, &all, 0, &in); });
      did(of + " as QP: attach", [&] { return ibv_attach_mcast(qp, &world.gid, 0); });
    });
    with(srq, handle, [&] {
      ibv_srq_attr attr{};
      did(of + " as SRQ: query", [&] { return ibv_query_srq(srq, &attr); });
      did(of + " as SRQ: modify", [&] { return ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT); });
    });
  }
}

/// System calls on the descriptor that are no libibverbs commands.
void descriptor(World& world) {
  const int file = world.context->cmd_fd;
  char bytes[64]{};
  int left = 0;
  moved("read", [&] { return ::read(file, bytes, 8); });
  moved("write nothing", [&] { return ::write(file, bytes, 0); });
  moved("write a command", [&] { return ::write(file, bytes, 64); });
  moved("seek", [&] { return ::lseek(file, 8, SEEK_SET); });
  did("FIONREAD", [&] { return ::ioctl(file, FIONREAD, &left); });
  did("truncate", [&] { return ::ftruncate(file, 4096); });
  did("sync", [&] { return ::fsync(file); });
  for (const long page : {0L, 1L, 2L, 500L, 0x7fffffL}) {
    errno = 0;
    void* const at = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, file, page * 4096);
    line(text("mmap page %ld", page), at != MAP_FAILED ? "ok" : error_name(errno));
    errno = 0;
    void* const private_at = ::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE, file, page * 4096);
    line(text("private mmap page %ld", page), private_at != MAP_FAILED ? "ok" : error_name(errno));
  }
  for (const unsigned long request : {0ul, 1ul, 0x5401ul, RDMA_VERBS_IOCTL}) {
    did(text("ioctl 0x%lx of null", request), [&] { return ::ioctl(file, request, nullptr); });
  }
}

void raw_ioctls(World& world) {
  alignas(8) std::array<char, 65536> bytes{};
  auto& header = *reinterpret_cast<ib_uverbs_ioctl_hdr*>(bytes.data());
  const int file = world.context->cmd_fd;
  const auto fresh = [&] {
    bytes.fill(0);
    header.length = sizeof header;
    header.object_id = UVERBS_OBJECT_DEVICE;
    header.driver_id = RDMA_DRIVER_MLX5;
  };
  const auto trial = [&](const std::string& name) {
    did(name, [&] { return ::ioctl(file, RDMA_VERBS_IOCTL, &header); });
  };
  for (const int object : {0, 1, 2, 5, 100, 0x1000, 0x1fff, 0xffff}) {
    for (const int method : {0, 1, 2, 30, 0x1000, 0xffff}) {
      fresh();
      header.object_id = static_cast<std::uint16_t>(object);
      header.method_id = static_cast<std::uint16_t>(method);
      trial(text("object 0x%x, method 0x%x", object, method));
    }
  }
  for (const int length : {0, 8, 23, 24, 25, 40, 56, 4096, 65535}) {
    fresh();
    header.length = static_cast<std::uint16_t>(length);
    header.num_attrs = 1;
    trial(text("length %d", length));
  }
  for (const int driver : {0, 1, 2, 77}) {
    fresh();
    header.driver_id = static_cast<std::uint32_t>(driver);
    trial(text("driver %d", driver));
  }
  fresh();
  header.reserved1 = 1;
  trial("reserved1");
  fresh();
  header.reserved2 = 1;
  trial("reserved2");
}

void multicast(World& world) {
  const char* const groups[] = {
      "ff0e::1", "ff02::1", "ff12:401b:ffff::1", "ff0e::ffff:239.1.1.1", "::ffff:239.1.1.1",
      "fe80::1", "::",      "::ffff:10.1.1.1"};
  auto* const qp = datagram_qp(world, IBV_QPS_INIT);
  for (const auto* const group : groups) {
    const auto gid = gid_of(group);
    for (const int lid : {0, 0xc000}) {
      did(text("attach %s, lid %d", group, lid), [&] { return ibv_attach_mcast(qp, &gid, lid); });
      did(text("detach %s, lid %d", group, lid), [&] { return ibv_detach_mcast(qp, &gid, lid); });
      did(text("detach %s, lid %d", group, lid), [&] { return ibv_detach_mcast(qp, &gid, lid); });
    }
  }
  const auto gid = gid_of("ff0e::5");
  did("attach", [&] { return ibv_attach_mcast(qp, &gid, 0); });
  did("attach again", [&] { return ibv_attach_mcast(qp, &gid, 0); });
  did("destroy while attached", [&] { return ibv_destroy_qp(qp); });
  for (const auto kind : {Kind::kRc, Kind::kUc, Kind::kXrcSend, Kind::kRaw}) {
    auto* const other = create(world, kind);
    did(text("attach a QP of %s", kind_name(kind)),
        [&] { return ibv_attach_mcast(other, &gid, 0); });
  }
}

}  // namespace

ORACLE_CASE(groups, ah) {
  World world;
  ah_values(world, "port", {0, 1, 2, 255}, [](auto& ah, int value) { ah.port_num = value; });
  ah_values(world, "global", {0, 1, 2}, [](auto& ah, int value) { ah.is_global = value; });
  ah_values(world, "sgid_index", {0, 1, 2, 3, 4, 100, 255},
            [](auto& ah, int value) { ah.grh.sgid_index = value; });
  ah_values(world, "static_rate", {0, 1, 2, 3, 5, 10, 18, 19, 20, 30, 100, 200, 255},
            [](auto& ah, int value) { ah.static_rate = value; });
  ah_values(world, "sl", {0, 7, 8, 15, 16, 255}, [](auto& ah, int value) { ah.sl = value; });
  ah_values(world, "hop_limit", {0, 1, 255}, [](auto& ah, int value) { ah.grh.hop_limit = value; });
  ah_values(world, "traffic_class", {0, 1, 255},
            [](auto& ah, int value) { ah.grh.traffic_class = value; });
  ah_values(world, "flow_label", {0, 1, 0xfffff, 0x100000},
            [](auto& ah, int value) { ah.grh.flow_label = value; });
  ah_values(world, "dlid", {0, 1, 0xc000, 0xffff}, [](auto& ah, int value) { ah.dlid = value; });
  for (const auto* const to :
       {"::", "::1", "ff0e::1", "::ffff:239.1.1.1", "::ffff:0.0.0.0", "::ffff:127.0.0.1",
        "::ffff:255.255.255.255", "::ffff:198.19.1.1", "::ffff:198.19.2.1"}) {
    for (const int index : {1, 3}) {
      ibv_ah_attr attr{};
      attr.is_global = 1;
      attr.port_num = 1;
      attr.grh.dgid = gid_of(to);
      attr.grh.sgid_index = static_cast<std::uint8_t>(index);
      try_ah(world, attr, text("to %s from index %d", to, index));
    }
  }
}
ORACLE_CASE(groups, datagrams) {
  World world;
  datagrams(world);
}
ORACLE_CASE(groups, multicast) {
  World world;
  multicast(world);
}
ORACLE_CASE(long_runs, members_of_a_group, 300) {
  World world;
  const auto gid = gid_of("ff0e::9");
  int last = 0, count = 0;
  for (; count != 300 && last == 0; ++count)
    last = ibv_attach_mcast(datagram_qp(world, IBV_QPS_RESET), &gid, 0);
  number("attached", count);
  line("then", outcome(last, errno));
}
ORACLE_CASE(handles, orders) {
  World world;
  orders(world);
}
ORACLE_CASE(handles, domains) {
  World world;
  domains(world);
}
ORACLE_CASE(handles, wrong) {
  World world;
  wrong_handles(world);
}
ORACLE_CASE(handles, descriptor) {
  World world;
  descriptor(world);
}
ORACLE_CASE(handles, ioctls) {
  World world;
  raw_ioctls(world);
}
ORACLE_CASE(handles, close_in_use) {
  World world;
  create(world, Kind::kRc);
  did("close", [&] { return ibv_close_device(world.context); });
}
ORACLE_CASE(handles, child) {
  World world;
  if (::fork() == 0) {
    made("PD", [&] { return ibv_alloc_pd(world.context); });
    ibv_port_attr port{};
    did("query port", [&] { return ibv_query_port(world.context, 1, &port); });
    auto* const own = ibv_open_device(world.context->device);
    line("own device", own != nullptr ? "ok" : error_name(errno));
    ::_exit(0);
  }
  ::wait(nullptr);
  made("parent's PD", [&] { return ibv_alloc_pd(world.context); });
}

}  // namespace oracle
