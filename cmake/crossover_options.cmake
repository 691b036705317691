# Build options, what every target of ours is compiled with, and where third-party packages come from.

option(CROSSOVER_BUILD_TOOLS "Build the crossover program" ON)
option(CROSSOVER_BUILD_BENCHMARK "Build crossover_benchmark" ON)
option(CROSSOVER_BUILD_TESTS "Build the tests" ON)
option(CROSSOVER_WERROR "Treat warnings as errors" OFF)
option(CROSSOVER_CCACHE "Compile through ccache where it is installed" ON)
option(CROSSOVER_STATIC_DEPENDENCIES
  "Link third-party libraries statically and strip, for programs that are carried to another machine" OFF)
set(CROSSOVER_SANITIZE "" CACHE STRING "Sanitizers for every target, as -fsanitize= takes them")
set(CROSSOVER_CUDA AUTO CACHE STRING
  "CUDA back end and arms: AUTO (when a compiler is found), ON (an error without one), OFF")
set(CROSSOVER_OPENBLAS AUTO CACHE STRING
  "The arms that call OpenBLAS: AUTO (when it is found), ON (an error without it), OFF")
foreach(option IN ITEMS CROSSOVER_CUDA CROSSOVER_OPENBLAS)
  set_property(CACHE ${option} PROPERTY STRINGS AUTO ON OFF)
  if(NOT ${option} MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "${option} is '${${option}}'; valid: AUTO, ON, OFF")
  endif()
endforeach()

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Build type" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

include(GNUInstallDirs)

if(CROSSOVER_CCACHE)
  find_program(CROSSOVER_CCACHE_PROGRAM ccache)
  mark_as_advanced(CROSSOVER_CCACHE_PROGRAM)
  if(CROSSOVER_CCACHE_PROGRAM)
    foreach(language IN ITEMS CXX CUDA)
      if(NOT CMAKE_${language}_COMPILER_LAUNCHER)
        set(CMAKE_${language}_COMPILER_LAUNCHER ${CROSSOVER_CCACHE_PROGRAM})
      endif()
    endforeach()
  endif()
endif()

if(CROSSOVER_STATIC_DEPENDENCIES)
  include(crossover_static)
endif()
set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)  # what a folder finds, the installed package must be able to name
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
include(crossover_cuda)

# Linked PRIVATE by every target of ours; not part of any interface, and not installed. Designated initialisers leave
# members to their defaults on purpose.
add_library(crossover_build INTERFACE)
target_compile_options(crossover_build INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wconversion;-Wnon-virtual-dtor;-Wold-style-cast;-Wno-missing-field-initializers>
  # clang counts signs to -Wconversion, gcc does not: the same warnings from both.
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:Clang>>:-Wno-sign-conversion>
  # gcc 12 cries wolf about std::variant, std::optional and std::string; clang and the sanitizers look for the real thing.
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-Wno-maybe-uninitialized;-Wno-restrict>
  # Sources that are compiled as one: a file's own types look as if another file could see them.
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>,$<BOOL:${CMAKE_UNITY_BUILD}>>:-Wno-subobject-linkage>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${CROSSOVER_WERROR}>>:-Werror>
  $<$<COMPILE_LANGUAGE:C>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wconversion;-Wstrict-prototypes;-Wno-missing-field-initializers>
  $<$<AND:$<COMPILE_LANGUAGE:C>,$<BOOL:${CROSSOVER_WERROR}>>:-Werror>
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>
  # Nothing that is installed names the folder it was built in. The last one that matches wins.
  # nvcc hands the map to a shell as it is, hence the inner quotes.
  $<$<COMPILE_LANGUAGE:CXX>:-ffile-prefix-map=${CMAKE_SOURCE_DIR}=.>
  $<$<COMPILE_LANGUAGE:CXX>:-ffile-prefix-map=${CMAKE_SOURCE_DIR}/=>
  $<$<COMPILE_LANGUAGE:CXX>:-ffile-prefix-map=${CMAKE_BINARY_DIR}=build>
  "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-ffile-prefix-map=\"${CMAKE_SOURCE_DIR}\"=.>"
  "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-ffile-prefix-map=\"${CMAKE_SOURCE_DIR}\"/=>"
  "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-ffile-prefix-map=\"${CMAKE_BINARY_DIR}\"=build>"
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Wshadow>
  $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${CROSSOVER_WERROR}>>:-Werror=all-warnings;-Xcompiler=-Werror>)
if(CROSSOVER_SANITIZE)
  target_compile_options(crossover_build INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${CROSSOVER_SANITIZE};-fno-omit-frame-pointer;-fno-sanitize-recover=all>)
  add_link_options(-fsanitize=${CROSSOVER_SANITIZE})
endif()
