# SPDX-License-Identifier: Apache-2.0
# dspp::kernels: dspp::dspp with <kernels/...> in the include path, for programs that nvcc compiles as a whole. dspp::cuda: the
# device Cuda as a static library, for programs that any compiler compiles. Used by dspp's build and by its installed package
# alike: the library is built where it is used, for the architectures of the project that links it, and only if something does.
#
# nvcc is called by commands, not as CMake's language CUDA: a project that enables no such language gets none, and CMake 3.25
# knows no architecture 90a. CMAKE_CUDA_COMPILER, CMAKE_CUDA_HOST_COMPILER, CMAKE_CUDA_FLAGS, CMAKE_CUDA_ARCHITECTURES,
# CMAKE_CUDA_COMPILER_LAUNCHER and CMAKE_UNITY_BUILD mean what they mean there.
cmake_policy(VERSION 3.25)

# dspp_add_kernels(<folder that kernels/ lies in>)
function(dspp_add_kernels folder)
  if(NOT TARGET dspp::kernels)
    add_library(dspp::kernels INTERFACE IMPORTED GLOBAL)
    set_target_properties(dspp::kernels PROPERTIES
      INTERFACE_LINK_LIBRARIES dspp::dspp INTERFACE_INCLUDE_DIRECTORIES "${folder}")
  endif()
endfunction()

# dspp_add_cuda(<wanted> <folder of the headers> <folder that kernels/ lies in>): defines dspp::cuda where the CUDA Toolkit is.
# wanted is AUTO (where found), ON (required) or OFF. Without it, the global property DSPP_CUDA_ABSENT is the reason.
function(dspp_add_cuda wanted include_folder folder)
  if(TARGET dspp::cuda)
    return()
  endif()
  if(NOT wanted STREQUAL "AUTO" AND NOT wanted)
    set_property(GLOBAL PROPERTY DSPP_CUDA_ABSENT "DSPP_CUDA is OFF. Set it to AUTO or ON.")
    _dspp_say("CUDA: off, as asked")
    return()
  endif()
  set(absent "")
  _dspp_find_toolkit(absent)
  set_property(GLOBAL PROPERTY DSPP_CUDA_ABSENT "${absent}")
  if(absent AND NOT wanted STREQUAL "AUTO")
    message(FATAL_ERROR "dspp: DSPP_CUDA=ON needs the CUDA Toolkit, but ${absent}")
  elseif(absent)
    _dspp_say("CUDA: off, ${absent}")
    return()
  endif()

  set(cudnn "")
  _dspp_find_cudnn(cudnn)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES "90a-real;90-virtual")
  endif()
  _dspp_architecture_flags("${CMAKE_CUDA_ARCHITECTURES}" flags)
  if(CMAKE_CUDA_HOST_COMPILER)
    list(APPEND flags -ccbin ${CMAKE_CUDA_HOST_COMPILER})
  elseif(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    list(APPEND flags -ccbin ${CMAKE_CXX_COMPILER})
  endif()
  separate_arguments(own UNIX_COMMAND "${CMAKE_CUDA_FLAGS}")
  get_target_property(folders Eigen3::Eigen INTERFACE_INCLUDE_DIRECTORIES)
  if(cudnn)
    list(APPEND own -DDSPP_WITH_CUDNN=1 -DCUDNN_FRONTEND_SKIP_JSON_LIB)
    list(APPEND folders ${DSPP_CUDNN_FRONTEND_INCLUDE_DIR} ${DSPP_CUDNN_INCLUDE_DIR})
  endif()
  list(REMOVE_DUPLICATES folders)
  list(REMOVE_ITEM folders ${CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES})
  list(TRANSFORM folders PREPEND "-isystem;")
  # Of which the objects depend: Make does not compare commands.
  set(said ${CMAKE_CURRENT_BINARY_DIR}/dspp_cuda/flags.txt)
  file(CONFIGURE OUTPUT ${said} CONTENT "${DSPP_CUDA_NVCC} ${flags} ${own} ${folders}\n")
  set(objects "")
  file(GLOB units CONFIGURE_DEPENDS ${folder}/kernels/library/*.cu)
  if(CMAKE_UNITY_BUILD)  # less than half the processor time, on one core; entries.cu says first what it defines
    list(REMOVE_ITEM units ${folder}/kernels/library/entries.cu ${folder}/kernels/library/cudnn.cu)
    list(PREPEND units ${folder}/kernels/library/entries.cu ${folder}/kernels/library/cudnn.cu)
    list(TRANSFORM units REPLACE "(.+)" "#include \"\\1\"\n" OUTPUT_VARIABLE includes)
    list(JOIN includes "" includes)
    set(units ${CMAKE_CURRENT_BINARY_DIR}/dspp_cuda/unity.cu)
    file(CONFIGURE OUTPUT ${units} CONTENT "${includes}" @ONLY)
  endif()
  foreach(unit IN LISTS units)
    get_filename_component(name ${unit} NAME_WE)
    set(object ${CMAKE_CURRENT_BINARY_DIR}/dspp_cuda/${name}.o)
    # 20012, 20015: the headers' constexpr functions, which nvcc gives to the device, are not all for it. 20011, 20013, 20014: a
    # call of a host's function, which nvcc else compiles to nothing, with a warning.
    add_custom_command(OUTPUT ${object} DEPENDS ${unit} ${said} DEPFILE ${object}.d VERBATIM
      COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_CURRENT_BINARY_DIR}/dspp_cuda
      COMMAND ${CMAKE_CUDA_COMPILER_LAUNCHER} ${DSPP_CUDA_NVCC} -x cu -std=c++20 -O2 -Xcompiler=-fPIC
        -diag-suppress=20012,20015 -diag-error=20011,20013,20014 ${flags} ${own} -I${folder} -I${include_folder} ${folders}
        -MD -MF ${object}.d
        -c ${unit} -o ${object}
      COMMENT "Building dspp::cuda's ${name} by nvcc")
    list(APPEND objects ${object})
  endforeach()
  add_library(dspp_cuda STATIC EXCLUDE_FROM_ALL ${objects})
  add_library(dspp::cuda ALIAS dspp_cuda)
  set_target_properties(dspp_cuda PROPERTIES LINKER_LANGUAGE CXX)
  target_link_libraries(dspp_cuda PUBLIC dspp::dspp ${DSPP_CUDA_CUBLASLT} ${DSPP_CUDA_CUDART} ${CMAKE_DL_LIBS}
    $<$<PLATFORM_ID:Linux>:rt>)
  set(whose "dspp's")
  if(cudnn)
    set(whose "cuDNN's")
    target_compile_definitions(dspp_cuda PUBLIC DSPP_WITH_CUDNN=1)  # plans count its workspace
    target_link_libraries(dspp_cuda PUBLIC ${cudnn})
  endif()
  _dspp_say("CUDA: ${DSPP_CUDA_NVCC}, for ${CMAKE_CUDA_ARCHITECTURES}, with ${whose} attention")
endfunction()

# ---------------------------------------------------------------------------------------------------------------------

# Sets DSPP_CUDA_NVCC, _TOOLKIT, _LIBRARY_FOLDERS, _CUDART and _CUBLASLT; or `absent`, a sentence's end, if one is missing.
function(_dspp_find_toolkit absent)
  set(remedy "Install the CUDA Toolkit (12 or later), or name its nvcc by -DCMAKE_CUDA_COMPILER=PATH.")
  set(named ${CMAKE_CUDA_COMPILER})
  if(NOT named AND DEFINED ENV{CUDACXX})
    set(named $ENV{CUDACXX})
  endif()
  if(named)
    set(DSPP_CUDA_NVCC ${named})
  else()
    find_program(DSPP_CUDA_NVCC nvcc HINTS ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
    mark_as_advanced(DSPP_CUDA_NVCC)
  endif()
  if(NOT DSPP_CUDA_NVCC)
    set(${absent} "nvcc was not found. ${remedy}" PARENT_SCOPE)
    return()
  endif()
  execute_process(COMMAND ${DSPP_CUDA_NVCC} --version RESULT_VARIABLE code OUTPUT_VARIABLE version ERROR_VARIABLE ignored)
  if(NOT code EQUAL 0 OR NOT version MATCHES "release ([0-9.]+)")
    set(${absent} "${DSPP_CUDA_NVCC} is no nvcc that runs. ${remedy}" PARENT_SCOPE)
    return()
  elseif(CMAKE_MATCH_1 VERSION_LESS 12)
    set(${absent} "${DSPP_CUDA_NVCC} is of CUDA ${CMAKE_MATCH_1}, which has no C++20. ${remedy}" PARENT_SCOPE)
    return()
  endif()
  get_filename_component(bin ${DSPP_CUDA_NVCC} REALPATH)
  get_filename_component(bin ${bin} DIRECTORY)
  get_filename_component(toolkit ${bin} DIRECTORY)
  set(folders HINTS ${toolkit} PATHS /usr/local/cuda PATH_SUFFIXES lib64 lib targets/${CMAKE_SYSTEM_PROCESSOR}-linux/lib)
  find_library(DSPP_CUDA_CUDART NAMES cudart_static cudart ${folders})
  find_library(DSPP_CUDA_CUBLASLT NAMES cublasLt ${folders})
  mark_as_advanced(DSPP_CUDA_CUDART DSPP_CUDA_CUBLASLT)
  if(NOT DSPP_CUDA_CUDART OR NOT DSPP_CUDA_CUBLASLT)
    set(${absent} "beside ${DSPP_CUDA_NVCC} cudart or cublasLt was not found. ${remedy}" PARENT_SCOPE)
    return()
  endif()
  set(DSPP_CUDA_NVCC ${DSPP_CUDA_NVCC} PARENT_SCOPE)
  set(DSPP_CUDA_TOOLKIT ${toolkit} PARENT_SCOPE)
  set(DSPP_CUDA_LIBRARY_FOLDERS ${folders} PARENT_SCOPE)
endfunction()

# Sets `result` to the libraries of cuDNN where it and the headers of cudnn-frontend are, unless DSPP_CUDNN is OFF.
function(_dspp_find_cudnn result)
  set(DSPP_CUDNN AUTO CACHE STRING "Attention of dspp::cuda by cuDNN: AUTO (where it and cudnn_frontend.h are found), ON or OFF")
  if(NOT DSPP_CUDNN STREQUAL "AUTO" AND NOT DSPP_CUDNN)
    return()
  endif()
  set(headers HINTS ${DSPP_CUDA_TOOLKIT}/include PATHS /usr/local/cuda/include)
  find_path(DSPP_CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h ${headers})
  find_path(DSPP_CUDNN_INCLUDE_DIR cudnn.h ${headers})
  find_library(DSPP_CUDNN_LIBRARY cudnn ${DSPP_CUDA_LIBRARY_FOLDERS})
  find_library(DSPP_NVRTC_LIBRARY nvrtc ${DSPP_CUDA_LIBRARY_FOLDERS})  # which cudnn-frontend calls
  mark_as_advanced(DSPP_CUDNN_FRONTEND_INCLUDE_DIR DSPP_CUDNN_INCLUDE_DIR DSPP_CUDNN_LIBRARY DSPP_NVRTC_LIBRARY)
  set(frontend 0)
  if(DSPP_CUDNN_FRONTEND_INCLUDE_DIR AND EXISTS ${DSPP_CUDNN_FRONTEND_INCLUDE_DIR}/cudnn_frontend_version.h)
    file(STRINGS ${DSPP_CUDNN_FRONTEND_INCLUDE_DIR}/cudnn_frontend_version.h lines REGEX "define CUDNN_FRONTEND_M[A-Z]+_VERSION")
    string(REGEX REPLACE ".*MAJOR_VERSION ([0-9]+).*MINOR_VERSION ([0-9]+).*" "\\1.\\2" frontend "${lines}")
  endif()
  if(DSPP_CUDNN_INCLUDE_DIR AND DSPP_CUDNN_LIBRARY AND DSPP_NVRTC_LIBRARY AND frontend VERSION_GREATER_EQUAL 1.15)
    set(${result} ${DSPP_CUDNN_LIBRARY} ${DSPP_NVRTC_LIBRARY} PARENT_SCOPE)
  elseif(NOT DSPP_CUDNN STREQUAL "AUTO")
    message(FATAL_ERROR "dspp: DSPP_CUDNN=ON needs cuDNN and the headers of cudnn-frontend (1.15 or later), but cudnn.h, libcudnn, "
      "libnvrtc or cudnn_frontend.h was not found. Install them, or name their folders by -DDSPP_CUDNN_INCLUDE_DIR=, "
      "-DDSPP_CUDNN_FRONTEND_INCLUDE_DIR=, -DDSPP_CUDNN_LIBRARY= and -DDSPP_NVRTC_LIBRARY=.")
  endif()
endfunction()

# The flags of nvcc for CMAKE_CUDA_ARCHITECTURES: numbers from 80 on, with -real or -virtual; native; OFF: none.
function(_dspp_architecture_flags architectures result)
  set(flags "")
  foreach(architecture IN LISTS architectures)
    if(architecture MATCHES "^([89][0-9]|[1-9][0-9][0-9])([a-z]?)(-real|-virtual)?$")
      set(number ${CMAKE_MATCH_1}${CMAKE_MATCH_2})
      set(code "[compute_${number},sm_${number}]")
      if(CMAKE_MATCH_3 STREQUAL "-real")
        set(code sm_${number})
      elseif(CMAKE_MATCH_3 STREQUAL "-virtual")
        set(code compute_${number})
      endif()
      list(APPEND flags "-gencode=arch=compute_${number},code=${code}")
    elseif(architecture STREQUAL "native")
      list(APPEND flags -arch=native)
    elseif(architecture)
      message(FATAL_ERROR "dspp: CMAKE_CUDA_ARCHITECTURES needs numbers from 80 on such as 90a-real or 90-virtual, "
        "native or OFF, but has '${architecture}': bf16 on tensor cores begins there. Leave it out for 90a-real;90-virtual.")
    endif()
  endforeach()
  set(${result} ${flags} PARENT_SCOPE)
endfunction()
