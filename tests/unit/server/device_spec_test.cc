#include "server/device_spec.h"

#include <gtest/gtest.h>

namespace softhca::server {
namespace {

util::Result<connectx::DeviceOptions> parse_nic(std::string_view text, unsigned index) {
  auto spec = parse_device(text, index);
  if (!spec) return tl::unexpected(spec.error());
  return std::get<connectx::DeviceOptions>(*spec);
}

TEST(DeviceSpec, ABareModelGetsAddressesOfItsPlace) {
  const auto first = parse_nic("connectx", 0);
  const auto second = parse_nic("connectx", 1);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(second->name, "connectx1");
  EXPECT_NE(first->mac, second->mac);
  EXPECT_NE(first->node_guid, second->node_guid);
  EXPECT_NE(first->node_guid, 0u);
}

TEST(DeviceSpec, AnRsnicHasTheProfileThatItIsGiven) {
  EXPECT_EQ(parse_nic("rsnic", 0)->model.first_uar, 3u);
  EXPECT_EQ(parse_nic("rsnic,profile=driver", 0)->model.first_uar, 3u);
  const auto document = parse_nic("rsnic,name=card,profile=document", 0);
  ASSERT_TRUE(document) << document.error().message;
  EXPECT_EQ(document->model.first_uar, 0u);
  EXPECT_EQ(document->model.uar_count, 8u);
  EXPECT_EQ(document->name, "card");
  EXPECT_FALSE(parse_nic("rsnic,profile=other", 0));
  EXPECT_FALSE(parse_nic("connectx,profile=document", 0));
  const auto profile = [](std::string_view text) {
    return std::get<jingzhao::DeviceOptions>(parse_device(text, 0).value()).profile;
  };
  EXPECT_EQ(profile("jingzhao"), jingzhao::Profile::kDocument);
  EXPECT_EQ(profile("jingzhao,profile=document"), jingzhao::Profile::kDocument);
  EXPECT_EQ(profile("jingzhao,profile=driver"), jingzhao::Profile::kDriver);
  EXPECT_FALSE(parse_device("jingzhao,profile=other", 0));
}

TEST(DeviceSpec, TheGuidIsTheEui64OfTheMac) {
  EXPECT_EQ(parse_nic("connectx,mac=02:03:04:05:06:07", 0)->node_guid, 0x020304FFFE050607u);
}

TEST(DeviceSpec, KeysChangeWhatTheyName) {
  const auto options = parse_nic("connectx,mac=02:00:00:00:0a:ff,guid=1234,vectors=8,name=left", 3);
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(options->mac.to_u64(), 0x020000000AFFu);
  EXPECT_EQ(options->node_guid, 0x1234u);
  EXPECT_EQ(options->msix_vectors, 8);
  EXPECT_EQ(options->name, "left");
}

TEST(DeviceSpec, DoorbellsAreTrappedUnlessTheyAreToBeMapped) {
  EXPECT_FALSE(parse_nic("connectx", 0)->share_doorbells);
  EXPECT_FALSE(parse_nic("connectx,doorbells=trapped", 0)->share_doorbells);
  EXPECT_TRUE(parse_nic("connectx,doorbells=mapped", 0)->share_doorbells);
  EXPECT_FALSE(parse_device("rsnic,doorbells=mapped", 0));
}

TEST(DeviceSpec, AJingzhaoHasANameAndACacheOfItsIcm) {
  const auto spec = parse_device("jingzhao,icm_cache=64", 3);
  ASSERT_TRUE(spec);
  EXPECT_EQ(name_of(*spec), "jingzhao3");
  EXPECT_EQ(std::get<jingzhao::DeviceOptions>(*spec).icm_cache, 64u);
  EXPECT_TRUE(is_nic(*spec));
  for (const auto* text : {"jingzhao,icm_cache=0", "jingzhao,icm_cache=65537",
                           "jingzhao,name=", "jingzhao,mac=02:00:00:00:00:01"}) {
    EXPECT_FALSE(parse_device(text, 0)) << text;
  }
}

TEST(DeviceSpec, AJingzhaoHasALinkAndAGuid) {
  const auto link_of = [](std::string_view text, bool infiniband) {
    return std::get<jingzhao::DeviceOptions>(*parse_device(text, 0, infiniband)).link;
  };
  EXPECT_EQ(link_of("jingzhao", false), wire::Link::kEthernet);
  EXPECT_EQ(link_of("jingzhao", true), wire::Link::kInfiniband);
  EXPECT_EQ(link_of("jingzhao,link=infiniband", false), wire::Link::kInfiniband);
  EXPECT_EQ(link_of("jingzhao,link=ethernet", true), wire::Link::kEthernet);
  for (const auto* text : {"jingzhao,link=", "jingzhao,link=token-ring", "jingzhao,guid=0",
                           "jingzhao,guid=ffffffffffffffff", "connectx,link=infiniband"}) {
    EXPECT_FALSE(parse_device(text, 0)) << text;
  }
  // The port's GUID is one more than the node's.
  const auto a = parse_device("jingzhao,guid=10", 0), b = parse_device("jingzhao,guid=11", 1);
  EXPECT_FALSE(check_together({*a, *b}));
  EXPECT_TRUE(check_together({*a, *parse_device("jingzhao,guid=12", 1)}));
}

TEST(DeviceSpec, AnSdxiFunctionHasAsManyContextsAsAskedFor) {
  const auto spec = parse_device("sdxi,contexts=16,name=mover", 2);
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(std::get<sdxi::DeviceOptions>(*spec).capabilities.max_cxt, 15);
  EXPECT_EQ(std::get<sdxi::DeviceOptions>(*spec).name, "mover");
}

TEST(DeviceSpec, AnSdxiFunctionMayHaveWorkers) {
  const auto spec = parse_device("sdxi,workers=3", 0);
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(std::get<sdxi::DeviceOptions>(*spec).workers, 3u);
  EXPECT_EQ(std::get<sdxi::DeviceOptions>(*parse_device("sdxi", 0)).workers, 0u);
}

class BadDeviceSpec : public testing::TestWithParam<const char*> {};

TEST_P(BadDeviceSpec, IsRefusedWithTheReason) {
  const auto options = parse_device(GetParam(), 0);
  ASSERT_FALSE(options);
  EXPECT_FALSE(options.error().message.empty());
}

INSTANTIATE_TEST_SUITE_P(
    All, BadDeviceSpec,
    testing::Values("", "connectx7", "connectx,", "connectx,mac", "connectx,mac=1",
                    "connectx,mac=01:00:00:00:00:00", "connectx,guid=0", "connectx,guid=xyz",
                    "connectx,vectors=1", "connectx,vectors=65", "connectx,name=", "connectx,a=b",
                    "connectx,doorbells=shared", "sdxi,mac=02:00:00:00:00:01", "sdxi,contexts=0",
                    "sdxi,contexts=65537", "sdxi,workers=65", "sdxi,workers="));

std::string error_of(std::vector<std::string> texts) {
  std::vector<DeviceSpec> specs;
  for (const auto& text : texts) {
    auto spec = parse_device(text, static_cast<unsigned>(specs.size()));
    if (!spec) return spec.error().message;
    specs.push_back(*std::move(spec));
  }
  const auto checked = check_together(specs);
  return checked ? "" : checked.error().message;
}

TEST(DeviceSpec, APfAnnouncesItsVfs) {
  const auto spec = parse_device("sdxi,vfs=3,name=pf", 0);
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(std::get<sdxi::DeviceOptions>(*spec).vfs, 3);
  EXPECT_EQ(error_of({"sdxi,vfs=4097"}), "vfs=4097: want 0 to 4096");
  EXPECT_EQ(error_of({"sdxi,vfs=x"}), "vfs=x: want 0 to 4096");
}

TEST(DeviceSpec, AVfNamesItsPf) {
  const auto spec = parse_device("sdxi-vf,pf=left,contexts=4", 2);
  ASSERT_TRUE(spec) << spec.error().message;
  const auto& vf = std::get<VirtualFunctionSpec>(*spec);
  EXPECT_EQ(vf.pf, "left");
  EXPECT_EQ(vf.options.name, "sdxi2");
  EXPECT_EQ(vf.options.capabilities.max_cxt, 3);
  EXPECT_EQ(error_of({"sdxi-vf"}),
            "sdxi-vf: pf=NAME is missing, the name of its physical function");
  EXPECT_EQ(error_of({"sdxi-vf,pf="}), "pf= is empty");
  EXPECT_NE(error_of({"sdxi-vf,pf=a,vfs=1"}).find("unknown key 'vfs'"), std::string::npos);
}

TEST(DeviceSpec, AMistypedKeyOrModelIsNamedWithTheNearest) {
  EXPECT_EQ(error_of({"connectx,macc=02:00:00:00:00:01"}),
            "unknown key 'macc' (mac?); the keys of connectx are mac, guid, vectors, doorbells, "
            "name, guest");
  EXPECT_EQ(error_of({"rsnic,profil=driver"}),
            "unknown key 'profil' (profile?); the keys of rsnic are profile, mac, guid, vectors, "
            "name, guest");
  EXPECT_EQ(error_of({"rsnic,doorbells=mapped"}),
            "unknown key 'doorbells'; the keys of rsnic are profile, mac, guid, vectors, name, "
            "guest");
  EXPECT_EQ(error_of({"jingzhao,icm-cache=1"}),
            "unknown key 'icm-cache' (icm_cache?); the keys of jingzhao are link, guid, icm_cache, "
            "profile, name, guest");
  EXPECT_EQ(error_of({"sdxi,context=1"}).find("unknown key 'context' (contexts?); an sdxi has"),
            0u);
  EXPECT_EQ(error_of({"sdxi-vf,pv=a"}).find("unknown key 'pv' (pf?); an sdxi-vf has pf, "), 0u);
  EXPECT_EQ(error_of({"conectx"}).find("unknown device 'conectx' (connectx?); a device is "), 0u);
}

TEST(DeviceSpec, AVfComesAfterItsPfWhichHasRoomForIt) {
  EXPECT_EQ(error_of({"sdxi,vfs=2,name=pf", "sdxi-vf,pf=pf", "sdxi-vf,pf=pf"}), "");
  EXPECT_EQ(error_of({"sdxi,vfs=1,name=pf", "sdxi-vf,pf=pf", "sdxi-vf,pf=pf"}),
            "sdxi2: pf=pf: more VFs than its vfs=N");
  EXPECT_EQ(error_of({"sdxi,name=pf", "sdxi-vf,pf=pf"}), "sdxi1: pf=pf: more VFs than its vfs=N");
  EXPECT_EQ(error_of({"sdxi-vf,pf=pf", "sdxi,vfs=1,name=pf"}),
            "sdxi0: pf=pf: no --device sdxi of this name stands before it");
  EXPECT_EQ(error_of({"sdxi,vfs=1,name=pf", "sdxi-vf,pf=pf,name=vf", "sdxi-vf,pf=vf"}),
            "sdxi2: pf=vf: no --device sdxi of this name stands before it");
  EXPECT_EQ(error_of({"connectx,name=pf", "sdxi-vf,pf=pf"}),
            "sdxi1: pf=pf: no --device sdxi of this name stands before it");
}

TEST(DeviceSpec, NamesAndAddressesDiffer) {
  EXPECT_EQ(error_of({"sdxi,name=a", "connectx,name=a"}), "two devices are called a");
  EXPECT_EQ(error_of({"connectx,name=loop"}),
            "name=loop: that is what softhca inspect calls its own");
  EXPECT_EQ(error_of({"connectx,guid=7", "connectx,guid=7"}),
            "connectx1 has the mac or guid of another device");
}

}  // namespace
}  // namespace softhca::server
