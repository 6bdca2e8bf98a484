// A host with an IPv6 and an IPv4 address, whatever the machine's own tables say. To be included
// once in a program: it replaces getaddrinfo().
#pragma once

#include <dlfcn.h>
#include <netdb.h>

#include <string_view>

namespace softhca::trunk {
/// Its addresses are ::1, which comes first, and 127.0.0.1.
inline constexpr const char* kTwoFamilies = "two-families.test";
}  // namespace softhca::trunk

extern "C" int getaddrinfo(const char* name, const char* service, const addrinfo* hints,
                           addrinfo** found) {
  using Call = int(const char*, const char*, const addrinfo*, addrinfo**);
  static auto* const libc = reinterpret_cast<Call*>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  if (name == nullptr || std::string_view(name) != softhca::trunk::kTwoFamilies) {
    return libc(name, service, hints, found);
  }
  auto numeric = *hints;
  numeric.ai_flags = AI_NUMERICHOST;
  return libc(hints->ai_family == AF_INET ? "127.0.0.1" : "::1", service, &numeric, found);
}
