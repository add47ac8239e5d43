# SPDX-License-Identifier: Apache-2.0
# dspp::onednn, dspp::openmp and dspp::liburing: what dspp links when it is there; dspp::mpi: an add-on for who links it. Used by dspp's build and by its installed package alike,
# so that a package made on one machine asks anew on the next. An absent provider is an empty target, not an error.

# oneDNN by its C header and library. Its own CMake package is not asked: Debian's needs OpenCL, which dspp does not.
function(_dspp_find_onednn)
  if(TARGET dspp::onednn)
    return()
  endif()
  add_library(dspp::onednn INTERFACE IMPORTED GLOBAL)
  if(DSPP_ONEDNN STREQUAL "OFF" OR (NOT DSPP_ONEDNN STREQUAL "AUTO" AND NOT DSPP_ONEDNN))
    _dspp_say("oneDNN: off, as asked")
    return()
  endif()
  find_path(DSPP_ONEDNN_INCLUDE_DIR NAMES dnnl.h PATH_SUFFIXES oneapi/dnnl)
  find_library(DSPP_ONEDNN_LIBRARY NAMES dnnl)
  mark_as_advanced(DSPP_ONEDNN_INCLUDE_DIR DSPP_ONEDNN_LIBRARY)
  if(DSPP_ONEDNN_INCLUDE_DIR AND DSPP_ONEDNN_LIBRARY)
    set_target_properties(dspp::onednn PROPERTIES
      INTERFACE_INCLUDE_DIRECTORIES "${DSPP_ONEDNN_INCLUDE_DIR}"
      INTERFACE_LINK_LIBRARIES "${DSPP_ONEDNN_LIBRARY}"
      INTERFACE_COMPILE_DEFINITIONS DSPP_WITH_ONEDNN=1)
    set_property(GLOBAL PROPERTY DSPP_ONEDNN_FOUND TRUE)
    _dspp_say("oneDNN: ${DSPP_ONEDNN_LIBRARY}")
  elseif(DSPP_ONEDNN STREQUAL "AUTO")
    _dspp_say("oneDNN: off, dnnl.h and libdnnl were not found (libdnnl-dev); matrix products use Eigen")
  else()
    message(FATAL_ERROR "dspp: DSPP_ONEDNN=ON needs dnnl.h and libdnnl, but they were not found. "
      "Install libdnnl-dev, or leave DSPP_ONEDNN at AUTO.")
  endif()
endfunction()

# OpenMP where oneDNN is (its threads are OpenMP's, and dspp sets how many each rank has) and in dspp's own programs.
function(_dspp_find_openmp own_programs)
  if(TARGET dspp::openmp)
    return()
  endif()
  add_library(dspp::openmp INTERFACE IMPORTED GLOBAL)
  get_property(onednn GLOBAL PROPERTY DSPP_ONEDNN_FOUND)
  if(DSPP_OPENMP STREQUAL "AUTO")
    if(NOT own_programs AND NOT onednn)
      return()
    endif()
    find_package(OpenMP QUIET COMPONENTS CXX)
  elseif(DSPP_OPENMP)
    find_package(OpenMP REQUIRED COMPONENTS CXX)
  else()
    _dspp_say("OpenMP: off, as asked")
    return()
  endif()
  if(TARGET OpenMP::OpenMP_CXX)
    set_target_properties(OpenMP::OpenMP_CXX PROPERTIES IMPORTED_GLOBAL TRUE)
    set_target_properties(dspp::openmp PROPERTIES INTERFACE_LINK_LIBRARIES OpenMP::OpenMP_CXX)
    _dspp_say("OpenMP: ${OpenMP_CXX_FLAGS}")
  else()
    _dspp_say("OpenMP: off, the compiler has none; a rank computes on one thread")
  endif()
endfunction()

# liburing by its header and library: io_uring for files of Offload<..., Disk>.
function(_dspp_find_liburing)
  if(TARGET dspp::liburing)
    return()
  endif()
  add_library(dspp::liburing INTERFACE IMPORTED GLOBAL)
  if(DSPP_LIBURING STREQUAL "OFF" OR (NOT DSPP_LIBURING STREQUAL "AUTO" AND NOT DSPP_LIBURING))
    _dspp_say("liburing: off, as asked")
    return()
  endif()
  find_path(DSPP_LIBURING_INCLUDE_DIR NAMES liburing.h)
  find_library(DSPP_LIBURING_LIBRARY NAMES uring)
  mark_as_advanced(DSPP_LIBURING_INCLUDE_DIR DSPP_LIBURING_LIBRARY)
  if(DSPP_LIBURING_INCLUDE_DIR AND DSPP_LIBURING_LIBRARY)
    set_target_properties(dspp::liburing PROPERTIES
      INTERFACE_INCLUDE_DIRECTORIES "${DSPP_LIBURING_INCLUDE_DIR}"
      INTERFACE_LINK_LIBRARIES "${DSPP_LIBURING_LIBRARY}"
      INTERFACE_COMPILE_DEFINITIONS DSPP_WITH_LIBURING=1)
    set_property(GLOBAL PROPERTY DSPP_LIBURING_FOUND TRUE)
    _dspp_say("liburing: ${DSPP_LIBURING_LIBRARY}")
  elseif(DSPP_LIBURING STREQUAL "AUTO")
    _dspp_say("liburing: off, liburing.h and liburing were not found (liburing-dev); files are transferred by pread and pwrite")
  else()
    message(FATAL_ERROR "dspp: DSPP_LIBURING=ON needs liburing.h and liburing, but they were not found. "
      "Install liburing-dev, or leave DSPP_LIBURING at AUTO.")
  endif()
endfunction()

# dspp_find_mpi(<wanted>): defines dspp::mpi where MPI is: dspp::dspp with ranks as processes under mpirun. wanted is AUTO
# (where found), ON (required) or OFF. MPI's own C++ bindings are left out.
function(dspp_find_mpi wanted)
  if(TARGET dspp::mpi)
    return()
  endif()
  if(NOT wanted STREQUAL "AUTO" AND NOT wanted)
    _dspp_say("MPI: off, as asked")
    return()
  endif()
  set(MPI_CXX_SKIP_MPICXX TRUE)
  if(wanted STREQUAL "AUTO")
    find_package(MPI QUIET COMPONENTS CXX)
  else()
    find_package(MPI REQUIRED COMPONENTS CXX)
  endif()
  # FindMPI leaves the target MPI::MPI_CXX behind where it found nothing, too.
  if(NOT MPI_CXX_FOUND)
    _dspp_say("MPI: off, it was not found (libopenmpi-dev, openmpi-bin); ranks are threads")
    return()
  endif()
  set_target_properties(MPI::MPI_CXX PROPERTIES IMPORTED_GLOBAL TRUE)
  add_library(dspp::mpi INTERFACE IMPORTED GLOBAL)
  set_target_properties(dspp::mpi PROPERTIES
    INTERFACE_LINK_LIBRARIES "dspp::dspp;MPI::MPI_CXX"
    INTERFACE_COMPILE_DEFINITIONS DSPP_WITH_MPI=1)
  set_property(GLOBAL PROPERTY DSPP_MPIRUN "${MPIEXEC_EXECUTABLE}")
  _dspp_say("MPI: ${MPI_CXX_LIBRARIES}")
endfunction()

# dspp_tell_of_speed(): says what would make the consumer's programs slow, by the flags of the calling folder; a target may
# have others.
function(dspp_tell_of_speed)
  get_property(several GLOBAL PROPERTY GENERATOR_IS_MULTI_CONFIG)
  string(TOUPPER "CMAKE_CXX_FLAGS_${CMAKE_BUILD_TYPE}" of_type)
  set(flags " ${CMAKE_CXX_FLAGS} ${${of_type}}")
  if(NOT several AND NOT CMAKE_BUILD_TYPE AND NOT flags MATCHES " -O")
    _dspp_say("CMAKE_BUILD_TYPE is empty, so programs are not optimised; -DCMAKE_BUILD_TYPE=Release does it")
  endif()
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" AND NOT flags MATCHES " -m(arch=|avx)")
    _dspp_say("CMAKE_CXX_FLAGS has no -march, so programs run on any processor, without AVX; -DCMAKE_CXX_FLAGS=-march=native uses this one's")
  endif()
endfunction()

function(_dspp_say sentence)
  if(NOT dspp_FIND_QUIETLY)
    message(STATUS "dspp: ${sentence}")
  endif()
endfunction()

# dspp_find_providers(own_programs <bool>): defines dspp::onednn, dspp::openmp and dspp::liburing.
function(dspp_find_providers keyword own_programs)
  _dspp_find_onednn()
  _dspp_find_openmp(${own_programs})
  _dspp_find_liburing()
endfunction()
