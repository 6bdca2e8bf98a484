// A machine with one SDXI function: memory, interrupts, registers, and structures written byte by
// byte as the document lays them out. It uses the formats of spec/, but no internals of the device.
#pragma once

#include <sys/mman.h>

#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "sdxi/device.h"
#include "sdxi/format.h"
#include "util/endian.h"

namespace softhca::sdxi::test {

using Descriptor = std::array<std::byte, spec::kDescriptorSize>;

template <class Layout>
util::MutableView<Layout> edit(Descriptor& descriptor) {
  return util::MutableView<Layout>(descriptor);
}

inline util::MutableView<spec::dsc_header> header(Descriptor& d) {
  return util::MutableView<spec::dsc_header>(d);
}
inline util::MutableView<spec::dsc_footer> footer(Descriptor& d) {
  return util::MutableView<spec::dsc_footer>(std::span(d).subspan(56));
}

/// A descriptor without a completion status block, in simple mode.
template <class Subtype>
Descriptor make(spec::dsc_type type, Subtype subtype) {
  Descriptor d{};
  header(d).set(spec::dsc_header::vl, 1);
  header(d).set(spec::dsc_header::csr, 1);
  header(d).set(spec::dsc_header::type, static_cast<std::uint32_t>(type));
  header(d).set(spec::dsc_header::subtype, static_cast<std::uint32_t>(subtype));
  footer(d).set(spec::dsc_footer::np, 1);
  return d;
}

inline Descriptor nop() {
  return make(spec::dsc_type::DMA_BASE_GRP, spec::dma_base_subtype::DSC_DMAB_NOP);
}

inline Descriptor copy(Iova from, Iova to, std::uint64_t size, std::uint16_t akey0 = 0,
                       std::uint16_t akey1 = 0) {
  using dsc = spec::dsc_dmab_copy;
  auto d = make(spec::dsc_type::DMA_BASE_GRP, spec::dma_base_subtype::DSC_DMAB_COPY);
  edit<dsc>(d).set(dsc::size, static_cast<std::uint32_t>(size - 1));
  edit<dsc>(d).set(dsc::akey0, akey0);
  edit<dsc>(d).set(dsc::akey1, akey1);
  edit<dsc>(d).set(dsc::addr0, from);
  edit<dsc>(d).set(dsc::addr1, to);
  return d;
}

inline Descriptor write_immediate(Iova to, std::span<const std::byte> data,
                                  std::uint16_t akey = 0) {
  using dsc = spec::dsc_dmab_wrt_imm;
  auto d = make(spec::dsc_type::DMA_BASE_GRP, spec::dma_base_subtype::DSC_DMAB_WRT_IMM);
  edit<dsc>(d).set(dsc::bsize, static_cast<std::uint32_t>(data.size() - 1));
  edit<dsc>(d).set(dsc::akey0, akey);
  edit<dsc>(d).set(dsc::addr0, to);
  std::copy(data.begin(), data.end(), edit<dsc>(d).sub(dsc::data).begin());
  return d;
}

inline Descriptor repeat_copy(Iova from, Iova to, std::uint32_t units, std::uint32_t copies) {
  using dsc = spec::dsc_dmab_repcopy;
  auto d = make(spec::dsc_type::DMA_BASE_GRP, spec::dma_base_subtype::DSC_DMAB_REPCOPY);
  edit<dsc>(d).set(dsc::nsize, units - 1);
  edit<dsc>(d).set(dsc::num, copies - 1);
  spec::set_address(edit<dsc>(d), dsc::addr0, from);
  spec::set_address(edit<dsc>(d), dsc::addr1, to);
  return d;
}

/// Operand size in bytes: 4 or 8.
inline Descriptor atomic(spec::atomic_subtype subtype, Iova at, unsigned size, std::uint64_t op1,
                         std::uint64_t op2 = 0, std::optional<Iova> back = std::nullopt) {
  using dsc = spec::dsc_atm;
  auto d = make(spec::dsc_type::ATOMIC_GRP, subtype);
  edit<dsc>(d).set(dsc::osz, size / 4 - 1);
  edit<dsc>(d).set(dsc::addr0, at >> 2);
  edit<dsc>(d).set(dsc::op1, op1);
  edit<dsc>(d).set(dsc::op2, op2);
  edit<dsc>(d).set(dsc::nr, back ? 0 : 1);
  if (back) edit<dsc>(d).set(dsc::ret_data_ptr, *back >> 2);
  return d;
}

inline Descriptor interrupt(std::uint16_t akey) {
  auto d = make(spec::dsc_type::INTR_GRP, spec::intr_subtype::DSC_INTR);
  edit<spec::dsc_intr>(d).set(spec::dsc_intr::akey, akey);
  return d;
}

inline Descriptor admin_interrupt(std::uint16_t vector) {
  auto d = make(spec::dsc_type::ADMIN_GRP, spec::admin_subtype::DSC_ADM_INTR);
  edit<spec::dsc_adm_intr>(d).set(spec::dsc_adm_intr::intr_num, vector);
  return d;
}

template <class Layout>
Descriptor admin_range(spec::admin_subtype subtype, std::uint32_t first, std::uint32_t last) {
  auto d = make(spec::dsc_type::ADMIN_GRP, subtype);
  edit<Layout>(d).set(Layout::cxt_start, first);
  edit<Layout>(d).set(Layout::cxt_end, last);
  return d;
}

inline Descriptor start(std::uint32_t first, std::uint32_t last,
                        std::optional<std::uint64_t> doorbell = std::nullopt,
                        spec::admin_subtype kind = spec::admin_subtype::DSC_CXT_START_NM) {
  auto d = admin_range<spec::dsc_cxt_start>(kind, first, last);
  header(d).set(spec::dsc_header::fe, 1);
  if (doorbell) {
    edit<spec::dsc_cxt_start>(d).set(spec::dsc_cxt_start::dv, 1);
    edit<spec::dsc_cxt_start>(d).set(spec::dsc_cxt_start::db_value, *doorbell);
  }
  return d;
}

inline Descriptor stop(std::uint32_t first, std::uint32_t last, bool hard = false) {
  auto d = admin_range<spec::dsc_cxt_stop>(spec::admin_subtype::DSC_CXT_STOP, first, last);
  header(d).set(spec::dsc_header::fe, 1);
  edit<spec::dsc_cxt_stop>(d).set(spec::dsc_cxt_stop::hs, hard);
  return d;
}

inline Descriptor sync(spec::sync_filter filter, std::uint32_t first = 0, std::uint32_t last = 0) {
  auto d = admin_range<spec::dsc_sync>(spec::admin_subtype::DSC_SYNC, first, last);
  edit<spec::dsc_sync>(d).set(spec::dsc_sync::flt, static_cast<std::uint32_t>(filter));
  return d;
}

inline Descriptor update_contexts(std::uint32_t first, std::uint32_t last,
                                  spec::tgt_pcd level = spec::tgt_pcd::UPD_CTL) {
  auto d = admin_range<spec::dsc_cxt_upd>(spec::admin_subtype::DSC_CXT_UPD, first, last);
  edit<spec::dsc_cxt_upd>(d).set(spec::dsc_cxt_upd::tgt_pcd, static_cast<std::uint32_t>(level));
  return d;
}

/// Memory that the function reaches by messages, with a record of each access.
class Trace final : public pcie::RemoteMemory {
 public:
  struct Access {
    bool write;
    Iova at;
    std::size_t size;
  };
  void attach(std::byte* host, Iova base) { host_ = host, base_ = base; }
  bool dma_read(Iova from, std::span<std::byte> out) override {
    if (silent) return false;
    accesses.push_back({false, from, out.size()});
    std::memcpy(out.data(), host_ + (from - base_), out.size());
    if (on_read) on_read(from);
    return true;
  }
  bool dma_write(Iova to, std::span<const std::byte> in) override {
    if (silent ||
        (refuse_writes_at && to <= *refuse_writes_at && *refuse_writes_at < to + in.size())) {
      return false;
    }
    accesses.push_back({true, to, in.size()});
    if (to == lose_writes_at) return true;
    std::memcpy(host_ + (to - base_), in.data(), in.size());
    if (on_write) on_write(to);
    return true;
  }
  /// Index of the first write that touches `at`, from access `from` on; -1 if there is none.
  std::ptrdiff_t write_of(Iova at, std::size_t from = 0) const {
    for (std::size_t i = from; i < accesses.size(); ++i) {
      const auto& a = accesses[i];
      if (a.write && a.at <= at && at < a.at + a.size) return static_cast<std::ptrdiff_t>(i);
    }
    return -1;
  }
  bool touched(Iova at, std::size_t size) const {
    for (const auto& a : accesses) {
      if (a.at < at + size && at < a.at + a.size) return true;
    }
    return false;
  }
  std::vector<Access> accesses;
  std::optional<Iova> refuse_writes_at;
  std::optional<Iova> lose_writes_at;  ///< writes there succeed without effect
  bool silent = false;                 ///< no request is answered
  std::function<void(Iova)> on_write;
  std::function<void(Iova)> on_read;  ///< called after the read

 private:
  std::byte* host_ = nullptr;
  Iova base_ = 0;
};

/// Address spaces behind PASIDs.
class Pasids final : public PasidSpaces {
 public:
  const pcie::DmaSpace* find(Pasid pasid) const override {
    const auto found = spaces.find(pasid);
    return found == spaces.end() ? nullptr : &found->second;
  }
  std::map<Pasid, pcie::DmaSpace> spaces;
};

class Machine : private pcie::InterruptSink {
 public:
  static constexpr Iova kBase = Iova{1} << 32;
  static constexpr std::size_t kMemory = std::size_t{64} << 20;
  static constexpr std::size_t kGuard = 4096;

  /// Addresses of one context's structures.
  struct Context {
    ContextNumber number = 0;
    Iova l1 = 0;
    Iova ctl = 0;
    Iova sts = 0;
    Iova write_index = 0;
    Iova ring = 0;
    Iova akeys = 0;
    std::uint32_t ring_sz = 0;
  };

  enum class Memory { kLocal, kTraced };

  explicit Machine(FunctionGroup& group, const DeviceOptions& options = {}, Machine* pf = nullptr,
                   Memory kind = Memory::kLocal)
      : device(pf == nullptr ? std::make_unique<Device>(options, group)
                             : std::make_unique<Device>(options, group, *pf->device)) {
    // A page on either side faults, so that an overrun is detected.
    guarded_ = static_cast<std::byte*>(::mmap(nullptr, kMemory + 2 * kGuard, PROT_NONE,
                                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    memory_ = guarded_ + kGuard;
    ::mprotect(memory_, kMemory, PROT_READ | PROT_WRITE);
    trace.attach(memory_, kBase);
    if (kind == Memory::kLocal) {
      (void)device->dma().map(kBase, kMemory, memory_, pcie::DmaAccess::kReadWrite);
    } else {
      (void)device->dma().map_remote(kBase, kMemory, trace, pcie::DmaAccess::kReadWrite);
    }
    power_on();
  }
  ~Machine() override {
    device.reset();
    ::munmap(guarded_, kMemory + 2 * kGuard);
  }
  Machine(const Machine&) = delete;

  /// A host's steps after a reset of the function.
  void power_on() {
    const std::uint16_t command = 0x0006, atomic_requests = 1u << 6;
    device->write_config(4, std::as_bytes(std::span(&command, 1)));
    device->write_config(pcie::ConfigSpace::kExpressAt + 0x28,
                         std::as_bytes(std::span(&atomic_requests, 1)));
    device->msix().set_sink(this);
    const std::uint16_t enable = 0x8000;
    device->write_config(pcie::ConfigSpace::kMsixAt + 2, std::as_bytes(std::span(&enable, 1)));
    for (std::uint32_t v = 0; v < device->msix().layout().vectors; ++v) {
      const std::uint32_t unmasked = 0;
      device->write_bar(0, Device::kMsixTable + v * 16 + 12,
                        std::as_bytes(std::span(&unmasked, 1)));
    }
  }

  /// Counts into interrupts().
  pcie::InterruptSink& sink() { return *this; }

  // Registers.
  std::uint64_t read(std::uint64_t offset) const {
    std::array<std::byte, 8> bytes{};
    device->read_bar(0, offset, bytes);
    return util::load_le64(bytes.data());
  }
  void write(std::uint64_t offset, std::uint64_t value) {
    device->write_bar(0, offset, std::as_bytes(std::span(&value, 1)));
  }
  void write32(std::uint64_t offset, std::uint32_t value) {
    device->write_bar(0, offset, std::as_bytes(std::span(&value, 1)));
  }
  std::uint64_t read(spec::mmio_register name) const {
    return read(static_cast<std::uint64_t>(name));
  }
  void write(spec::mmio_register name, std::uint64_t value) {
    write(static_cast<std::uint64_t>(name), value);
  }
  template <class Layout, class Field>
  auto field(spec::mmio_register name, Field f) const {
    util::Struct<Layout> word;
    util::store_le64(word.bytes().data(), read(name));
    return word.get(f);
  }
  template <class Layout, class Field>
  void set_field(spec::mmio_register name, Field f, typename Field::Word value) {
    util::Struct<Layout> word;
    util::store_le64(word.bytes().data(), read(name));
    word.set(f, value);
    write(name, util::load_le64(word.bytes().data()));
  }
  spec::fn_gsv gsv() const {
    return static_cast<spec::fn_gsv>(
        field<spec::mmio_sts0>(spec::mmio_register::MMIO_STS0, spec::mmio_sts0::fn_gsv));
  }
  void request(spec::fn_gsr value) {
    set_field<spec::mmio_ctl0>(spec::mmio_register::MMIO_CTL0, spec::mmio_ctl0::fn_gsr,
                               static_cast<std::uint32_t>(value));
  }
  void doorbell(ContextNumber number, std::uint64_t value) {
    const auto stride = std::uint64_t{1} << (device->options().capabilities.db_stride + 12);
    device->write_bar(2, number * stride, std::as_bytes(std::span(&value, 1)));
  }

  // Memory.
  Iova allocate(std::size_t size, std::size_t alignment = 64) {
    next_ = (next_ + alignment - 1) / alignment * alignment;
    const auto at = next_;
    next_ += size;
    if (next_ > kBase + kMemory) std::abort();
    return at;
  }
  std::byte* host(Iova at) const { return memory_ + (at - kBase); }
  std::span<std::byte> bytes(Iova at, std::size_t size) const { return {host(at), size}; }
  template <class Layout>
  util::MutableView<Layout> at(Iova iova) const {
    return util::MutableView<Layout>(bytes(iova, Layout::kSize));
  }
  std::uint64_t load64(Iova at) const { return util::load_le64(host(at)); }
  void store64(Iova at, std::uint64_t value) { util::store_le64(host(at), value); }
  void fill(Iova at, std::size_t size, unsigned seed) {
    for (std::size_t i = 0; i < size; ++i) {
      host(at)[i] = static_cast<std::byte>((i * 31 + seed * 131 + i / 251) & 0xff);
    }
  }
  bool equal(Iova a, Iova b, std::size_t size) const {
    return std::memcmp(host(a), host(b), size) == 0;
  }

  // Set-up (SDXI 4.1.8).
  void make_tables() {
    l2_ = allocate(4096, 4096);
    std::memset(host(l2_), 0, 4096);
    l1_.clear();
    write(spec::mmio_register::MMIO_CXT_L2, l2_);
    set_field<spec::mmio_ctl2>(
        spec::mmio_register::MMIO_CTL2, spec::mmio_ctl2::opb_000_avl,
        field<spec::mmio_cap1>(spec::mmio_register::MMIO_CAP1, spec::mmio_cap1::opb_000_cap));
  }
  Iova l2_entry(ContextNumber number) const { return l2_ + number / 128 * 8u; }

  /// SDXI 3.4.2.
  void make_error_log(unsigned sz = 0, bool interrupts = true) {
    using reg = spec::mmio_register;
    log_sz_ = std::size_t{4096} << sz;
    log_ = allocate(log_sz_, 4096);
    set_field<spec::mmio_err_cfg>(reg::MMIO_ERR_CFG, spec::mmio_err_cfg::en, 0);
    write(reg::MMIO_ERR_STS, ~std::uint64_t{0});
    write(reg::MMIO_ERR_CTL, interrupts);
    write(reg::MMIO_ERR_WRT, 0);
    write(reg::MMIO_ERR_RD, 0);
    util::Struct<spec::mmio_err_cfg> cfg;
    spec::set_address(cfg, spec::mmio_err_cfg::ptr, log_);
    cfg.set(spec::mmio_err_cfg::sz, sz);
    cfg.set(spec::mmio_err_cfg::en, 1);
    write(reg::MMIO_ERR_CFG, util::load_le64(cfg.bytes().data()));
  }
  Iova record_at(std::uint64_t index) const { return log_ + index * 64 % log_sz_; }
  util::View<spec::errlog_hd_ent> record(std::uint64_t index) const {
    return at<spec::errlog_hd_ent>(record_at(index));
  }
  std::uint64_t records() const { return read(spec::mmio_register::MMIO_ERR_WRT); }

  /// Makes valid structures of a context in state `state`. AKey 0 is local memory, AKey 1 is
  /// interrupt 1.
  Context& make_context(ContextNumber number, std::uint32_t ring_sz = 64,
                        spec::cxtv state = spec::cxtv::CXTV_STOP_SW) {
    auto& c = contexts_[number];
    if (l1_.find(number / 128) == l1_.end()) {
      const auto table = allocate(4096, 4096);
      std::memset(host(table), 0, 4096);
      l1_[number / 128] = table;
      spec::set_address(at<spec::cxt_l2_ent>(l2_entry(number)), spec::cxt_l2_ent::lv01_ptr, table);
      at<spec::cxt_l2_ent>(l2_entry(number)).set(spec::cxt_l2_ent::vl, 1);
    }
    c.number = number;
    c.ring_sz = ring_sz;
    c.l1 = l1_[number / 128] + number % 128 * 32u;
    c.ctl = allocate(64);
    c.sts = allocate(64);
    c.write_index = allocate(64);
    c.ring = allocate(std::size_t{ring_sz} * 64);
    c.akeys = allocate(4096, 4096);
    std::memset(host(c.l1), 0, 32);
    std::memset(host(c.ctl), 0, 64);
    std::memset(host(c.sts), 0, 64);
    std::memset(host(c.write_index), 0, 64);
    std::memset(host(c.ring), 0, std::size_t{ring_sz} * 64);
    std::memset(host(c.akeys), 0, 4096);
    akey(c, 0).set(spec::akey_ent::vl, 1);
    akey(c, 1).set(spec::akey_ent::vl, 1);
    akey(c, 1).set(spec::akey_ent::iv, 1);
    akey(c, 1).set(spec::akey_ent::intr_num, 1);
    at<spec::cxt_sts>(c.sts).set(spec::cxt_sts::state, static_cast<std::uint32_t>(state));

    using ctl = spec::cxt_ctl;
    const auto control = at<ctl>(c.ctl);
    spec::set_address(control, ctl::ds_ring_ptr, c.ring);
    control.set(ctl::ds_ring_sz, ring_sz);
    spec::set_address(control, ctl::cxt_sts_ptr, c.sts);
    spec::set_address(control, ctl::write_index_ptr, c.write_index);
    control.set(ctl::vl, 1);
    using ent = spec::cxt_l1_ent;
    const auto entry = at<ent>(c.l1);
    spec::set_address(entry, ent::cxt_ctl_ptr, c.ctl);
    spec::set_address(entry, ent::akey_ptr, c.akeys);
    entry.set(ent::max_buffer, 11);
    entry.set(ent::opb_000_enb, 0xffffffff);
    entry.set(ent::ka, 1);
    entry.set(ent::vl, 1);
    return c;
  }
  Context& context(ContextNumber number) { return contexts_.at(number); }
  util::MutableView<spec::akey_ent> akey(const Context& c, std::uint16_t index) const {
    return at<spec::akey_ent>(c.akeys + index * 16u);
  }
  /// Makes and enables an RKey table of 256 entries. Returns its address.
  Iova make_rkeys() {
    const auto table = allocate(4096, 4096);
    std::memset(host(table), 0, 4096);
    util::Struct<spec::mmio_rkey> reg;
    spec::set_address(reg, spec::mmio_rkey::ptr, table);
    reg.set(spec::mmio_rkey::en, 1);
    write(spec::mmio_register::MMIO_RKEY, util::load_le64(reg.bytes().data()));
    rkeys_ = table;
    return table;
  }
  util::MutableView<spec::rkey_ent> rkey(std::uint16_t index) const {
    return at<spec::rkey_ent>(rkeys_ + index * 16u);
  }

  /// Makes tables and error log, and jump starts context 0: the function is then in GSV_ACTIVE.
  void activate() {
    make_tables();
    make_error_log();
    make_context(0, 64, spec::cxtv::CXTV_RUN);
    request(spec::fn_gsr::GSRV_ACTIVE);
    run();
  }
  /// Makes a context and starts it with an administrative operation.
  Context& start_context(ContextNumber number, std::uint32_t ring_sz = 64) {
    make_context(number, ring_sz);
    submit(context(0), start(number, number));
    run();
    return contexts_.at(number);
  }

  // Producer side.
  std::uint64_t write_index(const Context& c) const { return load64(c.write_index); }
  std::uint64_t read_index(const Context& c) const {
    return at<spec::cxt_sts>(c.sts).get(spec::cxt_sts::read_index);
  }
  spec::cxtv state(const Context& c) const {
    return static_cast<spec::cxtv>(at<spec::cxt_sts>(c.sts).get(spec::cxt_sts::state));
  }
  void set_state(const Context& c, spec::cxtv state) {
    at<spec::cxt_sts>(c.sts).set(spec::cxt_sts::state, static_cast<std::uint32_t>(state));
  }
  Iova slot(const Context& c, std::uint64_t index) const { return c.ring + index % c.ring_sz * 64; }
  bool valid(const Context& c, std::uint64_t index) const {
    return at<spec::dsc_header>(slot(c, index)).get(spec::dsc_header::vl) != 0;
  }
  /// Writes `d` to the ring without a doorbell. Returns its index.
  std::uint64_t push(const Context& c, const Descriptor& d) {
    const auto index = write_index(c);
    std::copy(d.begin(), d.end(), host(slot(c, index)));
    store64(c.write_index, index + 1);
    return index;
  }
  std::uint64_t submit(const Context& c, const Descriptor& d) {
    const auto index = push(c, d);
    doorbell(c.number, index + 1);
    return index;
  }
  /// Allocates a completion status block with `signal`, and sets it in `d`.
  Iova attach_completion(Descriptor& d, std::uint64_t signal = 1) {
    const auto block = allocate(32, 32);
    std::memset(host(block), 0, 32);
    store64(block, signal);
    footer(d).set(spec::dsc_footer::np, 0);
    spec::set_address(footer(d), spec::dsc_footer::csb_ptr, block);
    return block;
  }
  std::uint64_t signal(Iova block) const { return load64(block); }
  bool er(Iova block) const { return at<spec::cst_blk>(block).get(spec::cst_blk::er) != 0; }

  /// Result of an operation with a completion status block.
  struct Outcome {
    bool done;
    bool er;
  };
  Outcome execute(const Context& c, Descriptor d) {
    const auto block = attach_completion(d);
    submit(c, d);
    run();
    return {signal(block) == 0, er(block)};
  }
  Outcome admin(const Descriptor& d) { return execute(context(0), d); }

  /// Runs the function until it is idle, in at most `turns` calls.
  void run(unsigned turns = 10000) {
    for (unsigned i = 0; i < turns; ++i) {
      now_ += std::chrono::nanoseconds(100);
      if (device->run(now_) > now_) return;
    }
  }
  util::Time step() {
    now_ += std::chrono::nanoseconds(100);
    return device->run(now_);
  }
  /// Runs the function once; true if it has more work now.
  bool step_further() {
    const auto next = step();
    return next <= now_;
  }
  void advance(util::Duration by) { now_ += by; }
  util::Time now() const { return now_; }

  std::uint64_t interrupts(unsigned vector) const {
    const std::lock_guard lock(interrupts_mutex_);
    const auto found = interrupts_.find(vector);
    return found == interrupts_.end() ? 0 : found->second;
  }

  std::unique_ptr<Device> device;
  Trace trace;
  std::function<void(unsigned vector)> on_interrupt;

 private:
  /// Also called by workers.
  void raise(std::uint16_t vector) override {
    {
      const std::lock_guard lock(interrupts_mutex_);
      ++interrupts_[vector];
    }
    if (on_interrupt) on_interrupt(vector);
  }

  std::byte* guarded_;
  std::byte* memory_;
  Iova next_ = kBase;
  Iova l2_ = 0;
  Iova log_ = 0;
  Iova rkeys_ = 0;
  std::size_t log_sz_ = 4096;
  std::map<unsigned, Iova> l1_;
  std::map<ContextNumber, Context> contexts_;
  mutable std::mutex interrupts_mutex_;
  std::map<unsigned, std::uint64_t> interrupts_;
  util::Time now_{};
};

}  // namespace softhca::sdxi::test
