#pragma once
// Whether more than one SQLite is in this process. A POSIX lock belongs to the process, and closing any descriptor of a
// file drops the process's locks on it: one copy takes care of that for its own connections, and knows nothing of those
// of another copy.

#include <string>
#include <vector>

namespace crossover::db {

struct SqliteCopies {
  std::string ours;                 // path of the loaded object whose functions the store calls
  std::vector<std::string> others;  // of those that export SQLite's functions besides; sorted
};

// Looks at the objects that are loaded now. Any thread; opens and loads nothing.
SqliteCopies sqlite_copies();

}  // namespace crossover::db
