#include "constant.hpp"

// The file's name is part of what is compiled: as a project's own relative path, the same in every folder.
const char* arm_file() { return __FILE__; }
int arm(int value) { return value * kConstant; }
