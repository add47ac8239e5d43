# SPDX-License-Identifier: Apache-2.0
include_guard(GLOBAL)

# dspp_add_train_gpt(<target> <policy>): the program train_gpt.cpp with this policy; empty: with the one at its top.
function(dspp_add_train_gpt target DSPP_TRAIN_POLICY)
  add_executable(${target} ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/train_gpt.cpp)
  target_link_libraries(${target} PRIVATE dspp_own dspp::compiled)
  if(TARGET dspp::mpi)
    target_link_libraries(${target} PRIVATE dspp::mpi)
  endif()
  # The text that every machine has that can build dspp.
  get_target_property(eigen Eigen3::Eigen INTERFACE_INCLUDE_DIRECTORIES)
  list(GET eigen 0 eigen)
  target_compile_definitions(${target} PRIVATE DSPP_DEFAULT_TEXT="${eigen}/Eigen")
  if(DSPP_TRAIN_POLICY STREQUAL "")
    return()
  endif()
  set(device "")
  if(DSPP_TRAIN_POLICY MATCHES "[ <,]Cuda[ >,]")
    if(NOT TARGET dspp::cuda)
      get_property(absent GLOBAL PROPERTY DSPP_CUDA_ABSENT)
      message(FATAL_ERROR "dspp: ${DSPP_TRAIN_POLICY} needs the CUDA Toolkit, but ${absent}")
    endif()
    set(device "#include <dspp/launch/cuda_rank.hpp>\n")
    target_link_libraries(${target} PRIVATE dspp::cuda)
  endif()
  set(generated ${CMAKE_CURRENT_BINARY_DIR}/generated/${target})
  file(CONFIGURE OUTPUT ${generated}/train_policy.hpp @ONLY CONTENT
"/// The policy that the build was given; it replaces the one in train_gpt.cpp.
#pragma once
@device@namespace dspp {
using TrainPolicy = @DSPP_TRAIN_POLICY@;
}
using dspp::TrainPolicy;
")
  target_include_directories(${target} PRIVATE ${generated})
  target_compile_definitions(${target} PRIVATE DSPP_TRAIN_POLICY_HEADER="train_policy.hpp")
endfunction()
