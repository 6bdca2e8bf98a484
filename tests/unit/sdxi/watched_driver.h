// src/driver/sdxi over a host that records everything: each register access, and the structures in
// memory at each doorbell. The structures are read through the tables, as a function does.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "driver/in_process_host.h"
#include "driver/sdxi/context.h"
#include "driver/sdxi/function.h"
#include "sdxi/device.h"
#include "sdxi/faults.h"

namespace softhca::driver::sdxi::test {

using softhca::sdxi::Device;
using softhca::sdxi::DeviceOptions;
using softhca::sdxi::FunctionGroup;
using reg = spec::mmio_register;

constexpr unsigned kRegisters = 0, kDoorbells = 2;

/// A structure's bytes, which can be stored and copied.
template <class Layout>
struct Value {
  alignas(8) std::array<std::byte, Layout::kSize> raw{};

  std::span<std::byte> bytes() { return raw; }
  std::span<const std::byte> bytes() const { return raw; }
  template <class Field>
  auto get(Field field) const {
    return util::View<Layout>(raw).get(field);
  }
  template <class Field>
  void set(Field field, typename Field::Word value) {
    util::MutableView<Layout>(raw).set(field, value);
  }
};

/// A 64-bit register's value as a structure.
template <class Layout>
Value<Layout> as(std::uint64_t value) {
  Value<Layout> word;
  util::store_le64(word.raw.data(), value);
  return word;
}

/// The bits covered by the fields.
template <class... Fields>
constexpr std::uint64_t field_bits(Fields... fields) {
  return ((std::uint64_t{fields.kMax} << (fields.kLo + fields.kOffset * 8)) | ...);
}

/// The register bits that software may set; for registers without reserved bits, all of them.
constexpr std::uint64_t settable(reg name) {
  namespace s = spec;
  switch (name) {
    case reg::MMIO_CTL0:
      return field_bits(s::mmio_ctl0::fn_gsr, s::mmio_ctl0::fn_pasid_vl,
                        s::mmio_ctl0::fn_err_intr_en, s::mmio_ctl0::fn_pasid,
                        s::mmio_ctl0::fn_grp_id);
    case reg::MMIO_CTL2:
      return field_bits(s::mmio_ctl2::max_buffer, s::mmio_ctl2::max_akey_sz, s::mmio_ctl2::max_cxt,
                        s::mmio_ctl2::opb_000_avl);
    case reg::MMIO_CXT_L2:
      return field_bits(s::mmio_cxt_l2::lv02_ptr);
    case reg::MMIO_RKEY:
      return field_bits(s::mmio_rkey::en, s::mmio_rkey::sz, s::mmio_rkey::ptr);
    case reg::MMIO_ERR_CTL:
      return field_bits(s::mmio_err_ctl::en);
    case reg::MMIO_ERR_STS:
      return field_bits(s::mmio_err_sts::sts, s::mmio_err_sts::ovf, s::mmio_err_sts::err);
    case reg::MMIO_ERR_CFG:
      return field_bits(s::mmio_err_cfg::en, s::mmio_err_cfg::sz, s::mmio_err_cfg::ptr);
    default:
      return ~std::uint64_t{0};
  }
}

struct Access {
  bool write;
  unsigned bar;
  std::uint64_t at;
  std::size_t size;
  std::uint64_t value;

  bool is(reg name) const { return bar == kRegisters && at == static_cast<std::uint64_t>(name); }
};

class WatchedHost final : public Host {
 public:
  explicit WatchedHost(Device& device)
      : inner_(device, {.progress =
                            [this, &device] {
                              now_ += std::chrono::microseconds(100);
                              device.run(now_);
                            },
                        .clock = [this] { return now_; },
                        .on_interrupt = {}}) {}

  void read_config(std::uint32_t at, std::span<std::byte> out) override {
    inner_.read_config(at, out);
  }
  void write_config(std::uint32_t at, std::span<const std::byte> in) override {
    if (at != dead_config) inner_.write_config(at, in);
  }
  void read_bar(unsigned bar, std::uint64_t at, std::span<std::byte> out) override {
    inner_.read_bar(bar, at, out);
    if (const auto other = answers.find(static_cast<reg>(at));
        bar == kRegisters && other != answers.end()) {
      util::store_le64(out.data(), other->second);
    }
    note(false, bar, at, out);
  }
  /// The hook sees what the function will find.
  void write_bar(unsigned bar, std::uint64_t at, std::span<const std::byte> in) override {
    note(true, bar, at, in);
    // SDXI 9: a nonzero value in a reserved field makes the register's value undefined.
    if (bar == kRegisters) {
      EXPECT_EQ(accesses.back().value & ~settable(static_cast<reg>(at)), 0u) << "register " << at;
    }
    inner_.write_bar(bar, at, in);
  }
  util::Result<DmaRegion> allocate(std::size_t size) override { return inner_.allocate(size); }
  void free(const DmaRegion& region) override { inner_.free(region); }
  util::Result<DmaRegion> map(std::span<std::byte> bytes) override { return inner_.map(bytes); }
  void unmap(const DmaRegion& region) override { inner_.unmap(region); }
  util::Result<void> enable_interrupts(unsigned count) override {
    return inner_.enable_interrupts(count);
  }
  void disable_interrupts() override { inner_.disable_interrupts(); }
  std::uint64_t interrupts(unsigned vector) const override { return inner_.interrupts(vector); }
  void progress() override {
    if (!paused) inner_.progress();
  }
  util::Time now() const override { return now_; }

  std::size_t allocated() const { return inner_.allocated(); }
  /// Accesses to registers for which `match` holds.
  template <class Match>
  std::vector<Access> select(Match match) const {
    std::vector<Access> found;
    std::copy_if(accesses.begin(), accesses.end(), std::back_inserter(found), match);
    return found;
  }
  /// Index of the first write to `name` from `from` on; the number of accesses if there is none.
  std::size_t write_of(reg name, std::size_t from = 0) const {
    while (from < accesses.size() && !(accesses[from].write && accesses[from].is(name))) ++from;
    return from;
  }

  std::vector<Access> accesses;
  std::function<void(const Access&)> hook;
  bool paused = false;                         ///< progress() does nothing
  std::optional<std::uint32_t> dead_config{};  ///< a register that ignores writes
  std::map<reg, std::uint64_t> answers;        ///< values that replace those of the registers

 private:
  void note(bool write, unsigned bar, std::uint64_t at, std::span<const std::byte> bytes) {
    std::array<std::byte, 8> value{};
    std::copy_n(bytes.begin(), std::min<std::size_t>(bytes.size(), 8), value.begin());
    accesses.push_back({write, bar, at, bytes.size(), util::load_le64(value.data())});
    if (hook) {
      const auto copy = accesses.back();
      hook(copy);
    }
  }

  util::Time now_{};
  InProcessHost inner_;
};

/// The structures of a context, found through MMIO_CXT_L2.
struct Structures {
  Value<spec::cxt_l1_ent> entry;
  Value<spec::cxt_ctl> control;
  Value<spec::cxt_sts> status;
  std::uint64_t write_index = 0;

  bool valid() const { return entry.get(spec::cxt_l1_ent::vl) != 0; }
  spec::cxtv state() const { return static_cast<spec::cxtv>(status.get(spec::cxt_sts::state)); }
  std::uint64_t ring_entries() const { return control.get(spec::cxt_ctl::ds_ring_sz); }
  pcie::Iova slot(std::uint64_t index) const {
    return spec::address(control, spec::cxt_ctl::ds_ring_ptr) + index % ring_entries() * 64;
  }
};

using RawDescriptor = Value<spec::dsc_generic>;

class WatchedDriverTest : public ::testing::Test {
 protected:
  explicit WatchedDriverTest(const DeviceOptions& options = {}) : device_(options, group_) {}
  ~WatchedDriverTest() override {
    host_.hook = nullptr;
    group_.faults().clear();
  }

  void bring_up() {
    auto up = Function::bring_up(host_, {.patience = std::chrono::milliseconds(10)});
    ASSERT_TRUE(up) << up.error().message;
    function_ = std::move(*up);
  }
  std::unique_ptr<Context> make_context(std::uint32_t ring_entries = 64) {
    auto made = function_->make_context(ring_entries);
    EXPECT_TRUE(made) << made.error().message;
    return std::move(*made);
  }
  void inject(const char* text) { group_.faults().add(*softhca::sdxi::parse_fault(text)); }

  std::uint64_t read(reg name) {
    std::array<std::byte, 8> bytes{};
    device_.read_bar(kRegisters, static_cast<std::uint64_t>(name), bytes);
    return util::load_le64(bytes.data());
  }
  spec::fn_gsv gsv() {
    return static_cast<spec::fn_gsv>(
        as<spec::mmio_sts0>(read(reg::MMIO_STS0)).get(spec::mmio_sts0::fn_gsv));
  }
  template <class Layout>
  Value<Layout> load(pcie::Iova at) const {
    Value<Layout> out;
    EXPECT_TRUE(device_.dma().read(at, out.bytes()));
    return out;
  }
  /// Nothing if no table leads to the context.
  std::optional<Structures> structures(std::uint16_t number) {
    const auto tables = as<spec::mmio_cxt_l2>(read(reg::MMIO_CXT_L2));
    const auto level2 = load<spec::cxt_l2_ent>(spec::address(tables, spec::mmio_cxt_l2::lv02_ptr) +
                                               number / 128 * 8u);
    if (level2.get(spec::cxt_l2_ent::vl) == 0) return std::nullopt;
    Structures s;
    s.entry = load<spec::cxt_l1_ent>(spec::address(level2, spec::cxt_l2_ent::lv01_ptr) +
                                     number % 128 * 32u);
    const auto control = spec::address(s.entry, spec::cxt_l1_ent::cxt_ctl_ptr);
    if (control == 0) return std::nullopt;
    s.control = load<spec::cxt_ctl>(control);
    s.status = load<spec::cxt_sts>(spec::address(s.control, spec::cxt_ctl::cxt_sts_ptr));
    s.write_index =
        load<spec::write_index>(spec::address(s.control, spec::cxt_ctl::write_index_ptr))
            .get(spec::write_index::index);
    return s;
  }
  RawDescriptor descriptor(const Structures& s, std::uint64_t index) {
    return load<spec::dsc_generic>(s.slot(index));
  }
  static auto header(const RawDescriptor& d) { return d.get(spec::dsc_generic::header); }

  /// Calls `see` at the doorbell with every descriptor that the driver gives to context `number`.
  void watch(std::uint16_t number, std::function<void(const RawDescriptor&)> see) {
    watched_.push_back({number, 0, std::move(see)});
    host_.hook = [this](const Access& access) {
      if (!access.write || access.bar != kDoorbells) return;
      for (auto& w : watched_) {
        if (access.at != w.number * function_->capabilities().doorbell_stride) continue;
        const auto s = structures(w.number);
        ASSERT_TRUE(s);
        w.seen = std::max(w.seen, s->status.get(spec::cxt_sts::read_index));
        for (; w.seen < s->write_index; ++w.seen) w.see(descriptor(*s, w.seen));
      }
    };
  }
  /// Calls `see` with each administrative operation and its subtype.
  void watch_administration(std::function<void(spec::admin_subtype, const RawDescriptor&)> see) {
    watch(0, [see = std::move(see)](const RawDescriptor& d) {
      see(static_cast<spec::admin_subtype>(header(d).get(spec::dsc_header::subtype)), d);
    });
  }

  FunctionGroup group_;
  Device device_;
  WatchedHost host_{device_};
  std::unique_ptr<Function> function_;

 private:
  struct Watched {
    std::uint16_t number;
    std::uint64_t seen;
    std::function<void(const RawDescriptor&)> see;
  };
  std::vector<Watched> watched_;
};

}  // namespace softhca::driver::sdxi::test
