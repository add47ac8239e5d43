# SPDX-License-Identifier: Apache-2.0
# ccache for dspp's own programs, where it is found and works; nothing needs it. What the machine makes of -march=native is part
# of what a compilation is known by, and paths are relative in the build folder alone, so that a second one finds what the first
# compiled and __FILE__ stays what it is.
set(DSPP_CCACHE AUTO CACHE STRING "ccache for dspp's own programs: AUTO (where found), OFF")
set_property(CACHE DSPP_CCACHE PROPERTY STRINGS AUTO OFF)

# dspp_use_ccache(): sets DSPP_USES_CCACHE and, unless the caller has a launcher, CMAKE_CXX_COMPILER_LAUNCHER.
function(dspp_use_ccache)
  set(DSPP_USES_CCACHE FALSE PARENT_SCOPE)
  find_program(DSPP_CCACHE_PROGRAM ccache)
  mark_as_advanced(DSPP_CCACHE_PROGRAM)
  if(NOT DSPP_CCACHE OR NOT DSPP_CCACHE_PROGRAM OR CMAKE_CXX_COMPILER_LAUNCHER)
    return()
  endif()
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/ccache)
  file(CONFIGURE OUTPUT ${folder}/works.cpp CONTENT "int dspp_works;\n")
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -march=native -dM -E ${folder}/works.cpp
    OUTPUT_VARIABLE processor ERROR_VARIABLE processor)
  file(CONFIGURE OUTPUT ${folder}/processor.txt CONTENT "@processor@" @ONLY)
  # What is precompiled is told by its content, and the dates and times in it are none of dspp's.
  set(launcher ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros
    CCACHE_BASEDIR=${CMAKE_CURRENT_BINARY_DIR} CCACHE_EXTRAFILES=${folder}/processor.txt ${DSPP_CCACHE_PROGRAM})
  execute_process(COMMAND ${launcher} ${CMAKE_CXX_COMPILER} -c ${folder}/works.cpp -o ${folder}/works.o
    WORKING_DIRECTORY ${folder} RESULT_VARIABLE code OUTPUT_QUIET ERROR_QUIET)
  if(NOT code EQUAL 0)
    message(STATUS "dspp: ccache: off, it does not work here (CCACHE_DIR names its folder)")
    return()
  endif()
  message(STATUS "dspp: ccache: ${DSPP_CCACHE_PROGRAM}")
  set(DSPP_USES_CCACHE TRUE PARENT_SCOPE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher} PARENT_SCOPE)
endfunction()
