#pragma once
// From a path to a connection: what may be opened, how a file comes into being, and how it moves to a new version.

#include <filesystem>
#include <memory>

#include "schema.hpp"
#include "sqlite.hpp"

namespace crossover::db {

// For reading: changes nothing and creates nothing. Null where there is no file, or one of no bytes. Throws StoreError.
std::unique_ptr<Connection> open_reader(const std::filesystem::path& path, const Schema& schema);

// For writing: creates folders, file and tables where they are missing, recovers what a crash left, migrates an older
// file (after a copy of it, "PATH.v<version>.backup"), and checks the whole file's structure. Throws StoreError; then a
// file that was there is as it was.
std::unique_ptr<Connection> open_writer(const std::filesystem::path& path, const Schema& schema);

// Throws the StoreError that open_writer would throw for a file that is not there yet and cannot be created. Creates
// the folders that are missing, and no file.
void check_creatable(const std::filesystem::path& path);

// A database that dies with its connection.
std::unique_ptr<Connection> open_memory(const Schema& schema);

}  // namespace crossover::db
