#include "uverbs/devx_channels.h"

#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "spec/connectx/eq.h"
#include "uverbs/devx_object.h"

namespace softhca::uverbs {

namespace spec = softhca::spec::connectx;
using Type = spec::event_type;

namespace {

using namespace rules;

constexpr AttributeRule kSubscribe[] = {
    descriptor(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_HANDLE, true),
    object(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE, false),
    in(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST, 2),
    value_in(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_NUM, 4, false),
    value_in(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_COOKIE, 8, false)};
constexpr AttributeRule kAllocAnswers[] = {
    new_descriptor(MLX5_IB_ATTR_DEVX_ASYNC_CMD_FD_ALLOC_HANDLE)};
constexpr AttributeRule kAllocEvents[] = {
    new_descriptor(MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE),
    flags_in(MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_FLAGS, true)};

constexpr std::size_t kTypesMax = 16;

/// The events of the device's capabilities (device_event_cap), and completions.
bool can_be_reported(std::uint16_t type, bool of_object) {
  switch (static_cast<Type>(type)) {
    case Type::COMPLETION:
    case Type::COMMUNICATION_ESTABLISHED:
    case Type::SQ_DRAINED:
    case Type::CQ_ERROR:
    case Type::LOCAL_WQ_CATASTROPHIC_ERROR:
    case Type::INVALID_REQUEST_LOCAL_WQ_ERROR:
    case Type::LOCAL_ACCESS_VIOLATION_WQ_ERROR:
    case Type::LOCAL_SRQ_CATASTROPHIC_ERROR:
    case Type::LAST_WQE_REACHED:
    case Type::SRQ_LIMIT:
    case Type::DCT_DRAINED:
    case Type::DCT_ACCESS_KEY_VIOLATION:
      return of_object && type < 256;
    case Type::PORT_STATE_CHANGE:
      return !of_object && type < 256;
    default:
      return false;
  }
}

bool is_eventfd(const os::UniqueFd& fd) {
  // /proc shows the kind of an anonymous inode.
  std::array<char, 64> target{};
  const auto name = "/proc/self/fd/" + std::to_string(fd.get());
  const auto size = ::readlink(name.c_str(), target.data(), target.size() - 1);
  return size > 0 &&
         std::string_view(target.data(), static_cast<std::size_t>(size)) == "anon_inode:[eventfd]";
}

}  // namespace

DevxChannels::~DevxChannels() { file_.device.subscriptions().remove(this); }

std::span<const Method<DevxChannels>> DevxChannels::methods() {
  static constexpr Method<DevxChannels> kMethods[] = {
      {MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT, kSubscribe,
       &DevxChannels::subscribe},
      {MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD, MLX5_IB_METHOD_DEVX_ASYNC_CMD_FD_ALLOC, kAllocAnswers,
       &DevxChannels::alloc_answers},
      {MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD, MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC, kAllocEvents,
       &DevxChannels::alloc_events},
  };
  return kMethods;
}

Errno DevxChannels::alloc_answers(Request& request) {
  auto made = DevxAnswers::create();
  if (!made) return EMFILE;
  auto answers = std::make_shared<DevxAnswers>(*std::move(made));
  const int number = options_.give(answers->take_reader());
  if (number < 0) return -number;
  const auto wrong = request.put_number(MLX5_IB_ATTR_DEVX_ASYNC_CMD_FD_ALLOC_HANDLE, number);
  if (wrong != 0) {
    options_.take_back(number);
    return wrong;
  }
  answers_[options_.identify(number)] = std::move(answers);
  return 0;
}

Errno DevxChannels::alloc_events(Request& request) {
  constexpr std::uint32_t kOmitData = MLX5_IB_UAPI_DEVX_CR_EV_CH_FLAGS_OMIT_DATA;
  const auto flags = request.get<std::uint32_t>(MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_FLAGS);
  if ((flags & ~kOmitData) != 0) return EINVAL;
  const bool omits_data = (flags & kOmitData) != 0;
  const auto size = sizeof(std::uint64_t) + (omits_data ? 0 : spec::eqe::kSize);
  auto pipe = EventPipe::create(size, EventPipe::Reads::kOne, wait_);
  if (!pipe) return EMFILE;
  auto channel = std::make_shared<DevxEventChannel>(DevxEventChannel{*std::move(pipe), omits_data});
  const int number = options_.give(channel->pipe.take_reader());
  if (number < 0) return -number;
  const auto wrong = request.put_number(MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE, number);
  if (wrong != 0) {
    options_.take_back(number);
    return wrong;
  }
  event_channels_[options_.identify(number)] = std::move(channel);
  return 0;
}

Errno DevxChannels::subscribe(Request& request) {
  if (file_.user.uid() == 0) return EINVAL;
  const DevxObject* object = nullptr;
  if (request.has(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE)) {
    const auto handle = request.number(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE);
    if (const auto missing = file_.objects.find(handle, object); missing != 0) return missing;
  }
  const auto number = request.number(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_HANDLE);
  const auto channel = event_channels_.find(options_.identify(static_cast<int>(number)));
  if (channel == event_channels_.end()) return EBADF;
  const bool to_eventfd = request.has(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_NUM);
  if (to_eventfd && request.has(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_COOKIE)) return EINVAL;
  const auto size = request.size(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST);
  if (size % sizeof(std::uint16_t) != 0 || size / sizeof(std::uint16_t) > kTypesMax) return EINVAL;
  std::vector<std::uint16_t> types(size / sizeof(std::uint16_t));
  if (const auto wrong = request.copy_in(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST,
                                         std::as_writable_bytes(std::span(types)));
      wrong != 0) {
    return wrong;
  }
  const auto good = [&](std::uint16_t type) { return can_be_reported(type, object != nullptr); };
  if (!std::ranges::all_of(types, good)) return EINVAL;
  std::shared_ptr<const os::UniqueFd> signals;
  std::uint64_t cookie = 0;
  if (to_eventfd) {
    const auto wanted = request.get<std::int32_t>(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_NUM);
    auto eventfd = options_.copy(wanted);
    if (!eventfd) return EBADF;
    if (!is_eventfd(eventfd)) return EINVAL;
    signals = std::make_shared<const os::UniqueFd>(std::move(eventfd));
  } else {
    cookie = request.get<std::uint64_t>(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_COOKIE);
  }
  for (const auto type : types) {
    auto subscription = signals ? std::make_shared<DevxSubscription>(channel->second, signals)
                                : std::make_shared<DevxSubscription>(channel->second, cookie);
    EventSubject subject{.type = static_cast<Type>(type), .object = {}};
    if (object != nullptr) subject.object = object->name;
    file_.device.subscriptions().add(this, subject, std::move(subscription));
  }
  return 0;
}

/// The work of the kernel's release() of these descriptors.
void DevxChannels::drop_closed() {
  std::erase_if(event_channels_, [this](const auto& entry) {
    const auto& channel = *entry.second;
    if (!channel.pipe.closed()) return false;
    file_.device.subscriptions().remove_if([&channel](const EventSubscriber& subscriber) {
      const auto* const one = dynamic_cast<const DevxSubscription*>(&subscriber);
      return one != nullptr && one->is_of(channel);
    });
    return true;
  });
  std::erase_if(answers_, [](const auto& entry) { return entry.second->closed(); });
}

std::shared_ptr<DevxAnswers> DevxChannels::find_answers(int number) const {
  const auto answers = answers_.find(options_.identify(number));
  return answers == answers_.end() ? nullptr : answers->second;
}

void DevxChannels::flush() {
  for (auto& [identity, answers] : answers_) answers->flush();
  if (!std::exchange(*wait_, false)) return;
  for (auto& [identity, channel] : event_channels_) channel->pipe.flush();
}

}  // namespace softhca::uverbs
