# Build options, and what every target of ours is compiled with.

option(CROSSOVER_BUILD_TOOLS "Build the crossover program and the benchmarks" ON)
option(CROSSOVER_BUILD_TESTS "Build the tests" ON)
option(CROSSOVER_WERROR "Treat warnings as errors" OFF)
set(CROSSOVER_SANITIZE "" CACHE STRING "Sanitizers for every target, as -fsanitize= takes them")
set(CROSSOVER_CUDA AUTO CACHE STRING "CUDA back end and arms: AUTO (when a compiler is found), ON (an error without one), OFF")
set_property(CACHE CROSSOVER_CUDA PROPERTY STRINGS AUTO ON OFF)

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

find_package(Threads REQUIRED)

# Designated initialisers leave members to their defaults on purpose.
# Linked PRIVATE by every target of ours; not part of any interface.
add_library(crossover_build INTERFACE)
target_compile_options(crossover_build INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wconversion;-Wnon-virtual-dtor;-Wold-style-cast;-Wno-missing-field-initializers>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${CROSSOVER_WERROR}>>:-Werror>
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off;-ffile-prefix-map=${CMAKE_SOURCE_DIR}/=>)
if(CROSSOVER_SANITIZE)
  target_compile_options(crossover_build INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${CROSSOVER_SANITIZE};-fno-omit-frame-pointer;-fno-sanitize-recover=all>)
  add_link_options(-fsanitize=${CROSSOVER_SANITIZE})
endif()
