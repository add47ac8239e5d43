# SPDX-License-Identifier: Apache-2.0
# dspp::compiled: dspp::dspp with the definitions built once, as a static library. Used by dspp's build and by its installed
# package alike: the library is built where it is used, with the compiler and the flags of the project that links it.

# dspp_add_compiled(<folder of the headers>): defines dspp::compiled, which is built only if something links it.
function(dspp_add_compiled include_folder)
  if(TARGET dspp_compiled)
    return()
  endif()
  file(GLOB units CONFIGURE_DEPENDS ${include_folder}/dspp/compiled/*.cpp)
  add_library(dspp_compiled STATIC EXCLUDE_FROM_ALL ${units})
  add_library(dspp::compiled ALIAS dspp_compiled)
  target_link_libraries(dspp_compiled PUBLIC dspp::dspp)
  target_compile_definitions(dspp_compiled PUBLIC DSPP_COMPILED=1)
endfunction()
