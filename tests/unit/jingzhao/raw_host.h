// A host that writes the registers of one JingZhao device directly, for accesses that the driver of
// src/driver/ never makes.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "driver/in_process_host.h"
#include "driver/pci.h"
#include "fabric/switch.h"
#include "jingzhao/device.h"
#include "util/log.h"

namespace softhca::jingzhao::test {

using spec::jingzhao::command_opcode;
using spec::jingzhao::hcr;
using spec::jingzhao::hcr_status;

class RawHost {
 public:
  static constexpr std::uint64_t kHcr = 0x80000;
  static constexpr std::uint64_t kReset = 0xF0010;

  explicit RawHost(DeviceOptions options = {})
      : hcr_at(rules_of(options.profile).hcr_offset),
        device(std::move(options), *port),
        host(device, {}) {
    util::set_log_level(util::LogLevel::kError);
    driver::enable_bus_master(host);
    in = host.allocate(4096).value();
    out = host.allocate(4096).value();
    icm = host.allocate(kIcmPages * 4096).value();
  }

  std::uint32_t read(std::uint64_t offset, unsigned bar = 0) {
    std::array<std::byte, 4> bytes{};
    host.read_bar(bar, offset, bytes);
    return util::load_le32(bytes.data());
  }
  void write(std::uint64_t offset, std::uint32_t value, unsigned bar = 0) {
    std::array<std::byte, 4> bytes;
    util::store_le32(bytes.data(), value);
    host.write_bar(bar, offset, bytes);
  }
  void write64(std::uint64_t offset, std::uint64_t value, unsigned bar) {
    std::array<std::byte, 8> bytes;
    util::store_le64(bytes.data(), value);
    host.write_bar(bar, offset, bytes);
  }
  void run() {
    for (unsigned i = 0; i != 10; ++i) {
      device.run(util::Time(std::chrono::seconds(1)));
      network.deliver(1000);
    }
  }

  struct Call {
    std::uint32_t in_modifier = 0;
    std::uint8_t op_modifier = 0;
    std::uint64_t in_param = 0;
    std::uint64_t out_param = 0;
    bool e = false;
  };
  /// Writes the registers, `go` among them, and does not run the device.
  void start(std::uint32_t op, const Call& call) {
    write(hcr_at + 0x00, static_cast<std::uint32_t>(call.in_param >> 32));
    write(hcr_at + 0x04, static_cast<std::uint32_t>(call.in_param));
    write(hcr_at + 0x08, call.in_modifier);
    write(hcr_at + 0x0c, static_cast<std::uint32_t>(call.out_param >> 32));
    write(hcr_at + 0x10, static_cast<std::uint32_t>(call.out_param));
    write(hcr_at + 0x14, 0x1234u << 16);
    write(hcr_at + 0x18,
          1u << 23 | std::uint32_t{call.e} << 22 | std::uint32_t{call.op_modifier} << 12 | op);
  }
  hcr_status finish() {
    run();
    const auto control = read(hcr_at + 0x18);
    EXPECT_EQ(control >> 23 & 1, 0u) << "go";
    return hcr_status(control >> 24);
  }
  hcr_status command(command_opcode op, const Call& call) {
    start(static_cast<std::uint32_t>(op), call);
    return finish();
  }
  /// Runs a command with both mailboxes.
  hcr_status with_mailbox(command_opcode op, std::uint32_t in_modifier,
                          std::uint8_t op_modifier = 0) {
    return command(op, {.in_modifier = in_modifier,
                        .op_modifier = op_modifier,
                        .in_param = in.iova,
                        .out_param = out.iova});
  }

  void clear_mailbox() { std::ranges::fill(in.bytes, std::byte{0}); }
  void put32(std::size_t at, std::uint32_t value) { util::store_be32(in.bytes.data() + at, value); }
  void put64(std::size_t at, std::uint64_t value) { util::store_be64(in.bytes.data() + at, value); }
  std::uint32_t get32(std::size_t at) { return util::load_be32(out.bytes.data() + at); }
  void put(std::span<const std::byte> bytes) {
    clear_mailbox();
    std::ranges::copy(bytes, in.bytes.begin());
  }

  // ICM addresses of the tables, 16 pages each.
  static constexpr std::uint64_t kQpc = 0x10000, kCqc = 0x20000, kEqc = 0x30000;
  static constexpr std::uint64_t kMpt = 0x40000, kMtt = 0x50000;
  static constexpr std::uint64_t kIcmPages = 5 * 16;
  static constexpr std::uint64_t kTablePages = 16;

  /// Maps one chunk. The first entry is in the higher half of the first 32 bytes.
  hcr_status map(std::uint8_t group, std::uint64_t virt, std::uint64_t bus, std::uint32_t pages) {
    clear_mailbox();
    put64(0x10, virt);
    put64(0x18, bus | pages);
    return with_mailbox(command_opcode::MAP_ICM, 1, group);
  }
  hcr_status unmap(std::uint8_t group, std::uint64_t virt, std::uint32_t pages) {
    return command(command_opcode::UNMAP_ICM,
                   {.in_modifier = pages, .op_modifier = group, .in_param = virt});
  }
  std::uint64_t bus(std::uint64_t virt) const { return icm.iova + (virt - kQpc); }
  void put_init() {
    clear_mailbox();
    put64(0x08, kQpc | 6);
    put64(0x10, kCqc | 6);
    put64(0x18, kEqc | 3);
    put64(0x30, kMpt | 6);
    put64(0x38, kMtt);
  }
  void init() {
    for (const auto table : {kQpc, kCqc, kEqc}) {
      ASSERT_EQ(map(1, table, bus(table), kTablePages), hcr_status::OK);
    }
    for (const auto table : {kMpt, kMtt}) {
      ASSERT_EQ(map(2, table, bus(table), kTablePages), hcr_status::OK);
    }
    put_init();
    ASSERT_EQ(with_mailbox(command_opcode::INIT_HCA, 0), hcr_status::OK);
  }

  const std::uint64_t hcr_at;
  fabric::Switch network;
  std::unique_ptr<fabric::Port> port = network.create_port("jingzhao");
  Device device;
  driver::InProcessHost host;
  driver::DmaRegion in, out, icm;
};

}  // namespace softhca::jingzhao::test
