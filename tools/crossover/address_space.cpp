// OpenBLAS starts its threads while the program is being loaded, and where the address space is limited (RLIMIT_AS,
// `ulimit -v`) and they do not fit, it tries again for ever (0.3.21). So this looks before any library's constructor
// runs.

#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace {

// What each thread after the first needs: its stack, its arena of malloc, its buffer of OpenBLAS. Found by trying: a
// small program starts in 60 MB with one thread, and with two in 200 MB but not in 150 MB.
constexpr rlim_t kThread = rlim_t{144} << 20;
constexpr int kMostThreads = 64;  // of Debian's build

// As atoi reads it, which is what OpenBLAS does; at most kMostThreads, and 0 where there is no number above 0.
int number(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || (text.front() >= '\t' && text.front() <= '\r')))
    text.remove_prefix(1);
  if (!text.empty() && text.front() == '+') text.remove_prefix(1);
  int value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') break;
    value = std::min(value * 10 + (c - '0'), kMostThreads);
  }
  return value;
}

// As OpenBLAS counts them.
int threads(char** environment) {
  cpu_set_t set;
  const int processors = ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : kMostThreads;
  int count = processors;
  for (const std::string_view name : {"OMP_NUM_THREADS=", "GOTO_NUM_THREADS=", "OPENBLAS_NUM_THREADS="}) {
    for (char** entry = environment; *entry != nullptr; ++entry) {
      const std::string_view text = *entry;
      if (!text.starts_with(name)) continue;
      if (const int asked = number(text.substr(name.size())); asked > 0) count = asked;
    }
  }
  return std::clamp(std::min(count, processors), 1, kMostThreads);  // it never starts more than there are processors
}

// The address space that is taken: by the program and its libraries, which are all mapped.
rlim_t taken() {
  char text[32] = {};
  const int file = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  const ssize_t size = ::read(file, text, sizeof text);
  ::close(file);
  rlim_t pages = 0;
  for (ssize_t i = 0; i < size && text[i] >= '0' && text[i] <= '9'; ++i)
    pages = pages * 10 + static_cast<rlim_t>(text[i] - '0');
  return pages * static_cast<rlim_t>(::getpagesize());
}

// Nothing is initialised yet but the C library's code itself: system calls only.
void check(int, char**, char** environment) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  const int more = threads(environment) - 1;
  if (more == 0 || limit.rlim_cur >= taken() + kThread * static_cast<rlim_t>(more)) return;
  constexpr std::string_view kSentence =
      "crossover: out of memory: the address space (ulimit -v) has no room for OpenBLAS's threads; raise it, or set "
      "OPENBLAS_NUM_THREADS=1\n";
  static_cast<void>(!::write(STDERR_FILENO, kSentence.data(), kSentence.size()));
  ::_exit(1);
}

[[gnu::section(".preinit_array"), gnu::used]] void (*const kCheck)(int, char**, char**) = check;

}  // namespace
