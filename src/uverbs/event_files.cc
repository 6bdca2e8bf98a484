#include "uverbs/event_files.h"

#include <rdma/ib_user_ioctl_verbs.h>

#include <cerrno>
#include <utility>

#include "uverbs/abi.h"

namespace softhca::uverbs {

namespace {

using namespace rules;

constexpr AttributeRule kAsyncEvents[] = {new_descriptor(UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE)};

}  // namespace

std::span<const Method<EventFiles>> EventFiles::methods() {
  static constexpr Method<EventFiles> kMethods[] = {
      {UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC, kAsyncEvents,
       &EventFiles::alloc_async_events},
  };
  return kMethods;
}

std::span<const WriteCommand<EventFiles>> EventFiles::write_commands() {
  static constexpr WriteCommand<EventFiles> kCommands[] = {
      {{IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, 8, 4}, &EventFiles::create_comp_channel},
  };
  return kCommands;
}

Errno EventFiles::make(std::size_t record, std::shared_ptr<EventFile>& file, int& number) {
  auto pipe = EventPipe::create(record, EventPipe::Reads::kMany, wait_);
  if (!pipe) return EMFILE;
  file = std::make_shared<EventFile>(*std::move(pipe));
  number = options_.give(file->pipe.take_reader());
  return number < 0 ? -number : 0;
}

Errno EventFiles::alloc_async_events(Request& request) {
  std::shared_ptr<EventFile> file;
  int number = 0;
  if (const auto wrong = make(sizeof(ib_uverbs_async_event_desc), file, number); wrong != 0) {
    return wrong;
  }
  const auto wrong = request.put_number(UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, number);
  if (wrong != 0) {
    options_.take_back(number);
    return wrong;
  }
  if (async_ == nullptr) async_ = file;
  async_files_[options_.identify(number)] = std::move(file);
  return 0;
}

Errno EventFiles::create_comp_channel(Request& request) {
  std::shared_ptr<EventFile> file;
  int number = 0;
  if (const auto wrong = make(sizeof(ib_uverbs_comp_event_desc), file, number); wrong != 0) {
    return wrong;
  }
  const auto wrong = request.put(
      kCoreOut, ib_uverbs_create_comp_channel_resp{.fd = static_cast<std::uint32_t>(number)});
  if (wrong != 0) {
    options_.take_back(number);
    return wrong;
  }
  channels_[options_.identify(number)] = std::move(file);
  return 0;
}

/// ib_uverbs_get_async_event: a context that a program imports (ibv_import_device) has a descriptor
/// of its own.
Errno EventFiles::find_async(const Request& request, std::uint16_t attribute,
                             std::shared_ptr<EventFile>& file) const {
  file = async_;
  if (!request.has(attribute)) return 0;
  const auto number = static_cast<int>(request.number(attribute));
  const auto named = async_files_.find(options_.identify(number));
  if (named == async_files_.end()) return EBADF;
  file = named->second;
  return 0;
}

std::shared_ptr<EventFile> EventFiles::find_channel(int number) const {
  const auto channel = channels_.find(options_.identify(number));
  return channel == channels_.end() ? nullptr : channel->second;
}

void EventFiles::report_port_event(PortEvent event) {
  const ib_uverbs_async_event_desc record{
      .element = kPort1, .event_type = static_cast<std::uint32_t>(event), .reserved = 0};
  for (auto& [identity, file] : async_files_) {
    file->pipe.write(std::as_bytes(std::span(&record, 1)));
  }
}

void EventFiles::flush() {
  // A program may have thousands of channels, and their pipes are rarely full.
  if (!std::exchange(*wait_, false)) return;
  for (auto& [identity, file] : async_files_) file->pipe.flush();
  for (auto& [identity, file] : channels_) file->pipe.flush();
}

/// The work of the kernel's release() of these descriptors.
void EventFiles::drop_closed() {
  // Objects that send their events there keep their reference.
  if (async_ != nullptr && async_->pipe.closed()) async_.reset();
  const auto is_closed = [](const auto& entry) { return entry.second->pipe.closed(); };
  std::erase_if(async_files_, is_closed);
  std::erase_if(channels_, is_closed);
}

}  // namespace softhca::uverbs
