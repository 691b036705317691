# Writes OUTPUT with what this build is: -DSOURCE_DIR -DVERSION -DCOMPILER -DOUTPUT.
set(commit unknown)
if(EXISTS ${SOURCE_DIR}/.git)   # not a repository that merely surrounds an unpacked release
  find_package(Git QUIET)
  if(Git_FOUND)
    execute_process(COMMAND ${GIT_EXECUTABLE} -C ${SOURCE_DIR} describe --always --dirty --abbrev=12 "--exclude=*"
      OUTPUT_VARIABLE described OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed ERROR_QUIET)
    if(NOT failed)
      set(commit ${described})
    endif()
  endif()
endif()
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT
[[#include "version.hpp"

namespace crossover::tuning {

const char* const kVersion = "@VERSION@";
const char* const kCommit = "@commit@";
const char* const kCompiler = "@COMPILER@";

}  // namespace crossover::tuning
]])
