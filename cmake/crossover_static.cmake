# Third-party libraries as archives, the C++ run-time library included: the programs then need the C library alone.
# Comes before any find_package of a folder, whose calls then find what is set here.

set(CMAKE_FIND_LIBRARY_SUFFIXES .a .so)
set(Boost_USE_STATIC_LIBS ON)
set(SQLite3_USE_STATIC_LIBS ON)
add_link_options(-static-libstdc++ -static-libgcc LINKER:--strip-all)

# fmt: Debian has no archive of it, but all of it is in its headers. Both names, because fmt's own package file wants
# either none or all of its targets to be there.
find_path(CROSSOVER_FMT_INCLUDE_DIR fmt/format.h REQUIRED)
mark_as_advanced(CROSSOVER_FMT_INCLUDE_DIR)
foreach(name IN ITEMS fmt::fmt fmt::fmt-header-only)
  add_library(${name} INTERFACE IMPORTED GLOBAL)
  target_include_directories(${name} INTERFACE ${CROSSOVER_FMT_INCLUDE_DIR})
  target_compile_definitions(${name} INTERFACE FMT_HEADER_ONLY=1)
endforeach()
