# SPDX-License-Identifier: Apache-2.0
# dspp::compiled: dspp::dspp with the definitions built once, as a static library. Used by dspp's build and by its installed
# package alike: the library is built where it is used, with the compiler and the flags of the project that links it.

# dspp_add_compiled(<folder of the headers>): defines dspp::compiled, which is built only if something links it. It defines what
# app/options.hpp declares where CLI11 is, of which nothing else knows.
function(dspp_add_compiled include_folder)
  if(TARGET dspp_compiled)
    return()
  endif()
  file(GLOB units CONFIGURE_DEPENDS ${include_folder}/dspp/compiled/*.cpp)
  find_path(DSPP_CLI11_INCLUDE_DIR CLI/CLI.hpp)
  mark_as_advanced(DSPP_CLI11_INCLUDE_DIR)
  if(NOT DSPP_CLI11_INCLUDE_DIR)
    list(FILTER units EXCLUDE REGEX "/options\\.cpp$")
  endif()
  add_library(dspp_compiled STATIC EXCLUDE_FROM_ALL ${units})
  add_library(dspp::compiled ALIAS dspp_compiled)
  set_target_properties(dspp_compiled PROPERTIES UNITY_BUILD OFF)  # each unit has its own definitions of what headers declare
  target_link_libraries(dspp_compiled PUBLIC dspp::dspp)
  target_compile_definitions(dspp_compiled PUBLIC DSPP_COMPILED=1)
  if(DSPP_CLI11_INCLUDE_DIR)
    target_include_directories(dspp_compiled SYSTEM PRIVATE ${DSPP_CLI11_INCLUDE_DIR})
  endif()
endfunction()
