# CUDA found or absent. Sets CROSSOVER_HAVE_CUDA; where it is ON, the language CUDA is enabled and CUDAToolkit is found.

set(CROSSOVER_MINIMUM_CUDA 12.0)  # the first nvcc that compiles C++20
set(CROSSOVER_HAVE_CUDA OFF)
set(crossover_cuda_absent "CROSSOVER_CUDA is OFF")

if(NOT CROSSOVER_CUDA STREQUAL "OFF")
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 90a CACHE STRING "CUDA architectures to compile for" FORCE)
  endif()
  if(CMAKE_CUDA_ARCHITECTURES MATCHES "native|all")
    message(FATAL_ERROR "CMAKE_CUDA_ARCHITECTURES is '${CMAKE_CUDA_ARCHITECTURES}': name the architectures, so that two "
                        "builds of the same sources are the same")
  endif()

  # nvcc is often installed without being on the PATH.
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    find_program(CROSSOVER_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
    mark_as_advanced(CROSSOVER_NVCC)
    if(CROSSOVER_NVCC)
      set(ENV{CUDACXX} ${CROSSOVER_NVCC})
    endif()
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS CROSSOVER_MINIMUM_CUDA)
      set(crossover_cuda_absent "${CMAKE_CUDA_COMPILER} is version ${CMAKE_CUDA_COMPILER_VERSION}, \
at least ${CROSSOVER_MINIMUM_CUDA} is needed")
    else()
      find_package(CUDAToolkit REQUIRED)
      set(CROSSOVER_HAVE_CUDA ON)
      if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc takes it
        set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
        set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
      endif()
      set(CMAKE_CUDA_STANDARD 20)
      set(CMAKE_CUDA_STANDARD_REQUIRED ON)
      set(CMAKE_CUDA_EXTENSIONS OFF)
      set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
    endif()
  else()
    set(crossover_cuda_absent "no compiler (nvcc) that works on the PATH, in CUDA_HOME or in /usr/local/cuda")
  endif()
endif()

if(CROSSOVER_HAVE_CUDA)
  message(STATUS "CUDA: ${CMAKE_CUDA_COMPILER_VERSION} (${CMAKE_CUDA_COMPILER}), architectures "
                 "${CMAKE_CUDA_ARCHITECTURES}")
elseif(CROSSOVER_CUDA STREQUAL "ON")
  message(FATAL_ERROR "CROSSOVER_CUDA is ON, but: ${crossover_cuda_absent}")
else()
  message(STATUS "CUDA: absent, the CPU device only (${crossover_cuda_absent})")
endif()
