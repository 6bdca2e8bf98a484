// Answers on NETLINK_RDMA sockets (include/uapi/rdma/rdma_netlink.h).
#include "door/nldev/nldev.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rdma/rdma_netlink.h>
#include <sys/sysmacros.h>

#include <cerrno>
#include <cstring>
#include <random>

namespace softhca::door::nldev {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

constexpr std::uint32_t kPort = 4711, kSequence = 77;

constexpr std::uint16_t type_of(unsigned command) {
  return static_cast<std::uint16_t>(RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command));
}

System two_devices() {
  System system;
  for (unsigned i = 0; i != 2; ++i) {
    system.devices.push_back(
        {.index = i,
         .name = "mlx5_" + std::to_string(i),
         .firmware = "12.28.2006",
         .node_guid = 0x0200'00ff'fe00'0000U + i,
         .system_image_guid = 0x0200'00ff'fe00'0000U + i,
         .capabilities = 0x1234,
         .port_state = 4,
         .physical_state = 5,
         .interface = i == 0 ? "" : "lo",
         .interface_index = i,
         .uverbs = {
             .name = "uverbs" + std::to_string(i), .abi = 1, .number = ::makedev(231, 192 + i)}});
  }
  system.rdma_cm = {.name = "rdma_cm", .abi = 4, .number = ::makedev(10, 58)};
  return system;
}

/// A request with at most one attribute of each kind.
class Message {
 public:
  Message(std::uint16_t type, std::uint16_t flags) {
    header_.nlmsg_type = type;
    header_.nlmsg_flags = flags;
    header_.nlmsg_seq = kSequence;
    bytes_.resize(sizeof header_);
  }
  Message& u32(std::uint16_t type, std::uint32_t value) { return put(type, &value, sizeof value); }
  Message& text(std::uint16_t type, const char* value) {
    return put(type, value, std::strlen(value) + 1);
  }
  std::vector<std::byte> bytes() {
    header_.nlmsg_len = static_cast<std::uint32_t>(bytes_.size());
    std::memcpy(bytes_.data(), &header_, sizeof header_);
    return bytes_;
  }

 private:
  Message& put(std::uint16_t type, const void* value, std::size_t size) {
    nlattr attribute{};
    attribute.nla_type = type;
    attribute.nla_len = static_cast<std::uint16_t>(sizeof attribute + size);
    const auto at = bytes_.size();
    bytes_.resize(at + NLMSG_ALIGN(attribute.nla_len));
    std::memcpy(&bytes_[at], &attribute, sizeof attribute);
    std::memcpy(&bytes_[at + sizeof attribute], value, size);
    return *this;
  }
  nlmsghdr header_{};
  std::vector<std::byte> bytes_;
};

/// All messages of all datagrams. The datagrams must outlive them.
std::vector<Request> messages(const Replies::Datagrams& datagrams) {
  std::vector<Request> all;
  for (const auto& datagram : datagrams) {
    Bytes rest(datagram);
    while (auto one = take_request(rest)) {
      EXPECT_EQ(one->header.nlmsg_seq, kSequence);
      EXPECT_EQ(one->header.nlmsg_pid, kPort);
      all.push_back(*std::move(one));
    }
    EXPECT_TRUE(rest.empty());
  }
  return all;
}
std::vector<Request> messages(Replies::Datagrams&&) = delete;

/// The error of a datagram that holds one NLMSG_ERROR.
int error_of(const std::vector<std::byte>& datagram) {
  nlmsghdr header;
  nlmsgerr error;
  EXPECT_EQ(datagram.size(), sizeof header + sizeof error);
  std::memcpy(&header, datagram.data(), sizeof header);
  EXPECT_EQ(header.nlmsg_type, NLMSG_ERROR);
  std::memcpy(&error, datagram.data() + sizeof header, sizeof error);
  EXPECT_EQ(error.msg.nlmsg_seq, kSequence);
  return -error.error;
}

std::uint64_t u64(const Request& message, std::uint16_t type) {
  std::uint64_t value = 0;
  const auto at = message.attributes.find(type);
  EXPECT_TRUE(at != message.attributes.end() && at->second.size() == sizeof value);
  if (at != message.attributes.end()) std::memcpy(&value, at->second.data(), sizeof value);
  return value;
}

Replies::Datagrams ask(Message message) {
  const auto bytes = message.bytes();
  return answer(bytes, kPort, two_devices());
}

TEST(Nldev, ADumpOfDevicesReportsEachAndEnds) {
  const auto told = ask({type_of(RDMA_NLDEV_CMD_GET), NLM_F_REQUEST | NLM_F_ACK | NLM_F_DUMP});
  const auto all = messages(told);
  ASSERT_THAT(all, SizeIs(3));
  for (std::uint32_t i = 0; i != 2; ++i) {
    EXPECT_EQ(all[i].header.nlmsg_type, type_of(RDMA_NLDEV_CMD_GET));
    EXPECT_EQ(all[i].header.nlmsg_flags, NLM_F_MULTI);
    EXPECT_EQ(all[i].u32(RDMA_NLDEV_ATTR_DEV_INDEX), i);
    EXPECT_EQ(all[i].text(RDMA_NLDEV_ATTR_DEV_NAME), i == 0 ? "mlx5_0" : "mlx5_1");
    EXPECT_EQ(all[i].u32(RDMA_NLDEV_ATTR_PORT_INDEX), 1U) << "so many ports";
    EXPECT_EQ(u64(all[i], RDMA_NLDEV_ATTR_NODE_GUID), 0x0200'00ff'fe00'0000U + i);
    EXPECT_EQ(u64(all[i], RDMA_NLDEV_ATTR_CAP_FLAGS), 0x1234U);
    EXPECT_THAT(all[i].attributes.at(RDMA_NLDEV_ATTR_DEV_DIM), ElementsAre(std::byte{1}));
  }
  EXPECT_EQ(all[2].header.nlmsg_type, NLMSG_DONE);
}

TEST(Nldev, ADumpOfManyDevicesIsInDatagramsThatAReaderHasRoomFor) {
  auto system = two_devices();
  system.devices.resize(32, system.devices.front());
  Message message(type_of(RDMA_NLDEV_CMD_GET), NLM_F_REQUEST | NLM_F_DUMP);
  const auto told = answer(message.bytes(), kPort, system);
  EXPECT_GT(told.size(), 1U);
  for (const auto& datagram : told) EXPECT_LE(datagram.size(), 4096U);
  EXPECT_THAT(messages(told), SizeIs(33));
}

TEST(Nldev, APortIsReportedAndAcknowledgedInADatagramOfItsOwn) {
  const auto told = ask(Message(type_of(RDMA_NLDEV_CMD_PORT_GET), NLM_F_REQUEST | NLM_F_ACK)
                            .u32(RDMA_NLDEV_ATTR_DEV_INDEX, 1)
                            .u32(RDMA_NLDEV_ATTR_PORT_INDEX, 1));
  ASSERT_THAT(told, SizeIs(2));
  const auto all = messages(told);
  EXPECT_EQ(all[0].text(RDMA_NLDEV_ATTR_DEV_NAME), "mlx5_1");
  EXPECT_THAT(all[0].attributes.at(RDMA_NLDEV_ATTR_PORT_STATE), ElementsAre(std::byte{4}));
  EXPECT_THAT(all[0].attributes.at(RDMA_NLDEV_ATTR_PORT_PHYS_STATE), ElementsAre(std::byte{5}));
  EXPECT_EQ(all[0].u32(RDMA_NLDEV_ATTR_NDEV_INDEX), 1U);
  EXPECT_EQ(all[0].text(RDMA_NLDEV_ATTR_NDEV_NAME), "lo");
  EXPECT_EQ(error_of(told[1]), 0);
}

TEST(Nldev, APortWithoutAnInterfaceReportsNone) {
  const auto told = ask(Message(type_of(RDMA_NLDEV_CMD_PORT_GET), NLM_F_REQUEST)
                            .u32(RDMA_NLDEV_ATTR_DEV_INDEX, 0)
                            .u32(RDMA_NLDEV_ATTR_PORT_INDEX, 1));
  const auto all = messages(told);
  ASSERT_THAT(all, SizeIs(1));
  EXPECT_FALSE(all[0].attributes.contains(RDMA_NLDEV_ATTR_NDEV_INDEX));
}

TEST(Nldev, TheDeviceFileOfADeviceAndThatOfTheConnectionManagerAreReported) {
  const auto of_device = ask(Message(type_of(RDMA_NLDEV_CMD_GET_CHARDEV), NLM_F_REQUEST)
                                 .u32(RDMA_NLDEV_ATTR_DEV_INDEX, 1)
                                 .text(RDMA_NLDEV_ATTR_CHARDEV_TYPE, "uverbs"));
  const auto uverbs = messages(of_device);
  ASSERT_THAT(uverbs, SizeIs(1));
  EXPECT_EQ(uverbs[0].text(RDMA_NLDEV_ATTR_CHARDEV_NAME), "uverbs1");
  // huge_encode_dev of 231:193.
  EXPECT_EQ(u64(uverbs[0], RDMA_NLDEV_ATTR_CHARDEV), (231U << 8) + 193U);
  EXPECT_EQ(u64(uverbs[0], RDMA_NLDEV_ATTR_CHARDEV_ABI), 1U);
  const auto of_all = ask(Message(type_of(RDMA_NLDEV_CMD_GET_CHARDEV), NLM_F_REQUEST)
                              .text(RDMA_NLDEV_ATTR_CHARDEV_TYPE, "rdma_cm"));
  const auto manager = messages(of_all);
  ASSERT_THAT(manager, SizeIs(1));
  EXPECT_EQ(manager[0].text(RDMA_NLDEV_ATTR_CHARDEV_NAME), "rdma_cm");
}

// `rdma dev show -d` and libibverbs identify a device by these attributes.
TEST(Nldev, ADeviceReportsItsFirmwareItsKindAndItsProtocol) {
  const auto told =
      ask(Message(type_of(RDMA_NLDEV_CMD_GET), NLM_F_REQUEST).u32(RDMA_NLDEV_ATTR_DEV_INDEX, 1));
  const auto all = messages(told);
  ASSERT_THAT(all, SizeIs(1));
  EXPECT_EQ(all[0].header.nlmsg_flags, 0) << "it is no dump";
  EXPECT_EQ(all[0].text(RDMA_NLDEV_ATTR_DEV_NAME), "mlx5_1");
  EXPECT_EQ(all[0].text(RDMA_NLDEV_ATTR_FW_VERSION), "12.28.2006");
  EXPECT_EQ(u64(all[0], RDMA_NLDEV_ATTR_SYS_IMAGE_GUID), 0x0200'00ff'fe00'0001U);
  EXPECT_THAT(all[0].attributes.at(RDMA_NLDEV_ATTR_DEV_NODE_TYPE), ElementsAre(std::byte{1}));
  EXPECT_EQ(all[0].text(RDMA_NLDEV_ATTR_DEV_PROTOCOL), "roce");
}

TEST(Nldev, ADumpOfThePortsOfADeviceHasItsPortAndAnEnd) {
  const auto told = ask(Message(type_of(RDMA_NLDEV_CMD_PORT_GET), NLM_F_REQUEST | NLM_F_DUMP)
                            .u32(RDMA_NLDEV_ATTR_DEV_INDEX, 1));
  const auto all = messages(told);
  ASSERT_THAT(all, SizeIs(2));
  EXPECT_EQ(all[0].header.nlmsg_flags, NLM_F_MULTI);
  EXPECT_EQ(all[0].u32(RDMA_NLDEV_ATTR_PORT_INDEX), 1U);
  EXPECT_EQ(all[1].header.nlmsg_type, NLMSG_DONE);
}

TEST(Nldev, DeviceFilesAreReportedWithTheirNumbersAndTheirDriver) {
  auto system = two_devices();
  system.devices[0].uverbs.number = ::makedev(231, 0x12345);
  Replies::Datagrams told;
  const auto file = [&](Message message) {
    const auto bytes = message.bytes();
    told = answer(bytes, kPort, system);
    return messages(told).at(0);
  };
  const auto uverbs = file(Message(type_of(RDMA_NLDEV_CMD_GET_CHARDEV), NLM_F_REQUEST)
                               .u32(RDMA_NLDEV_ATTR_DEV_INDEX, 0)
                               .text(RDMA_NLDEV_ATTR_CHARDEV_TYPE, "uverbs"));
  EXPECT_EQ(u64(uverbs, RDMA_NLDEV_ATTR_CHARDEV), 0x123'0e745U) << "huge_encode_dev";
  EXPECT_EQ(uverbs.u32(RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID), 1U) << "RDMA_DRIVER_MLX5";
  const auto manager = file(Message(type_of(RDMA_NLDEV_CMD_GET_CHARDEV), NLM_F_REQUEST)
                                .text(RDMA_NLDEV_ATTR_CHARDEV_TYPE, "rdma_cm"));
  EXPECT_EQ(u64(manager, RDMA_NLDEV_ATTR_CHARDEV), (10U << 8) + 58U);
  EXPECT_EQ(u64(manager, RDMA_NLDEV_ATTR_CHARDEV_ABI), 4U);
}

// `rdma system show` prints these.
TEST(Nldev, TheSystemSharesDevicesAndCopiesMemoryOnFork) {
  const auto told = ask({type_of(RDMA_NLDEV_CMD_SYS_GET), NLM_F_REQUEST});
  const auto all = messages(told);
  ASSERT_THAT(all, SizeIs(1));
  EXPECT_THAT(all[0].attributes.at(RDMA_NLDEV_SYS_ATTR_NETNS_MODE), ElementsAre(std::byte{1}));
  EXPECT_THAT(all[0].attributes.at(RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK), ElementsAre(std::byte{1}));
}

TEST(Nldev, AMessageThatIsNoRequestIsSkipped) {
  EXPECT_THAT(ask({type_of(RDMA_NLDEV_CMD_GET), NLM_F_DUMP}), SizeIs(0));
}

TEST(Nldev, MissingObjectsAreRefusedAsByLinux) {
  struct Case {
    Message message;
    int error;
  };
  const std::uint16_t request = NLM_F_REQUEST;
  Case cases[] = {
      {{type_of(RDMA_NLDEV_CMD_GET), request}, EINVAL},
      {Message(type_of(RDMA_NLDEV_CMD_GET), request).u32(RDMA_NLDEV_ATTR_DEV_INDEX, 2), EINVAL},
      {Message(type_of(RDMA_NLDEV_CMD_PORT_GET), request)
           .u32(RDMA_NLDEV_ATTR_DEV_INDEX, 0)
           .u32(RDMA_NLDEV_ATTR_PORT_INDEX, 2),
       EINVAL},
      {Message(type_of(RDMA_NLDEV_CMD_GET_CHARDEV), request)
           .u32(RDMA_NLDEV_ATTR_DEV_INDEX, 0)
           .text(RDMA_NLDEV_ATTR_CHARDEV_TYPE, "umad"),
       ENOENT},
      {Message(type_of(RDMA_NLDEV_CMD_GET_CHARDEV), request)
           .text(RDMA_NLDEV_ATTR_CHARDEV_TYPE, "issm"),
       ENOENT},
      {{type_of(RDMA_NLDEV_CMD_GET_CHARDEV), request}, EINVAL},
      {{type_of(RDMA_NLDEV_CMD_SET), request}, EOPNOTSUPP},
      {{type_of(RDMA_NLDEV_CMD_RES_GET), request | NLM_F_DUMP}, EOPNOTSUPP},
      {{static_cast<std::uint16_t>(RDMA_NL_GET_TYPE(RDMA_NL_LS, 0)), request}, EINVAL},
  };
  for (auto& [message, error] : cases) {
    const auto told = ask(message);
    ASSERT_THAT(told, SizeIs(1));
    EXPECT_EQ(error_of(told[0]), error);
  }
}

TEST(Nldev, AnythingAtAllIsAnsweredOrPassedOver) {
  std::mt19937_64 random(7);
  const auto good = Message(type_of(RDMA_NLDEV_CMD_GET_CHARDEV), NLM_F_REQUEST)
                        .u32(RDMA_NLDEV_ATTR_DEV_INDEX, 0)
                        .text(RDMA_NLDEV_ATTR_CHARDEV_TYPE, "uverbs")
                        .bytes();
  for (int i = 0; i != 20'000; ++i) {
    auto bytes = good;
    bytes.resize(random() % (good.size() + 1));
    for (auto changes = random() % 4; !bytes.empty() && changes != 0; --changes) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    // A copy of exactly this size, so that a sanitizer reports reads beyond it.
    const std::vector<std::byte> exact(bytes.begin(), bytes.end());
    for (const auto& datagram : answer(exact, kPort, two_devices())) {
      EXPECT_LE(datagram.size(), 4096U);
    }
  }
}

}  // namespace
}  // namespace softhca::door::nldev
