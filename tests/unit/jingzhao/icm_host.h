// A device whose ICM a test maps itself, with memory regions in it.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>

#include "jingzhao/memory_keys.h"
#include "jingzhao/raw_host.h"
#include "spec/jingzhao/context.h"
#include "util/clock.h"

namespace softhca::jingzhao::test {

class JingzhaoIcm : public testing::Test {
 protected:
  using mpt_entry = spec::jingzhao::mpt_entry;

  void put_mpt(std::uint32_t key) {
    util::Struct<mpt_entry> entry;
    entry.set(mpt_entry::sw_owns, 0xF);
    entry.set(mpt_entry::local_write, 1);
    entry.set(mpt_entry::key, key);
    entry.set(mpt_entry::start, 0x1000);
    entry.set(mpt_entry::length, 0x1000);
    h.put(entry.bytes());
  }
  hcr_status install_mpt(std::uint32_t index) {
    put_mpt(index);
    return h.with_mailbox(command_opcode::SW2HW_MPT, index);
  }
  /// One 2 MiB MTT for all regions that install_largest_region() makes: every page maps the same
  /// page of zeros.
  void map_largest_mtt() {
    for (std::uint64_t virt = 0; virt != limits::kMaxPages * limits::kMttSize; virt += 0x1000) {
      ASSERT_EQ(h.map(2, RawHost::kMtt + virt, h.bus(RawHost::kMtt), 1), hcr_status::OK);
    }
  }
  void install_largest_region(std::uint32_t key) {
    util::Struct<mpt_entry> entry;
    entry.set(mpt_entry::local_write, 1);
    entry.set(mpt_entry::key, key);
    entry.set(mpt_entry::length, limits::kMaxPages << limits::kLogMinPage);
    h.put(entry.bytes());
    ASSERT_EQ(h.with_mailbox(command_opcode::SW2HW_MPT, key), hcr_status::OK);
  }
  /// Runs the device until it has paid for its work and waits.
  void settle() {
    constexpr unsigned kMost = 2000;
    for (unsigned i = 0; i != kMost; ++i) {
      if (h.device.run(now) > now) return;
    }
    FAIL() << "the device never waits";
  }
  const MemoryKeys& memory_keys() { return *h.device.objects().memory_keys; }

  util::Time now{std::chrono::seconds(1)};  // as in RawHost::run()
  RawHost h;
};

}  // namespace softhca::jingzhao::test
