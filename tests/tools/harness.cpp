#include "harness.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <grp.h>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace crossover::testing {
namespace {

[[noreturn]] void become(const Invocation& invocation, const std::string& out, const std::string& err,
                         const std::vector<const char*>& arguments, const std::vector<const char*>& environment) {
  const int error_fd = ::open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  ::dup2(error_fd, STDERR_FILENO);
  const int in_fd = ::open("/dev/null", O_RDONLY);
  ::dup2(in_fd, STDIN_FILENO);
  if (invocation.close_out) {
    ::close(STDOUT_FILENO);
  } else if (invocation.close_reader) {
    int ends[2];
    if (::pipe(ends) != 0) ::_exit(126);
    ::close(ends[0]);
    ::dup2(ends[1], STDOUT_FILENO);
    ::close(ends[1]);
  } else {
    const std::string& path = invocation.out_path.empty() ? out : invocation.out_path;
    const int out_fd = ::open(path.c_str(), O_WRONLY | O_CREAT, 0600);
    ::dup2(out_fd, STDOUT_FILENO);
  }
  ::signal(SIGPIPE, SIG_DFL);
  if (invocation.address_space != 0) {
    const rlimit limit{invocation.address_space, invocation.address_space};
    if (::setrlimit(RLIMIT_AS, &limit) != 0) ::_exit(126);
  }
  if (invocation.user != 0) {
    if (::setgroups(0, nullptr) != 0 || ::setgid(invocation.user) != 0 || ::setuid(invocation.user) != 0) ::_exit(126);
  }
  ::execve(CROSSOVER_PROGRAM, const_cast<char* const*>(arguments.data()), const_cast<char* const*>(environment.data()));
  ::_exit(127);
}

}  // namespace

Folder::Folder() {
  std::string name = (std::filesystem::temp_directory_path() / "crossover-test-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder can be made");
  path_ = name;
}

Folder::~Folder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

nlohmann::json Output::json() const {
  nlohmann::json document = nlohmann::json::parse(out, nullptr, false);
  if (document.is_discarded()) {
    ADD_FAILURE() << "not one JSON document: " << out << "\nstandard error: " << err;
    return nullptr;
  }
  return document;
}

Running::Running(const Invocation& invocation) {
  std::vector<const char*> arguments{CROSSOVER_PROGRAM};
  for (const std::string& each : invocation.arguments) arguments.push_back(each.c_str());
  arguments.push_back(nullptr);
  Environ variables_by_name{{"HOME", "/nonexistent"}};
  for (const char* name : {"PATH", "ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS", "LSAN_OPTIONS"}) {
    if (const char* value = std::getenv(name)) variables_by_name[name] = value;
  }
  for (const auto& [name, value] : invocation.environment) variables_by_name[name] = value;
  std::vector<std::string> variables;
  for (const auto& [name, value] : variables_by_name) variables.push_back(name + "=" + value);
  std::vector<const char*> environment;
  for (const std::string& each : variables) environment.push_back(each.c_str());
  environment.push_back(nullptr);
  const std::string out = (folder_ / "out").string(), err = (folder_ / "err").string();
  pid_ = ::fork();
  if (pid_ == 0) become(invocation, out, err, arguments, environment);
  EXPECT_GT(pid_, 0);
}

Running::~Running() {
  if (pid_ <= 0 || reaped_) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, &status_, 0);
}

void Running::send(int signal) const { EXPECT_EQ(::kill(pid_, signal), 0); }

bool Running::finished() {
  if (!reaped_ && ::waitpid(pid_, &status_, WNOHANG) == pid_) reaped_ = true;
  return reaped_;
}

Output Running::wait() {
  while (!reaped_) {
    if (::waitpid(pid_, &status_, 0) == pid_)
      reaped_ = true;
    else if (errno != EINTR)
      break;
  }
  Output output;
  output.code = WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  output.out = file_bytes(folder_ / "out");
  output.err = file_bytes(folder_ / "err");
  return output;
}

Output run(const Invocation& invocation) { return Running(invocation).wait(); }

Output run(std::vector<std::string> arguments, Environ environment) {
  return run(Invocation{.arguments = std::move(arguments), .environment = std::move(environment)});
}

std::string file_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

void write_file(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << bytes;
  ASSERT_TRUE(file.flush().good()) << path;
}

std::map<std::string, std::string> snapshot(const std::filesystem::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const auto time = entry.last_write_time().time_since_epoch().count();
    files[entry.path().string()] =
        std::to_string(time) + " " + (entry.is_regular_file() ? file_bytes(entry.path()) : std::string());
  }
  return files;
}

}  // namespace crossover::testing
