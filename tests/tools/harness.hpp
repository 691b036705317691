#pragma once
// Runs the built program in a folder and an environment of the test's own.

#include <sys/types.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace crossover::testing {

// A folder that goes away with the object.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

struct Output {
  int code = -1;  // exit code; 128 + number if a signal ended it
  std::string out, err;
  nlohmann::json json() const;  // all of `out`, which must be one document; fails the test and is null if it is not
};

using Environ = std::map<std::string, std::string>;

// One invocation. Nothing of the test's environment reaches it but PATH; HOME is a folder that does not exist.
struct Invocation {
  std::vector<std::string> arguments;
  Environ environment = {};
  std::string out_path = {};      // where standard output goes instead of Output::out
  bool close_out = false;         // standard output is not open at all
  bool close_reader = false;      // standard output is a pipe that nobody reads
  unsigned user = 0;              // run as this user, if not 0
  std::size_t address_space = 0;  // RLIMIT_AS in bytes, if not 0
};

// Starts it; wait_for() takes the output. Both fail the test if the system refuses.
class Running {
 public:
  explicit Running(const Invocation& invocation);
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  ~Running();
  void send(int signal) const;
  bool finished();
  Output wait();

 private:
  Folder folder_;
  pid_t pid_ = -1;
  int status_ = 0;
  bool reaped_ = false;
};

Output run(const Invocation& invocation);
Output run(std::vector<std::string> arguments, Environ environment = {});

std::string file_bytes(const std::filesystem::path& path);
void write_file(const std::filesystem::path& path, const std::string& bytes);
// Names of everything below `folder` with size and content, to see that nothing has changed.
std::map<std::string, std::string> snapshot(const std::filesystem::path& folder);

}  // namespace crossover::testing
