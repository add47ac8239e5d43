# SPDX-License-Identifier: Apache-2.0
# cmake -D WAY=.. -D SOURCE=.. -D BUILD=.. -D WORK=.. -D COMPILER=.. -D GENERATOR=.. -D EIGEN=.. -D MPI=.. -D STORE=..
#   -P use.cmake
#
#   find_package      installs dspp, moves the installation elsewhere, and finds it there
#   add_subdirectory  uses the source tree, in a project that joins its sources into one unit; after find_package, whose objects
#                     of the same text and flags it takes from STORE (once.sh)
#   copied_headers    copies include/ and compiles without CMake: a C++20 compiler and Eigen, nothing else
#   cuda              finds it with the component cuda: builds dspp::cuda by nvcc, which -D NVCC=.. names, and links it; of what
#                     add_subdirectory would build, the commands are looked at
cmake_minimum_required(VERSION 3.25)

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT code EQUAL 0)
    list(JOIN ARGN " " command)
    message(NOTICE "${command}\n${output}")
    message(FATAL_ERROR "${WAY}: the command above failed with ${code}.")
  endif()
endfunction()

# Builds and runs the consumer's programs, or those named in `only`.
function(build_and_run_consumer only)
  run(${CMAKE_COMMAND} -S ${SOURCE}/tests/package/consumer -B ${WORK}/build -G ${GENERATOR}
    -D CMAKE_CXX_COMPILER=${COMPILER} -D CMAKE_BUILD_TYPE=Debug
    -D "CMAKE_CXX_FLAGS_DEBUG=-O0 ${quick} -I${WORK}/no_cli11" -D DSPP_CLI11_INCLUDE_DIR=
    -D "CMAKE_CXX_COMPILER_LAUNCHER=sh\;${SOURCE}/tests/package/once.sh\;${STORE}"
    -D MPI_EXPECTED=${MPI} ${ARGN})
  set(programs consumer consumer_compiled)
  if(MPI)
    list(APPEND programs consumer_mpi consumer_mpi_compiled)
  endif()
  if(only)
    set(programs ${only})
  endif()
  run(${CMAKE_COMMAND} --build ${WORK}/build --target ${programs})
  foreach(program IN LISTS programs)
    run(${WORK}/build/${program})
  endforeach()
endfunction()

# The README's program, compiled with warnings as errors, and run on the texts that the README names.
function(build_and_run_readme_program)
  file(READ ${SOURCE}/README.md text)
  string(FIND "${text}" "```cpp run" begin)
  string(SUBSTRING "${text}" ${begin} -1 text)
  string(FIND "${text}" "\n" begin)
  string(SUBSTRING "${text}" ${begin} -1 text)
  string(FIND "${text}" "\n```" end)
  string(SUBSTRING "${text}" 0 ${end} text)
  file(WRITE ${WORK}/readme.cpp "${text}\n")
  run(${CMAKE_COMMAND} -S ${SOURCE}/tests/package/consumer -B ${WORK}/readme -G ${GENERATOR}
    -D CMAKE_CXX_COMPILER=${COMPILER} -D CMAKE_BUILD_TYPE=Release -D MPI_EXPECTED=${MPI}
    -D README_PROGRAM=${WORK}/readme.cpp -D "CMAKE_CXX_FLAGS_RELEASE=-O3 -DNDEBUG ${quick}" ${ARGN})
  run(${CMAKE_COMMAND} --build ${WORK}/readme --target readme)
  run(${WORK}/readme/readme /usr/share/common-licenses)
endfunction()

# The messages about a project's flags, or that there are none.
function(expect_of_speed phrase)
  file(REMOVE_RECURSE ${WORK}/flags)
  execute_process(COMMAND ${CMAKE_COMMAND} -S ${SOURCE}/tests/package/consumer -B ${WORK}/flags -G ${GENERATOR}
    -D CMAKE_CXX_COMPILER=${COMPILER} -D MPI_EXPECTED=${MPI} ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE errors)
  string(REGEX MATCHALL "CMAKE_BUILD_TYPE is empty|has no -march" said "${output}")
  if(NOT code EQUAL 0 OR NOT said STREQUAL phrase)
    message(FATAL_ERROR "${WAY}: with the flags ${ARGN} the project is told '${said}', not '${phrase}'.\n${errors}")
  endif()
endfunction()

function(expect_words_on_speed)
  set(march "")
  cmake_host_system_information(RESULT platform QUERY OS_PLATFORM)
  if(platform MATCHES "x86_64|AMD64")
    set(march "has no -march")
  endif()
  set(none "CMAKE_BUILD_TYPE is empty" ${march})
  expect_of_speed("${none}" ${ARGN})
  expect_of_speed("${march}" -D CMAKE_BUILD_TYPE=Release ${ARGN})
  expect_of_speed("" -D CMAKE_BUILD_TYPE=Release -D CMAKE_CXX_FLAGS_RELEASE=-march=x86-64 ${ARGN})
endfunction()

# Asks for dspp::cuda where CMake has to refuse it, in a sentence with these words.
function(expect_refusal folder words)
  file(REMOVE_RECURSE ${WORK}/${folder})
  execute_process(COMMAND ${CMAKE_COMMAND} -S ${SOURCE}/tests/package/consumer -B ${WORK}/${folder} -G ${GENERATOR}
    -D CMAKE_CXX_COMPILER=${COMPILER} -D CUDA=ON ${ARGN}
    RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE errors)
  string(REGEX REPLACE "[ \n]+" " " errors "${errors}")
  string(FIND "${errors}" "${words}" at)
  if(code EQUAL 0 OR at LESS 0)
    message(FATAL_ERROR "${WAY}: dspp::cuda by ${ARGN} gives ${code}: ${errors}")
  endif()
endfunction()

# A machine whose nvcc is none.
function(expect_no_cuda)
  expect_refusal(no_cuda "needs the CUDA Toolkit, but ${WORK}/no/nvcc is no nvcc that runs. Install the CUDA Toolkit"
    -D CMAKE_CUDA_COMPILER=${WORK}/no/nvcc ${ARGN})
endfunction()

# A machine that has an old version's header of NCCL.
function(expect_no_nccl)
  file(WRITE ${WORK}/old_nccl/nccl.h "#define NCCL_MAJOR 2\n#define NCCL_MINOR 18\n")
  expect_refusal(no_nccl "DSPP_NCCL=ON needs NCCL (2.19 or later), but nccl.h of such a version or libnccl was not found."
    -D CMAKE_CUDA_COMPILER=${NVCC} -D DSPP_NCCL=ON -D DSPP_NCCL_INCLUDE_DIR=${WORK}/old_nccl
    -D DSPP_NCCL_LIBRARY=${WORK}/old_nccl/libnccl.so ${ARGN})
endfunction()

# On a machine with a GPU the program trains; on another it says in a sentence that there is none.
function(run_on_gpu program)
  execute_process(COMMAND ${program} RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE errors)
  if(code EQUAL 0 AND output MATCHES "^consumer: a loss of [0-9.]+\n$")
    return()
  endif()
  if(NOT code EQUAL 2 OR NOT errors MATCHES "^dspp: Cuda needs an NVIDIA GPU and its driver, but CUDA gives '[^\n]*\n$")
    message(FATAL_ERROR "${WAY}: ${program} gives ${code}: ${output}${errors}")
  endif()
endfunction()

# Builds the program for GPUs; nvcc is called for what CMAKE_CUDA_ARCHITECTURES names, and for nothing else.
function(build_for_architectures)
  execute_process(COMMAND ${CMAKE_COMMAND} --build ${WORK}/build --target consumer_cuda --verbose
    RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
  string(REGEX MATCHALL "-gencode=[^ ]*" named "${output}")
  list(REMOVE_DUPLICATES named)
  if(NOT code EQUAL 0 OR NOT named STREQUAL "-gencode=arch=compute_90,code=compute_90")
    message(FATAL_ERROR "${WAY}: the program for 90-virtual, compiled for '${named}', gives ${code}:\n${output}")
  endif()
endfunction()

# add_subdirectory gives the same library: nvcc would be called for each unit, as CMAKE_CUDA_ARCHITECTURES says.
function(expect_commands_of_subdirectory)
  set(flags -D CMAKE_CXX_COMPILER=${COMPILER} -D CMAKE_BUILD_TYPE=Debug -D MPI_EXPECTED=${MPI} -D CUDA=ON -D DSPP_CUDA=ON
    -D CMAKE_CUDA_COMPILER=${NVCC} -D CMAKE_CUDA_ARCHITECTURES=90-virtual)
  run(${CMAKE_COMMAND} -S ${SOURCE}/tests/package/consumer -B ${WORK}/subdirectory -G ${GENERATOR}
    -D DSPP_SOURCE_TREE=${SOURCE} ${flags})
  set(say -n)
  if(GENERATOR MATCHES "Ninja")
    set(say -t commands)
  endif()
  execute_process(COMMAND ${CMAKE_COMMAND} --build ${WORK}/subdirectory -- ${say} consumer_cuda
    RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
  file(GLOB units ${SOURCE}/kernels/library/*.cu)
  if(NOT units)
    message(FATAL_ERROR "${WAY}: the units of dspp::cuda were not found. Name their folder.")
  endif()
  foreach(unit IN LISTS units)
    string(FIND "${output}" "-c ${unit} -o " called)
    if(called LESS 0)
      message(FATAL_ERROR "${WAY}: by add_subdirectory nvcc is not called for ${unit}:\n${output}")
    endif()
  endforeach()
  string(REGEX MATCHALL "-gencode=[^ ]*" named "${output}")
  list(REMOVE_DUPLICATES named)
  if(NOT code EQUAL 0 OR NOT named STREQUAL "-gencode=arch=compute_90,code=compute_90" OR NOT output MATCHES "libdspp_cuda.a")
    message(FATAL_ERROR "${WAY}: by add_subdirectory, for 90-virtual, nvcc is called for '${named}':\n${output}")
  endif()
endfunction()

set(ENV{CCACHE_DISABLE} 1)  # where the compiler's name is a link to ccache
set(quick "")
set(quick_host "")
if(NOT COMPILER MATCHES "clang")
  set(quick --param=ggc-min-heapsize=1048576)  # g++ collects its garbage from 1 GiB on: a twentieth to a tenth less time
  set(quick_host " -Xcompiler ${quick}")
endif()
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
# A machine without CLI11: CMake finds none, and the compiler finds this one first.
file(WRITE ${WORK}/no_cli11/CLI/CLI.hpp "#error \"dspp: a consumer needs no CLI11, but this one includes it.\"\n")
if(WAY STREQUAL "find_package")
  file(REMOVE_RECURSE ${STORE})
  run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/first)
  file(RENAME ${WORK}/first ${WORK}/moved)
  build_and_run_consumer("" -D CMAKE_PREFIX_PATH=${WORK}/moved)
  build_and_run_readme_program(-D CMAKE_PREFIX_PATH=${WORK}/moved)
  expect_words_on_speed(-D CMAKE_PREFIX_PATH=${WORK}/moved)
  expect_no_cuda(-D CMAKE_PREFIX_PATH=${WORK}/moved)
elseif(WAY STREQUAL "add_subdirectory")
  set(only "")
  if(COMPILER MATCHES "clang")
    set(only consumer)  # by find_package it has compiled the library's units, and here g++ joins them
  endif()
  build_and_run_consumer("${only}" -D DSPP_SOURCE_TREE=${SOURCE} -D CMAKE_UNITY_BUILD=ON)
  expect_words_on_speed(-D DSPP_SOURCE_TREE=${SOURCE})
  expect_no_cuda(-D DSPP_SOURCE_TREE=${SOURCE} -D DSPP_CUDA=ON)
elseif(WAY STREQUAL "cuda")
  run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/installed)
  # As one unit and not optimised, which takes a fifth of the time: the kernels run nowhere here, or a single step.
  run(${CMAKE_COMMAND} -S ${SOURCE}/tests/package/consumer -B ${WORK}/build -G ${GENERATOR}
    -D CMAKE_CXX_COMPILER=${COMPILER} -D CMAKE_BUILD_TYPE=Debug -D "CMAKE_CXX_FLAGS_DEBUG=-O0 ${quick}" -D MPI_EXPECTED=${MPI}
    -D CUDA=ON -D CMAKE_CUDA_COMPILER=${NVCC} -D CMAKE_CUDA_ARCHITECTURES=90-virtual -D CMAKE_UNITY_BUILD=ON
    -D "CMAKE_CUDA_FLAGS=-Xcicc -O0 -Xcompiler -O0${quick_host}" -D CMAKE_PREFIX_PATH=${WORK}/installed)
  expect_no_nccl(-D CMAKE_PREFIX_PATH=${WORK}/installed)
  build_for_architectures()
  expect_commands_of_subdirectory()
  run_on_gpu(${WORK}/build/consumer_cuda)
elseif(WAY STREQUAL "copied_headers")
  file(COPY ${SOURCE}/include DESTINATION ${WORK})
  set(consumer ${SOURCE}/tests/package/consumer)
  run(${COMPILER} -std=c++20 ${quick} -I${WORK}/include -I${WORK}/no_cli11 -isystem ${EIGEN} ${consumer}/main.cpp
    ${consumer}/other.cpp -pthread -o ${WORK}/consumer)
  run(${WORK}/consumer)
else()
  message(FATAL_ERROR "There is no way called ${WAY}.")
endif()
