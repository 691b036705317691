# Reads every #include line under ROOT and compares it with what its folder may depend on.
#   cmake -DROOT=… [-DEXPECT_VIOLATIONS=ON] -P check_includes.cmake
# With EXPECT_VIOLATIONS every file must hold one and the script fails for those that do not.

# Per folder, first match wins: the includes that are refused, as a regular expression of what stands between the
# delimiters; after "only:" those that are not refused.
set(sqlite "sqlite3[^/]*\\.h")
set(cuda "(cuda|cublas|nvml|cooperative_groups|cub/|thrust/)[^/]*")
set(rules
  "dispatch/(runtime|c)/" "${sqlite}|gtest/.*|gmock/.*|benchmark/.*"
  "dispatch/"             "only:[a-z_0-9]+|crossover/dispatch/[a-z_]+\\.hpp|[a-z_]+\\.hpp"
  "db/"                   "crossover/(tuner|kernels|cuda|fp8_block_linear)/.*|crossover/runtime.*|${cuda}|boost/.*|.*cblas\\.h|gtest/.*"
  "tuner/"                "crossover/(kernels|cuda|fp8_block_linear)/.*|crossover/runtime.*|${sqlite}|${cuda}|boost/.*|.*cblas\\.h|gtest/.*"
  "kernels/"              "crossover/(db/.*|runtime.*)|crossover/tuner/tuner\\.hpp|${sqlite}|boost/.*|gtest/.*"
  "tools/"                "${sqlite}|gtest/.*")

cmake_policy(SET CMP0057 NEW)
set(sources "")
foreach(folder IN ITEMS dispatch db tuner kernels tools)
  foreach(extension IN ITEMS hpp cpp h c cu cuh)
    file(GLOB_RECURSE found RELATIVE ${ROOT} ${ROOT}/${folder}/*.${extension})
    list(APPEND sources ${found})
  endforeach()
endforeach()
if(NOT sources)
  message(FATAL_ERROR "no source under ${ROOT}")
endif()

set(violations "")
set(guilty "")
foreach(source IN LISTS sources)
  set(refused "")
  list(LENGTH rules length)
  math(EXPR last "${length} - 1")
  foreach(index RANGE 0 ${last} 2)
    list(GET rules ${index} folder)
    if(source MATCHES "^${folder}")
      math(EXPR index "${index} + 1")
      list(GET rules ${index} refused)
      break()
    endif()
  endforeach()
  file(STRINGS ${ROOT}/${source} lines REGEX "^[ \t]*#[ \t]*include[ \t]*[<\"]")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^[ \t]*#[ \t]*include[ \t]*[<\"]([^>\"]*)[>\"].*" "\\1" name "${line}")
    set(only FALSE)
    if(refused MATCHES "^only:(.*)")
      set(only TRUE)
      set(pattern "^(${CMAKE_MATCH_1})$")
    else()
      set(pattern "^(${refused})$")
    endif()
    if((only AND NOT name MATCHES "${pattern}") OR (NOT only AND name MATCHES "${pattern}"))
      list(APPEND violations "  ${source} may not include ${name}")
      list(APPEND guilty ${source})
    endif()
  endforeach()
endforeach()

list(LENGTH sources count)
if(EXPECT_VIOLATIONS)
  list(REMOVE_ITEM sources ${guilty})
  if(sources)
    message(FATAL_ERROR "the check sees nothing wrong with ${sources}")
  endif()
  message(STATUS "${count} violations found, as there should be")
elseif(violations)
  list(JOIN violations "\n" violations)
  message(FATAL_ERROR "Includes of what a folder may not depend on:\n${violations}")
else()
  message(STATUS "${count} sources include nothing they may not")
endif()
