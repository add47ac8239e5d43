# SPDX-License-Identifier: Apache-2.0
# Installs the headers and a relocatable package: find_package(dspp 0.1) gives dspp::dspp.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(DIRECTORY include/dspp/compiled DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/dspp FILES_MATCHING PATTERN "*.cpp")
install(DIRECTORY kernels DESTINATION ${CMAKE_INSTALL_DATADIR}/dspp FILES_MATCHING PATTERN "*.cuh" PATTERN "*.cu")

# Headers and sources only: the package serves every architecture, so it goes to share/.
set(package_dir ${CMAKE_INSTALL_DATADIR}/cmake/dspp)
install(TARGETS dspp EXPORT dsppTargets FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT dsppTargets NAMESPACE dspp:: DESTINATION ${package_dir})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/dsppConfig.cmake.in dsppConfig.cmake
  INSTALL_DESTINATION ${package_dir} PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_DATADIR NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(dsppConfigVersion.cmake COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES ${PROJECT_BINARY_DIR}/dsppConfig.cmake ${PROJECT_BINARY_DIR}/dsppConfigVersion.cmake
  ${CMAKE_CURRENT_LIST_DIR}/dsppProviders.cmake ${CMAKE_CURRENT_LIST_DIR}/dsppCompiled.cmake
  ${CMAKE_CURRENT_LIST_DIR}/dsppCuda.cmake DESTINATION ${package_dir})
