# SPDX-License-Identifier: Apache-2.0
# cmake -DOUTPUT=<unit.cpp> -DROOT=<tests/> "-DFILES=<folder>/<name>_test.cpp,..." -P unit.cmake
# Writes one unit of several test files: what they include, once and first, then each file in a namespace of its own, so that
# names of two files do not meet. A file's own includes do nothing there, since every header has been read.
string(REPLACE "," ";" files "${FILES}")
set(includes "")
set(bodies "")
foreach(file IN LISTS files)
  file(STRINGS ${ROOT}/${file} lines REGEX "^#include ")
  get_filename_component(folder ${file} DIRECTORY)
  list(TRANSFORM lines REPLACE "^#include \"" "#include \"${ROOT}/${folder}/")
  list(APPEND includes ${lines})
  string(MAKE_C_IDENTIFIER ${file} name)
  string(APPEND bodies "namespace from_${name} {\n#include \"${ROOT}/${file}\"\n}\n")
endforeach()
list(REMOVE_DUPLICATES includes)
list(JOIN includes "\n" includes)
file(WRITE ${OUTPUT} "${includes}\n${bodies}")
