#pragma once
// A file of problem sizes: lines "N,K", or columns that a header names ("model,layer,N,K,note"). Lines that are empty
// or begin with # do not count.

#include <filesystem>
#include <string>
#include <vector>

#include "crossover/dispatch/problem.hpp"

namespace crossover::program {

struct Shape {
  std::string label;  // what the other columns call it; may be empty
  std::size_t line = 0;
  Problem problem;  // not normalised
};

// Throws InvalidArgument that names the file and the line. Never returns an empty list.
std::vector<Shape> read_shapes(const std::filesystem::path& path);

}  // namespace crossover::program
