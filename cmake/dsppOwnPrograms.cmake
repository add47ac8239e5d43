# SPDX-License-Identifier: Apache-2.0
# How dspp's own tests, examples and benchmarks are compiled. Nothing here reaches a consumer: it all hangs on two targets that
# are not exported, dspp_flags, and dspp_own, which has warnings, too.
option(DSPP_NATIVE "Compile dspp's own programs for this machine's processor" ${PROJECT_IS_TOP_LEVEL})
option(DSPP_WERROR "Warnings are errors in dspp's own programs" OFF)
set(DSPP_SANITIZE "" CACHE STRING "Sanitizers for dspp's own programs: address,undefined or thread")

# DSPP_CLI11_INCLUDE_DIR is looked for where dspp::compiled is defined.
if(NOT DSPP_CLI11_INCLUDE_DIR)
  message(FATAL_ERROR "dspp: its own programs need CLI11 to read their options, but CLI/CLI.hpp was not found. "
    "Install libcli11-dev, or name the folder that CLI/ lies in by -DDSPP_CLI11_INCLUDE_DIR=FOLDER.")
endif()

add_library(dspp_flags INTERFACE)
add_library(dspp_own INTERFACE)
target_link_libraries(dspp_flags INTERFACE dspp::dspp)
target_link_libraries(dspp_own INTERFACE dspp_flags)
target_include_directories(dspp_flags SYSTEM INTERFACE ${DSPP_CLI11_INCLUDE_DIR})
target_compile_options(dspp_own INTERFACE
  # Not of what a program's globals shadow: headers cannot know their names. (The check of headers alone has all of -Wshadow.)
  -Wall -Wextra -Wconversion $<IF:$<CXX_COMPILER_ID:GNU>,-Wshadow=local,-Wshadow>
  $<$<BOOL:${DSPP_WERROR}>:-Werror>)
target_compile_options(dspp_flags INTERFACE
  # These change no result. Without the first two a loop with a square root or a comparison is not vectorised; without the
  # third, g++ 12 at -O2 vectorises no loop whose trip count it does not know.
  -fno-math-errno -fno-trapping-math $<$<CXX_COMPILER_ID:GNU>:-fvect-cost-model=dynamic>
  # g++ 12 sees overruns in std::string's own code where there are none (GCC bugs 105329, 105545, 105651), and values
  # without a start in its own AVX-512 intrinsics (105593).
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-array-bounds$<SEMICOLON>-Wno-restrict$<SEMICOLON>-Wno-stringop-overflow$<SEMICOLON>-Wno-maybe-uninitialized$<SEMICOLON>-Wno-uninitialized>
  # With a precompiled header ccache has to know which one.
  $<$<AND:$<BOOL:${DSPP_USES_CCACHE}>,$<CXX_COMPILER_ID:GNU>>:-fpch-preprocess>
  # The first error is the sentence.
  $<$<CXX_COMPILER_ID:GNU>:-fmax-errors=1> $<$<CXX_COMPILER_ID:Clang>:-ferror-limit=1>)
if(DSPP_NATIVE)
  target_compile_options(dspp_flags INTERFACE -march=native)
endif()
if(DSPP_SANITIZE)
  # The preset ci has the warnings, which cost a twentieth of the time to compile. Lines in reports are the presets' -g1, which
  # costs a fifth.
  target_compile_options(dspp_flags INTERFACE
    -fsanitize=${DSPP_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -w)
  # What is neither a kernel nor an update takes a third of the time to compile so, and little to run.
  set(compiled ${PROJECT_SOURCE_DIR}/include/dspp/compiled)
  file(GLOB quick CONFIGURE_DEPENDS ${compiled}/operations_*.cpp)
  list(APPEND quick ${compiled}/options.cpp ${compiled}/training.cpp)
  if(DSPP_SANITIZE MATCHES address)  # not under thread's, where ranks that wait and sum are most of what runs
    list(APPEND quick ${compiled}/definitions.cpp)
  endif()
  set_source_files_properties(${quick} PROPERTIES COMPILE_OPTIONS -O0)
  # A call for each access in place of the code of its check: nine tenths of the time to compile, by g++ four fifths. For what
  # links test_strategies: kernels and numbers, in which tests spend theirs, are checked in place.
  if(DSPP_SANITIZE MATCHES address)
    set(DSPP_SANITIZED_BY_CALLS "SHELL:-mllvm -asan-instrumentation-with-call-threshold=0")
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      set(DSPP_SANITIZED_BY_CALLS --param=asan-instrumentation-with-call-threshold=0)
    endif()
  endif()
  target_link_options(dspp_flags INTERFACE -fsanitize=${DSPP_SANITIZE})
endif()
set(CMAKE_CXX_EXTENSIONS OFF)
