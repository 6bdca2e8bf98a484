// The keys of `--device sdxi`: each changes a field that a driver reads.
#include "server/sdxi_keys.h"

#include <gmock/gmock.h>

#include <set>

#include "sdxi/device.h"
#include "sdxi/group.h"
#include "server/device_spec.h"
#include "util/endian.h"

namespace softhca::server {
namespace {

using ::testing::HasSubstr;

/// The function that a device spec makes, as software sees it.
class Served {
 public:
  explicit Served(const std::string& text)
      : device_(std::get<sdxi::DeviceOptions>(*parse_device(text, 0)), group_) {}

  std::uint64_t cap0() const { return read(0x200); }
  std::uint64_t cap1() const { return read(0x208); }
  std::uint32_t config(std::uint32_t at) const {
    std::array<std::byte, 4> bytes{};
    device_.read_config(at, bytes);
    return util::load_le32(bytes.data());
  }
  /// The first word of a PCI capability; 0 if there is none.
  std::uint32_t capability(std::uint8_t id) const {
    for (auto at = config(0x34) & 0xff; at != 0; at = config(at) >> 8 & 0xff) {
      if ((config(at) & 0xff) == id) return config(at);
    }
    return 0;
  }
  const sdxi::DeviceOptions& options() const { return device_.options(); }

 private:
  std::uint64_t read(std::uint64_t at) const {
    std::array<std::byte, 8> bytes{};
    device_.read_bar(0, at, bytes);
    return util::load_le64(bytes.data());
  }
  sdxi::FunctionGroup group_;
  mutable sdxi::Device device_;
};

constexpr std::uint64_t bits(std::uint64_t value, unsigned hi, unsigned lo) {
  return value >> lo & ((std::uint64_t{1} << (hi - lo + 1)) - 1);
}

struct Reached {
  const char* text;
  std::uint64_t (*read)(const Served&);
  std::uint64_t expected;
};

// Registers of SDXI 9.1 and fields of the PCI capabilities, bit by bit.
const std::vector<Reached> kReached{
    {"contexts=1", [](const Served& s) { return bits(s.cap1(), 31, 16); }, 0},
    {"contexts=65536", [](const Served& s) { return bits(s.cap1(), 31, 16); }, 65535},
    {"ring=1K", [](const Served& s) { return bits(s.cap0(), 28, 24); }, 0},
    {"ring=4194304K", [](const Served& s) { return bits(s.cap0(), 28, 24); }, 22},
    {"buffer=2M", [](const Served& s) { return bits(s.cap1(), 3, 0); }, 0},
    {"buffer=4G", [](const Served& s) { return bits(s.cap1(), 3, 0); }, 11},
    {"akeys=256", [](const Served& s) { return bits(s.cap1(), 15, 12); }, 0},
    {"akeys=64K", [](const Served& s) { return bits(s.cap1(), 15, 12); }, 8},
    {"rkeys=512", [](const Served& s) { return bits(s.cap0(), 35, 32); }, 1},
    {"rkeys=65536", [](const Served& s) { return bits(s.cap0(), 35, 32); }, 8},
    {"errlog=8M", [](const Served& s) { return bits(s.cap1(), 11, 8); }, 0},
    {"errlog=4G", [](const Served& s) { return bits(s.cap1(), 11, 8); }, 9},
    {"stride=4K", [](const Served& s) { return bits(s.cap0(), 22, 20); }, 0},
    {"stride=512K", [](const Served& s) { return bits(s.cap0(), 22, 20); }, 7},
    {"cs_cap=atomic", [](const Served& s) { return bits(s.cap0(), 18, 17); }, 0},
    {"cs_cap=both", [](const Served& s) { return bits(s.cap0(), 18, 17); }, 2},
    {"cs_cap=non-atomic", [](const Served& s) { return bits(s.cap0(), 18, 17); }, 3},
    {"rkey_cap=on", [](const Served& s) { return bits(s.cap1(), 4, 4); }, 1},
    {"rkey_cap=off", [](const Served& s) { return bits(s.cap1(), 4, 4); }, 0},
    {"atomics=full", [](const Served& s) { return bits(s.cap1(), 63, 32); }, 0x18},
    {"atomics=minimal", [](const Served& s) { return bits(s.cap1(), 63, 32); }, 0x30},
    {"atomics=none", [](const Served& s) { return bits(s.cap1(), 63, 32); }, 0x10},
    {"interrupts=off", [](const Served& s) { return bits(s.cap1(), 63, 32); }, 0x08},
    {"interrupts=on", [](const Served& s) { return bits(s.cap1(), 63, 32); }, 0x18},
    {"pasid=on", [](const Served& s) { return std::uint64_t{s.options().any_pasid}; }, 1},
    {"pasid=off", [](const Served& s) { return std::uint64_t{s.options().any_pasid}; }, 0},
    {"vectors=1", [](const Served& s) { return bits(s.capability(0x11), 26, 16); }, 0},
    {"vectors=2048", [](const Served& s) { return bits(s.capability(0x11), 26, 16); }, 2047},
    {"msi=0", [](const Served& s) { return std::uint64_t{s.capability(0x05)}; }, 0},
    {"msi=8", [](const Served& s) { return bits(s.capability(0x05), 19, 17); }, 3},
    {"soft_stop=20ms",
     [](const Served& s) {
       return static_cast<std::uint64_t>(s.options().soft_stop_timeout /
                                         std::chrono::milliseconds(1));
     },
     20},
    {"id=1022:14dc", [](const Served& s) { return std::uint64_t{s.config(0)}; }, 0x14dc1022},
    {"workers=3", [](const Served& s) { return std::uint64_t{s.options().workers}; }, 3},
    {"vfs=2", [](const Served& s) { return std::uint64_t{s.options().vfs}; }, 2},
    {"group=left", [](const Served& s) { return std::uint64_t{s.options().group == "left"}; }, 1},
    {"name=mover", [](const Served& s) { return std::uint64_t{s.options().name == "mover"}; }, 1},
    {"profile=document", [](const Served& s) { return bits(s.cap1(), 31, 16); }, 127},
    {"profile=amd", [](const Served& s) { return bits(s.cap1(), 31, 16); }, 63}};

TEST(SdxiKeys, EachReachesWhatDriversRead) {
  std::set<std::string_view> tested;
  for (const auto& [text, read, expected] : kReached) {
    EXPECT_EQ(read(Served(std::string("sdxi,") + text)), expected) << text;
    tested.insert(std::string_view(text).substr(0, std::string_view(text).find('=')));
  }
  for (const auto& key : sdxi_keys()) EXPECT_TRUE(tested.contains(key.name)) << key.name;
}

TEST(SdxiKeys, WrongValuesAreRefusedInWords) {
  for (const char* text : {"contexts=0",    "contexts=65537", "contexts=x",
                           "contexts=-1",   "ring=512",       "ring=8G",
                           "ring=1000",     "ring=K",         "ring=1k",
                           "buffer=1M",     "buffer=8G",      "akeys=128",
                           "akeys=128K",    "rkeys=0",        "rkeys=100000",
                           "errlog=4M",     "errlog=8G",      "stride=2K",
                           "stride=1M",     "stride=3K",      "cs_cap=simple",
                           "cs_cap=2",      "rkey_cap=yes",   "rkey_cap=1",
                           "atomics=some",  "interrupts=1",   "pasid=any",
                           "vectors=0",     "vectors=2049",   "msi=3",
                           "msi=64",        "soft_stop=1",    "soft_stop=2h",
                           "soft_stop=-1s", "id=1022",        "id=1022:14dcf",
                           "id=ffff:0001",  "id=10g2:14dc",   "workers=65",
                           "vfs=4097",      "profile=intel",  "ring=18446744073709551615G"}) {
    const auto key = std::string_view(text).substr(0, std::string_view(text).find('='));
    const auto spec = parse_device(std::string("sdxi,") + text, 0);
    ASSERT_FALSE(spec) << text;
    const auto known = std::ranges::find(sdxi_keys(), key, &SdxiKey::name);
    EXPECT_EQ(spec.error().message, std::string(text) + ": want " + std::string(known->values));
  }
  for (const auto& key : sdxi_keys()) {
    const auto spec = parse_device("sdxi," + std::string(key.name) + "=", 0);
    ASSERT_FALSE(spec) << key.name;
    EXPECT_EQ(spec.error().message, std::string(key.name) + "= is empty");
  }
  const auto unknown = parse_device("sdxi,mac=1", 0);
  ASSERT_FALSE(unknown);
  EXPECT_THAT(unknown.error().message, HasSubstr("an sdxi has profile, con"));
}

// The values come from the driver's patches and its test script.
TEST(SdxiKeys, TheProfileOfAmdIsWhatAmdHasPublished) {
  const Served amd("sdxi,profile=amd");
  EXPECT_EQ(amd.config(0), 0x14dc1022u);
  EXPECT_EQ(bits(amd.cap1(), 31, 16), 63u);
  EXPECT_EQ(bits(amd.cap1(), 63, 32), 0x18u);
  EXPECT_EQ(bits(amd.cap0(), 28, 24), 22u) << "rings of 2^32 descriptors";
  EXPECT_EQ(std::uint64_t{1} << (bits(amd.cap1(), 11, 8) + 23), 131072u * 64) << "the error log";
  const Served changed("sdxi,profile=amd,contexts=8,id=1234:5678");
  EXPECT_EQ(bits(changed.cap1(), 31, 16), 7u);
  EXPECT_EQ(changed.config(0), 0x56781234u);
  EXPECT_EQ(bits(changed.cap0(), 28, 24), 22u);
  const auto late = parse_device("sdxi,contexts=8,profile=amd", 0);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().message, "profile= comes before the keys that differ from it");
}

TEST(SdxiKeys, AVfHasThoseThatAreItsOwn) {
  const auto spec = parse_device("sdxi-vf,pf=a,profile=amd,atomics=none", 0);
  ASSERT_TRUE(spec) << spec.error().message;
  const auto& options = std::get<VirtualFunctionSpec>(*spec).options;
  EXPECT_EQ(options.capabilities.max_cxt, 63);
  EXPECT_EQ(options.capabilities.atomics, sdxi::AtomicSet::kNone);
  for (const auto& key : sdxi_keys()) {
    if (key.of_vfs) continue;
    const auto refused = parse_device("sdxi-vf,pf=a," + std::string(key.name) + "=1", 0);
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message, HasSubstr("unknown key '" + std::string(key.name) +
                                                   "'; an sdxi-vf has pf, profile"));
  }
}

TEST(SdxiKeys, TheHelpHasALineForEach) {
  const auto help = sdxi_keys_help();
  for (const auto& key : sdxi_keys()) {
    EXPECT_THAT(help, HasSubstr("  " + std::string(key.name) + " ")) << key.name;
    EXPECT_THAT(help, HasSubstr("(" + std::string(key.values) + ")")) << key.name;
  }
  EXPECT_THAT(help, HasSubstr("[500ms]"));
}

}  // namespace
}  // namespace softhca::server
