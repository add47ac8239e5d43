# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2034 # read by the scripts that source this
# The flags of MPI for a compiler that is called by hand: $mpi and $mpi_link, empty where there is no mpicxx.
mpi='' mpi_link=''
if compile=$(mpicxx -showme:compile 2>/dev/null) && mpi_link=$(mpicxx -showme:link); then
  mpi="-DDSPP_WITH_MPI=1 $compile"
fi
# What Open MPI needs to be started by root, on fewer cores than ranks (dspp_tests.cmake).
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
  OMPI_MCA_hwloc_base_binding_policy=none PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe \
  OMPI_MCA_reachable=weighted
