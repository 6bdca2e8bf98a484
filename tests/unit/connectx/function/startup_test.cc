// A driver's start and exit (PRM 8.2, 8.3), and the pages that it gives the device (PRM 12.3.1,
// 12.3.2).

#include <gtest/gtest.h>

#include <set>

#include "connectx/base/resources.h"
#include "connectx/command/command_interface.h"
#include "connectx/fake_host.h"
#include "connectx/function/pages.h"
#include "connectx/port/network_port.h"
#include "connectx/port/vport.h"
#include "pcie/bus_master.h"
#include "spec/connectx/eq.h"
#include "spec/connectx/hca.h"
#include "spec/connectx/init_segment.h"
#include "spec/connectx/resources.h"
#include "spec/connectx/vport.h"

namespace softhca::connectx {
namespace {

namespace s = spec::connectx;
using Opcode = FakeHost::Opcode;
using Code = s::command_status;

template <class In, class Out>
Reply plain(FakeHost& host, Opcode opcode, std::uint16_t op_mod = 0) {
  Input<In> in(opcode, op_mod);
  return host.execute<Out>(in);
}
Reply enable(FakeHost& host) {
  return plain<s::enable_hca_in, s::enable_hca_out>(host, Opcode::ENABLE_HCA);
}
Reply init(FakeHost& host) {
  return plain<s::init_hca_in, s::init_hca_out>(host, Opcode::INIT_HCA);
}
Reply disable(FakeHost& host) {
  return plain<s::disable_hca_in, s::disable_hca_out>(host, Opcode::DISABLE_HCA);
}
Reply teardown(FakeHost& host, std::uint32_t profile = 0) {
  Input<s::teardown_hca_in> in(Opcode::TEARDOWN_HCA);
  in->set(s::teardown_hca_in::profile, profile);
  return host.execute<s::teardown_hca_out>(in);
}
std::uint32_t query_pages(FakeHost& host, std::uint16_t stage) {
  const auto reply = plain<s::query_pages_in, s::query_pages_out>(host, Opcode::QUERY_PAGES, stage);
  EXPECT_TRUE(reply.ok());
  return reply.as<s::query_pages_out>().get(s::query_pages_out::num_pages);
}
Reply give(FakeHost& host, const std::vector<std::uint64_t>& pages) {
  Input<s::manage_pages_in> in(Opcode::MANAGE_PAGES, 1, 8 * pages.size());
  in->set(s::manage_pages_in::input_num_entries, static_cast<std::uint32_t>(pages.size()));
  for (std::size_t i = 0; i < pages.size(); ++i) in.set_address(i, pages[i]);
  return host.execute<s::manage_pages_out>(in);
}
std::vector<std::uint64_t> take(FakeHost& host, std::uint32_t count) {
  using Out = s::manage_pages_out;
  Input<s::manage_pages_in> in(Opcode::MANAGE_PAGES, 2);
  in->set(s::manage_pages_in::input_num_entries, count);
  const auto reply = host.execute<Out>(in, 8 * count);
  EXPECT_TRUE(reply.ok());
  std::vector<std::uint64_t> pages(reply.as<Out>().get(Out::output_num_entries));
  for (std::size_t i = 0; i < pages.size(); ++i) {
    pages[i] = util::load_be64(reply.out.data() + Out::pas_offset + 8 * i);
  }
  return pages;
}

TEST(StartupTest, CommandsBeforeEnableHcaAreRefused) {
  FakeHost host;
  host.start_queue();
  EXPECT_EQ(init(host).status(), Code::BAD_SYS_STATE);
  EXPECT_TRUE((plain<s::nop_in, s::nop_out>(host, Opcode::NOP).ok()));
}

TEST(StartupTest, EnableHcaTwiceIsRefused) {
  FakeHost host;
  host.enable();
  EXPECT_EQ(enable(host).status(), Code::BAD_SYS_STATE);
}

TEST(StartupTest, ObjectsBeforeInitHcaAreRefused) {
  FakeHost host;
  host.enable();
  Input<s::alloc_uar_in> in(Opcode::ALLOC_UAR);
  EXPECT_EQ(host.execute<s::alloc_uar_out>(in).status(), Code::BAD_SYS_STATE);
}

TEST(StartupTest, InitHcaWithoutItsPagesIsRefused) {
  FakeHost host;
  host.enable();
  EXPECT_EQ(init(host).status(), Code::BAD_SYS_STATE);
}

TEST(StartupTest, InitHcaOfNewerDriversIsLonger) {
  FakeHost host;
  host.enable();
  host.give_pages(query_pages(host, 2));
  Input<s::init_hca_in> in(Opcode::INIT_HCA, 0, 16);
  EXPECT_TRUE(host.execute<s::init_hca_out>(in).ok());
}

TEST(StartupTest, AnotherFunctionIsRefused) {
  FakeHost host;
  host.start_queue();
  Input<s::enable_hca_in> in(Opcode::ENABLE_HCA);
  in->set(s::enable_hca_in::function_id, 1);
  EXPECT_EQ(host.execute<s::enable_hca_out>(in).status(), Code::BAD_PARAM);
}

TEST(StartupTest, OffersInterfaceStepOneAndKeepsWhatIsChosen) {
  FakeHost host;
  host.enable();
  using Out = s::query_issi_out;
  auto reply = plain<s::query_issi_in, Out>(host, Opcode::QUERY_ISSI);
  EXPECT_NE(util::load_be32(reply.out.data() + 0x6C) & 2, 0u);
  Input<s::set_issi_in> set(Opcode::SET_ISSI);
  set->set(s::set_issi_in::current_issi, 1);
  EXPECT_TRUE(host.execute<s::set_issi_out>(set).ok());
  reply = plain<s::query_issi_in, Out>(host, Opcode::QUERY_ISSI);
  EXPECT_EQ(reply.as<Out>().get(Out::current_issi), 1u);
  set->set(s::set_issi_in::current_issi, 5);
  EXPECT_EQ(host.execute<s::set_issi_out>(set).status(), Code::BAD_PARAM);
}

TEST(StartupTest, ANewDriverChoosesItsInterfaceStepAgain) {
  FakeHost host;
  host.enable();
  Input<s::set_issi_in> set(Opcode::SET_ISSI);
  set->set(s::set_issi_in::current_issi, 1);
  ASSERT_TRUE(host.execute<s::set_issi_out>(set).ok());
  host.start_queue();
  EXPECT_TRUE(enable(host).ok());
  using Out = s::query_issi_out;
  const auto reply = plain<s::query_issi_in, Out>(host, Opcode::QUERY_ISSI);
  EXPECT_EQ(reply.as<Out>().get(Out::current_issi), 0u);
}

TEST(StartupTest, TeardownDropsObjectsAndKeepsPages) {
  FakeHost host;
  host.initialize();
  (void)host.allocate_pd();
  EXPECT_TRUE(teardown(host).ok());
  EXPECT_EQ(host.device.driver().resources().pds().count(), 0u);
  EXPECT_EQ(host.device.driver().pages().held(), PageManager::kBootPages + PageManager::kInitPages);
  Input<s::alloc_uar_in> in(Opcode::ALLOC_UAR);
  EXPECT_EQ(host.execute<s::alloc_uar_out>(in).status(), Code::BAD_SYS_STATE);
}

TEST(StartupTest, UnloadAndReloadTwentyTimes) {
  FakeHost host;
  for (int i = 0; i < 20; ++i) {
    host.initialize();
    (void)host.create_eq(8, 0, 0);
    EXPECT_TRUE(teardown(host).ok());
    while (!take(host, 100).empty()) {
    }
    EXPECT_EQ(host.device.driver().pages().held(), 0u);
    EXPECT_TRUE(disable(host).ok());
  }
}

TEST(StartupTest, DisableAfterAnyPartOfTheStartIsAccepted) {
  FakeHost host;
  host.enable();
  EXPECT_TRUE(disable(host).ok());
  EXPECT_TRUE(enable(host).ok());
  host.give_pages(query_pages(host, 1));
  EXPECT_TRUE(disable(host).ok());
  EXPECT_EQ(host.device.driver().pages().held(), 0u);
  EXPECT_EQ(disable(host).status(), Code::BAD_SYS_STATE);
}

TEST(StartupTest, ANewQueueDropsWhatACrashedDriverLeft) {
  FakeHost host;
  host.initialize();
  (void)host.allocate_pd();
  host.start_queue();
  host.run();
  EXPECT_EQ(host.device.driver().state(), HcaState::kDisabled);
  EXPECT_EQ(host.device.driver().resources().pds().count(), 0u);
  EXPECT_EQ(host.device.driver().pages().held(), 0u);
  EXPECT_TRUE(enable(host).ok());
}

TEST(StartupTest, ANewQueueForgetsPostedSlots) {
  FakeHost host;
  host.enable();
  Input<s::nop_in> in(Opcode::NOP);
  host.prepare(4, in.bytes(), 16);
  host.ring_commands(1u << 4);
  host.start_queue();
  host.prepare(4, in.bytes(), 16);
  host.run();
  EXPECT_EQ(host.slot(4).get(FakeHost::Entry::ownership), 1u);
}

TEST(StartupTest, FunctionResetIsTheStateOfPowerOn) {
  FakeHost host;
  host.initialize();
  host.device.reset();
  pcie::set_bus_master(host.device, true);
  EXPECT_EQ(host.read32(0x10), 0u);
  EXPECT_EQ(host.read32(0x14), 0x56u);
  EXPECT_EQ(host.device.driver().pages().held(), 0u);
  host.initialize();
}

// PRM 12.3.7: a panic close takes the ports down.
TEST(StartupTest, APanicTeardownTakesThePortDownUntilTheNextDriverComes) {
  constexpr auto kPanic = static_cast<std::uint32_t>(s::teardown_profile::FORCE_CLOSE);
  FakeHost host;
  host.initialize();
  const auto status = [&] { return host.device.driver().network_port().state().oper_status(); };
  EXPECT_EQ(status(), s::paos_oper_status::UP);
  ASSERT_TRUE(teardown(host, kPanic).ok());
  EXPECT_EQ(status(), s::paos_oper_status::DOWN);
  EXPECT_EQ(host.device.driver().resources().uars().count(), 0u);
  host.start_queue();
  host.run();
  EXPECT_EQ(status(), s::paos_oper_status::UP);
}

TEST(StartupTest, AGracefulTeardownLeavesThePortUp) {
  FakeHost host;
  host.initialize();
  ASSERT_TRUE(teardown(host).ok());
  EXPECT_EQ(host.device.driver().network_port().state().oper_status(), s::paos_oper_status::UP);
}

TEST(StartupTest, FastTeardownLeavesTheDeviceQuiet) {
  FakeHost host;
  host.initialize();
  const auto reply = teardown(host, 2);
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply.as<s::teardown_hca_out>().get(s::teardown_hca_out::state), 0u);
  const auto low = host.read32(0x14);
  host.write32(0x14, (low & ~0x700u) | 0x100);
  host.run();
  EXPECT_EQ(host.read32(0x14) >> 8 & 7, 1u);
  EXPECT_EQ(host.device.driver().resources().uars().count(), 0u);
}

TEST(StartupTest, UnknownTeardownProfileIsRefused) {
  FakeHost host;
  host.initialize();
  EXPECT_EQ(teardown(host, 9).status(), Code::BAD_PARAM);
}

TEST(StartupTest, DriverVersionIsAcceptedWhateverItHolds) {
  FakeHost host;
  host.enable();
  Input<s::set_driver_version_in> in(Opcode::SET_DRIVER_VERSION);
  std::ranges::fill((*in).sub(s::set_driver_version_in::driver_version), std::byte{0xFF});
  EXPECT_TRUE(host.execute<s::set_driver_version_out>(in).ok());
}

// Pages
// --------------------------------------------------------------------------------------------

TEST(PagesTest, TheNeedFallsToZeroAsPagesAreGiven) {
  FakeHost host;
  host.enable();
  EXPECT_EQ(query_pages(host, 1), PageManager::kBootPages);
  host.give_pages(PageManager::kBootPages);
  EXPECT_EQ(query_pages(host, 1), 0u);
  EXPECT_EQ(query_pages(host, 2), PageManager::kInitPages);
  host.give_pages(PageManager::kInitPages - 1);
  EXPECT_EQ(query_pages(host, 2), 1u);
}

TEST(PagesTest, UnknownStageIsRefused) {
  FakeHost host;
  host.enable();
  EXPECT_EQ((plain<s::query_pages_in, s::query_pages_out>(host, Opcode::QUERY_PAGES, 7).status()),
            Code::BAD_OP);
}

TEST(PagesTest, EveryPageComesBackExactlyOnce) {
  FakeHost host;
  host.enable();
  std::vector<std::uint64_t> pages;
  for (std::uint64_t i = 1; i <= 500; ++i) pages.push_back(i << 12);
  EXPECT_TRUE(give(host, pages).ok());
  std::multiset<std::uint64_t> back;
  for (auto part = take(host, 77); !part.empty(); part = take(host, 77)) {
    back.insert(part.begin(), part.end());
  }
  EXPECT_EQ(back, std::multiset<std::uint64_t>(pages.begin(), pages.end()));
}

TEST(PagesTest, APageThatCameBackMayBeLentAgain) {
  FakeHost host;
  host.enable();
  ASSERT_TRUE(give(host, {0x1000, 0x2000}).ok());
  EXPECT_EQ(take(host, 1), std::vector<std::uint64_t>{0x2000});
  EXPECT_TRUE(give(host, {0x2000}).ok());
  EXPECT_EQ(give(host, {0x1000}).status(), Code::BAD_PARAM) << "the device has it still";
}

TEST(PagesTest, AListWithABadAddressIsRefusedWhole) {
  FakeHost host;
  host.enable();
  EXPECT_EQ(give(host, {0x1000, 0x2000, 0x2800}).status(), Code::BAD_PARAM);
  EXPECT_EQ(give(host, {0x1000, 0x2000, 0x1000}).status(), Code::BAD_PARAM);
  EXPECT_EQ(host.device.driver().pages().held(), 0u);
  EXPECT_TRUE(give(host, {0x1000, 0x2000}).ok());
}

TEST(PagesTest, AListShorterThanItsCountIsABadInputLength) {
  FakeHost host;
  host.enable();
  Input<s::manage_pages_in> in(Opcode::MANAGE_PAGES, 1, 16);
  in->set(s::manage_pages_in::input_num_entries, 0xFFFF'FFFF);
  EXPECT_EQ(host.execute<s::manage_pages_out>(in).status(), Code::BAD_INPUT_LEN);
}

TEST(PagesTest, AHostCannotGiveWithoutEnd) {
  FakeHost host;
  host.enable();
  std::vector<std::uint64_t> pages;
  for (std::uint64_t i = 0; i <= PageManager::kMaxPages; ++i) pages.push_back(i << 12);
  EXPECT_EQ(give(host, pages).status(), Code::EXCEED_LIM);
}

class PageEventTest : public testing::Test {
 protected:
  PageEventTest() {
    host.initialize();
    eqn = host.create_eq(8, 1ull << 0x0B, 1);
    eq = host.last_buffer;
    arm(0);
  }
  void arm(std::uint32_t consumer) {
    host.write32(host.uar * 4096 + 0x40, eqn << 24 | consumer);
    host.run();
  }
  /// num_pages of entry `index`, if it was written.
  std::optional<std::int32_t> event(unsigned index) {
    const util::View<s::eqe> eqe(std::span(host.at(eq + 64 * index), 64));
    if (eqe.get(s::eqe::owner) != 0) return std::nullopt;
    EXPECT_EQ(eqe.get(s::eqe::event_type), 0x0Bu);
    using Data = s::event_data_page_request;
    const util::View<Data> data(eqe.get(s::eqe::event_data));
    EXPECT_EQ(data.get(Data::function_id), 0u);
    return static_cast<std::int32_t>(data.get(Data::num_pages));
  }
  void cannot_give() {
    EXPECT_TRUE(
        (plain<s::manage_pages_in, s::manage_pages_out>(host, Opcode::MANAGE_PAGES, 0).ok()));
  }

  FakeHost host;
  std::uint32_t eqn = 0;
  std::uint64_t eq = 0;
};

TEST_F(PageEventTest, AsksForPagesAndThenOffersSomeBack) {
  EXPECT_EQ(event(0), PageManager::kRegularPages);
  EXPECT_EQ(host.interrupts(1), 1u);
  host.give_pages(PageManager::kRegularPages);
  EXPECT_EQ(event(1), -PageManager::kSparePages);
  EXPECT_EQ(take(host, PageManager::kSparePages).size(), std::size_t{PageManager::kSparePages});
  host.run();
  EXPECT_EQ(event(2), std::nullopt);
}

// PRM 7.13.10.2: MANAGE_PAGES "also acts as arming" of this event.
TEST_F(PageEventTest, NoSecondEventUntilManagePagesRan) {
  host.advance(std::chrono::hours(1));
  host.run();
  EXPECT_EQ(event(1), std::nullopt);
}

TEST_F(PageEventTest, AsksAgainLaterWhenTheDriverCannotGive) {
  cannot_give();
  host.run();
  EXPECT_EQ(event(1), std::nullopt);
  host.advance(std::chrono::seconds(2));
  host.run();
  EXPECT_EQ(event(1), PageManager::kRegularPages);
  cannot_give();
  host.advance(std::chrono::milliseconds(1500));
  host.run();
  EXPECT_EQ(event(2), std::nullopt) << "the pause doubles";
}

TEST_F(PageEventTest, HoweverOftenTheDriverCannotGiveItIsAskedWithinAMinute) {
  for (unsigned refused = 0; refused < 10; ++refused) {
    ASSERT_EQ(event(refused), PageManager::kRegularPages);
    cannot_give();
    host.advance(std::chrono::seconds(64));
    host.run();
  }
}

TEST_F(PageEventTest, ADriverThatComesAfterATeardownIsAskedToo) {
  EXPECT_EQ(event(0), PageManager::kRegularPages);
  ASSERT_TRUE(teardown(host).ok());
  ASSERT_TRUE(init(host).ok());
  host.uar = host.allocate_uar();
  eqn = host.create_eq(8, 1ull << 0x0B, 1);
  eq = host.last_buffer;
  arm(0);
  EXPECT_EQ(event(0), PageManager::kRegularPages);
}

TEST_F(PageEventTest, AfterTeardownNothingIsAskedForAndAllPagesAreFree) {
  host.give_pages(PageManager::kRegularPages);
  EXPECT_TRUE(teardown(host).ok());
  host.advance(std::chrono::hours(1));
  host.run();
  EXPECT_EQ(take(host, 1000).size(), PageManager::kBootPages + PageManager::kInitPages +
                                         std::size_t{PageManager::kRegularPages});
}

}  // namespace
}  // namespace softhca::connectx
