#include "crossover/db/claim.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <set>
#include <utility>

namespace crossover {
namespace {

// The descriptors that claims hold. A child of fork() would share their locks, and keep them beyond its parent's death:
// it closes them at once.
class Held {
 public:
  static Held& instance() {
    static Held* const held = new Held;  // never destroyed: claims with static storage duration outlive it otherwise
    return *held;
  }
  void add(int descriptor) {
    const std::lock_guard lock(mutex_);
    descriptors_.insert(descriptor);
  }
  // Closes it if it is still this process's.
  void close(int descriptor) {
    const std::lock_guard lock(mutex_);
    if (descriptors_.erase(descriptor) > 0) ::close(descriptor);
  }

 private:
  Held() { ::pthread_atfork(&Held::before, &Held::in_parent, &Held::in_child); }
  static void before() { instance().mutex_.lock(); }
  static void in_parent() { instance().mutex_.unlock(); }
  static void in_child() {
    for (const int descriptor : instance().descriptors_) ::close(descriptor);
    instance().descriptors_.clear();
    in_parent();
  }
  std::mutex mutex_;
  std::set<int> descriptors_;
};

}  // namespace

Claim::Claim(int descriptor) : descriptor_(descriptor) { Held::instance().add(descriptor); }
Claim::Claim(Claim&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
Claim& Claim::operator=(Claim&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}
Claim::~Claim() {
  if (descriptor_ >= 0) Held::instance().close(descriptor_);
}

std::optional<Claim> claim_gpu(const std::string& uuid) {
  if (uuid.empty()) return Claim();
  // A name in the abstract namespace: no file that could be left behind, and no rights to one that could be missing.
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = "crossover.tuning." + uuid;
  const std::size_t length = std::min(name.size(), sizeof(address.sun_path) - 1);
  std::memcpy(address.sun_path + 1, name.data(), length);
  const int descriptor = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return Claim();  // a host without sockets: nobody else has one either
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  if (::bind(descriptor, reinterpret_cast<const sockaddr*>(&address), size) == 0) return Claim(descriptor);
  const bool taken = errno == EADDRINUSE;
  ::close(descriptor);
  if (taken) return std::nullopt;
  return Claim();
}

}  // namespace crossover
