/* Stands in for a library that brings a copy of SQLite and exports it. */
const char* sqlite3_libversion(void);
int sqlite3_open_v2(const char* path, void** database, int flags, const char* file_system);

const char* sqlite3_libversion(void) { return "0.0.0"; }

int sqlite3_open_v2(const char* path, void** database, int flags, const char* file_system) {
  (void)path, (void)database, (void)flags, (void)file_system;
  return 1;
}
