# SPDX-License-Identifier: Apache-2.0
# dspp::onednn, dspp::openmp and dspp::liburing: what dspp links when it is there; dspp::mpi: an add-on for who links it. Used by dspp's build and by its installed package alike,
# so that a package made on one machine asks anew on the next. An absent provider is an empty target, not an error.

# _dspp_find_c_library(<name> <header> <library> <package> <without>): dspp::<name, small> by its header and library, as DSPP_<NAME>
# says. without: what dspp does in its place.
function(_dspp_find_c_library name header library package without)
  string(TOLOWER ${name} small)
  string(TOUPPER ${name} NAME)
  if(TARGET dspp::${small})
    return()
  endif()
  add_library(dspp::${small} INTERFACE IMPORTED GLOBAL)
  set(wanted "${DSPP_${NAME}}")
  if(wanted STREQUAL "OFF" OR (NOT wanted STREQUAL "AUTO" AND NOT wanted))
    _dspp_say("${name}: off, as asked")
    return()
  endif()
  find_path(DSPP_${NAME}_INCLUDE_DIR NAMES ${header} PATH_SUFFIXES oneapi/dnnl)  # dnnl.h
  find_library(DSPP_${NAME}_LIBRARY NAMES ${library})
  mark_as_advanced(DSPP_${NAME}_INCLUDE_DIR DSPP_${NAME}_LIBRARY)
  if(DSPP_${NAME}_INCLUDE_DIR AND DSPP_${NAME}_LIBRARY)
    set_target_properties(dspp::${small} PROPERTIES
      INTERFACE_INCLUDE_DIRECTORIES "${DSPP_${NAME}_INCLUDE_DIR}"
      INTERFACE_LINK_LIBRARIES "${DSPP_${NAME}_LIBRARY}"
      INTERFACE_COMPILE_DEFINITIONS DSPP_WITH_${NAME}=1)
    set_property(GLOBAL PROPERTY DSPP_${NAME}_FOUND TRUE)
    _dspp_say("${name}: ${DSPP_${NAME}_LIBRARY}")
  elseif(wanted STREQUAL "AUTO")
    _dspp_say("${name}: off, ${header} and lib${library} were not found (${package}); ${without}")
  else()
    message(FATAL_ERROR "dspp: DSPP_${NAME}=ON needs ${header} and lib${library}, but they were not found. "
      "Install ${package}, or leave DSPP_${NAME} at AUTO.")
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
  # oneDNN's own CMake package is not asked: Debian's needs OpenCL, which dspp does not.
  _dspp_find_c_library(oneDNN dnnl.h dnnl libdnnl-dev "matrix products use Eigen")
  _dspp_find_openmp(${own_programs})
  _dspp_find_c_library(liburing liburing.h uring liburing-dev "files of Offload<..., Disk> are transferred by pread and pwrite")
endfunction()
