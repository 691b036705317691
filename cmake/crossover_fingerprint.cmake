# Fingerprints of arms that run on the CPU: the digest of what the compiler sees (preprocessed sources without line markers,
# so comments and folders do not count), of the flags that shape its output, and of the compiler.
#
#   crossover_fingerprint(TARGET target NAME arm FUNCTION namespace::function SOURCES a.cpp b.cpp …)
#
# adds to `target` a generated source that defines `std::string_view namespace::function()`. The sources must belong to
# `target` in the calling folder, and all their flags that matter must be given by crossover_fixed_flags before.
#
#   crossover_fixed_flags(SOURCES a.cpp … [FLAGS -mavx2 …])
#
# compiles sources with the same code generation flags in every build type, so that a debug build runs, and fingerprints,
# the code of a release build. Sanitizers and flags that the user gave by CMAKE_CXX_FLAGS still count.

set(CROSSOVER_FIXED_FLAGS -O3 -ffp-contract=off -fno-fast-math)
set(CROSSOVER_FINGERPRINT_SCRIPT ${CMAKE_CURRENT_LIST_DIR}/crossover_fingerprint_digest.cmake)

function(crossover_fixed_flags)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "" "SOURCES;FLAGS")
  # After the build type's own flags, of which the last -O wins. NDEBUG is always the same as well.
  set_source_files_properties(${arg_SOURCES} PROPERTIES
    COMPILE_OPTIONS "${CROSSOVER_FIXED_FLAGS};-DNDEBUG;${arg_FLAGS}"
    CROSSOVER_FLAGS "${arg_FLAGS}")
endfunction()

function(crossover_fingerprint)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "TARGET;NAME;FUNCTION" "SOURCES")
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/fingerprints/${arg_NAME})
  file(MAKE_DIRECTORY ${folder})

  # What the user or a sanitizer adds. Optimisation level, debug information and NDEBUG of the build type are overridden.
  string(TOUPPER "${CMAKE_BUILD_TYPE}" build_type)
  separate_arguments(added UNIX_COMMAND "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${build_type}}")
  list(FILTER added EXCLUDE REGEX "^(-O.*|-g.*|-DNDEBUG|-W.*|-f(file|debug|macro)-prefix-map=.*|-fdiagnostics-.*)$")
  if(CROSSOVER_SANITIZE)
    list(APPEND added -fsanitize=${CROSSOVER_SANITIZE} -fno-omit-frame-pointer)
  endif()

  set(includes "$<TARGET_PROPERTY:${arg_TARGET},INCLUDE_DIRECTORIES>")
  set(definitions "$<TARGET_PROPERTY:${arg_TARGET},COMPILE_DEFINITIONS>")
  set(digested "")
  set(all_flags "")
  foreach(source IN LISTS arg_SOURCES)
    get_source_file_property(own ${source} CROSSOVER_FLAGS)
    if(NOT own)
      set(own "")
    endif()
    string(MAKE_C_IDENTIFIER ${source} identifier)
    set(output ${folder}/${identifier}.ii)
    set(flags -std=c++20 ${added} ${CROSSOVER_FIXED_FLAGS} -DNDEBUG ${own})
    add_custom_command(OUTPUT ${output}
      COMMAND ${CMAKE_CXX_COMPILER} ${flags}
              "$<$<BOOL:${includes}>:-I$<JOIN:${includes},;-I>>"
              "$<$<BOOL:${definitions}>:-D$<JOIN:${definitions},;-D>>"
              -ffile-prefix-map=${PROJECT_SOURCE_DIR}/= -E -P -MD -MF ${output}.d -MT ${output}
              ${CMAKE_CURRENT_SOURCE_DIR}/${source} -o ${output}
      DEPENDS ${source} DEPFILE ${output}.d COMMAND_EXPAND_LISTS VERBATIM
      COMMENT "Preprocessing ${source} for the fingerprint of ${arg_NAME}")
    list(APPEND digested ${output})
    list(APPEND all_flags "${source}: ${flags}")
  endforeach()
  list(JOIN all_flags "|" flags_text)
  string(REPLACE ";" " " flags_text "${flags_text}")
  set(generated ${folder}/fingerprint.cpp)
  string(REPLACE ";" "|" digested_text "${digested}")
  add_custom_command(OUTPUT ${generated}
    COMMAND ${CMAKE_COMMAND} "-DFILES=${digested_text}" "-DFLAGS=${flags_text}"
            "-DCOMPILER=${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION} ${CMAKE_SYSTEM_PROCESSOR}"
            -DFUNCTION=${arg_FUNCTION} -DOUTPUT=${generated} -P ${CROSSOVER_FINGERPRINT_SCRIPT}
    DEPENDS ${digested} ${CROSSOVER_FINGERPRINT_SCRIPT} VERBATIM
    COMMENT "Fingerprint of ${arg_NAME}")
  target_sources(${arg_TARGET} PRIVATE ${generated})
endfunction()
