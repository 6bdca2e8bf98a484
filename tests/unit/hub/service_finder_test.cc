// Port numbers of librdmacm at the addresses of machines: questions, and the answers of the
// processes that have them.
#include "hub/service_finder.h"

#include <gtest/gtest.h>

#include <memory>

#include "fabric/recorder.h"
#include "fabric/switch.h"

namespace softhca::hub {
namespace {

using wire::MacAddress;

constexpr std::uint16_t kTcpSpace = 0x0106;

Service service_of_port(std::uint16_t port) {
  return {.machine = wire::Gid::from_ipv4(0x0a09'0002), .port_space = kTcpSpace, .port = port};
}
wire::Gid address_of_holder(std::uint32_t last) { return wire::Gid::from_ipv4(0xc612'0000 + last); }

/// A process that has the port whose number is its own.
struct ServiceHolder {
  ServiceHolder(fabric::Switch& network, std::uint16_t number)
      : port(network.create_port("process")),
        finder(*port, MacAddress::from_u64(number), [number](const Service& asked) {
          return asked == service_of_port(number) ? std::optional(address_of_holder(number))
                                                  : std::nullopt;
        }) {
    finder.set_receiver(&device);
  }
  ~ServiceHolder() { finder.set_receiver(nullptr); }

  fabric::Recorder device;
  std::unique_ptr<fabric::Port> port;
  ServiceFinder finder;
};

class ServiceFinderTest : public testing::Test {
 protected:
  void deliver() {
    while (network_.deliver(16)) {
    }
  }
  void say(const ServiceNote& note) {
    three_.port->transmit(note.frame());
    deliver();
  }

  fabric::Switch network_;
  ServiceHolder one_{network_, 1}, two_{network_, 2}, three_{network_, 3};
};

TEST_F(ServiceFinderTest, TheProcessThatHasThePortAnswers) {
  one_.finder.ask(service_of_port(2));
  EXPECT_FALSE(one_.finder.find(service_of_port(2)));
  deliver();
  EXPECT_EQ(one_.finder.find(service_of_port(2)), address_of_holder(2));
  one_.finder.ask(service_of_port(4));
  deliver();
  EXPECT_FALSE(one_.finder.find(service_of_port(4)));
  EXPECT_TRUE(two_.device.texts.empty()) << "the device receives no notes";
  one_.finder.forget(service_of_port(2));
  EXPECT_FALSE(one_.finder.find(service_of_port(2)));
}

TEST_F(ServiceFinderTest, AnotherMachineOrPortSpaceIsAnotherService) {
  auto elsewhere = service_of_port(2), datagrams = service_of_port(2);
  elsewhere.machine = wire::Gid::from_ipv4(0x0a09'0003);
  datagrams.port_space = 0x0111;
  one_.finder.ask(elsewhere);
  one_.finder.ask(datagrams);
  deliver();
  EXPECT_FALSE(one_.finder.find(elsewhere));
  EXPECT_FALSE(one_.finder.find(datagrams));
}

TEST_F(ServiceFinderTest, AnAnswerThatWasNotAskedForIsIgnoredAndTheFirstOneCounts) {
  ServiceNote answer{.to = MacAddress::from_u64(1),
                     .from = MacAddress::from_u64(3),
                     .kind = ServiceNote::Kind::kAnswer,
                     .service = service_of_port(2),
                     .owner = address_of_holder(3)};
  say(answer);
  EXPECT_FALSE(one_.finder.find(service_of_port(2)));
  one_.finder.ask(service_of_port(2));
  deliver();
  say(answer);
  EXPECT_EQ(one_.finder.find(service_of_port(2)), address_of_holder(2));
}

TEST_F(ServiceFinderTest, ANoteFromAGroupIsNotAnswered) {
  say({.to = MacAddress::from_u64(2),
       .from = MacAddress::broadcast(),
       .kind = ServiceNote::Kind::kQuestion,
       .service = service_of_port(2)});
  EXPECT_TRUE(one_.device.texts.empty());
  EXPECT_TRUE(two_.device.texts.empty());
  EXPECT_TRUE(three_.device.texts.empty());
}

TEST_F(ServiceFinderTest, FramesOfOtherExperimentsReachTheDevice) {
  wire::Frame frame;
  const auto head = frame.resize_head(wire::Ethernet::kFrameMin);
  std::ranges::fill(head, std::byte{0});
  wire::Ethernet{.destination = MacAddress::from_u64(1),
                 .source = MacAddress::from_u64(3),
                 .ether_type = static_cast<wire::EtherType>(ServiceNote::kEtherType)}
      .emit(util::MutableView<wire::EthernetLayout>(head.first<wire::EthernetLayout::kSize>()));
  three_.port->transmit(frame);
  deliver();
  EXPECT_EQ(one_.device.texts.size(), 1u);
}

// A program of hundreds of connections asks for all of them, several times.
TEST_F(ServiceFinderTest, TheQuestionThatWasAskedLongestAgoMakesRoom) {
  one_.finder.ask(service_of_port(2));
  deliver();
  constexpr auto kFirst = std::uint16_t{100};
  const auto last = static_cast<std::uint16_t>(kFirst + ServiceFinder::kMax - 2);
  for (auto port = kFirst; port != last; ++port) one_.finder.ask(service_of_port(port));
  EXPECT_EQ(one_.finder.count(), ServiceFinder::kMax - 1);
  one_.finder.ask(service_of_port(3));
  one_.finder.ask(service_of_port(2));
  EXPECT_EQ(one_.finder.find(service_of_port(2)), address_of_holder(2)) << "nothing makes room yet";
  one_.finder.ask(service_of_port(last));
  deliver();
  EXPECT_EQ(one_.finder.count(), ServiceFinder::kMax);
  for (const std::uint16_t port : {2, 3}) {
    EXPECT_EQ(one_.finder.find(service_of_port(port)), address_of_holder(port));
  }
}

}  // namespace
}  // namespace softhca::hub
