# SPDX-License-Identifier: Apache-2.0
# awk -v rules=<folder of floors.txt and waivers.txt> -f check.awk < list of paths
# Prints a sentence for every breach of the house rules and exits with 1 if there was one.

BEGIN {
  read_floors(rules "/floors.txt")
  read_waivers(rules "/waivers.txt")
  configuration_header = "include/dspp/base/config.hpp"
  own_namespace["io"]; own_namespace["data"]; own_namespace["hub"]
  device_words = "(^|[^a-zA-Z_])(D|Device|DeviceType|DeviceOf<[^>]*>)::real|(^|[^a-zA-Z_])cpu::|(^|[^a-zA-Z_])Imitated|memcpy|memmove|memset|[.]data(_from)?[(][^()]*[)][ ]*[[]|[*][a-zA-Z_.]+[.]data(_from)?[(]"
  host_algorithms = "(std::(copy|fill|transform|equal|accumulate)|(^|[^a-zA-Z_.])(copy_n|fill_n))[(][^,]*[.]data(_from)?[(]"
  configuration_macros = "[^A-Z]_OPENMP|DSPP_WITH_|__CUDACC__|__FMA__|__F16C__|__(AVX|SSE|SSSE|ARM_)|__(FAST|FINITE|ASSOCIATIVE|RECIPROCAL)_MATH|__NO_SIGNED_ZEROS__"
}

{ path = $0; exists[path] = 1; paths[++count] = path; mirror(path) }

END {
  for (i = 1; i <= count; i++) check(paths[i])
  for (key in waiver)
    if (!(key in used)) offend(waived_path(key), "is waived in waivers.txt, but needs no waiver. Remove the line.")
  exit offences > 0
}

function offend(where, what) { print "dspp: " where " " what; offences++ }

function read_floors(file,    line, words, n, k) {
  while ((getline line < file) > 0) {
    if (line ~ /^#/ || (n = split(line, words, /[ \t]+/)) < 2) continue
    if (words[1] == "tests") { for (k = 2; k <= n; k++) test_folder[words[k]] = 1; continue }
    if (words[1] == "beside") { for (k = 3; k <= n; k++) beside[words[2] " " words[k]] = 1; continue }
    if (words[1] == "side") { for (k = 4; k <= n; k++) { side[words[k]] = words[2]; side_user[words[k]] = words[3] }; continue }
    for (k = 2; k <= n; k++) floor[words[k]] = words[1]
  }
  if (!("base" in floor)) offend(file, "names no floor `base`. The list of floors could not be read.")
}

function read_waivers(file,    line, words, n) {
  while ((getline line < file) > 0) {
    if (line ~ /^#/ || line ~ /^[ \t]*$/) continue
    n = split(line, words, /[ \t]+/)
    if (n < 4) offend(file, "has a waiver without a reason: " line)
    waiver[words[1] " " words[2]] = 1
  }
}

# A waiver's path may end in a star: it is meant for every path that begins so.
function waived(rule, file,    key, begin, found) {
  for (key in waiver) {
    begin = key
    if (key != rule " " file && !(sub(/\*$/, "", begin) && index(rule " " file, begin) == 1)) continue
    used[key] = 1
    found = 1
  }
  return found
}
function waived_path(key) { sub(/^[^ ]* /, "", key); return key }

# Floors that know a device by its operations alone.
function above_devices(folder) { return folder in floor && floor[folder] + 0 > floor["ops"] + 0 && folder != "compiled" && folder != "library" }

# The folder to which a path below include/ or kernels/, or an included name, belongs: kernels/<operation>.cuh to cuda.
function folder_of(name) {
  if (name ~ /^kernels\/[^\/]*\.cuh$/) return "cuda"
  sub(/^(include|kernels)\//, "", name); sub(/^dspp\//, "", name)
  sub(/\/.*/, "", name); sub(/\.(hpp|cuh)$/, "", name)
  return name
}

function check(file,    line, number, is_header, is_public, once, includes_ours) {
  is_header = file ~ /\.(hpp|cuh)$/
  is_public = file ~ /^(include|kernels)\//
  if (is_public && !(folder_of(file) in floor) && !(folder_of(file) in side))
    offend(file, "lies in a folder that floors.txt does not name. Give it a floor.")
  if (file ~ /^tests\/[^\/]*\//) check_test_path(file)
  number = 0; once = 0; includes_ours = 0
  split("", pointer)
  while ((getline line < file) > 0) {
    number++
    if (number == 1 && line !~ /^\/\/ SPDX-License-Identifier: Apache-2\.0$/)
      offend(file, "does not begin with the line `// SPDX-License-Identifier: Apache-2.0`.")
    if (line ~ /^#pragma once/) once = 1
    if (line ~ /^#include <(dspp|kernels)\//) includes_ours = 1
    check_line(file, number, line, is_header, is_public)
  }
  close(file)
  if (is_header && !once) offend(file, "has no `#pragma once`.")
  # By induction, every public header includes the configuration.
  if (is_header && is_public && !includes_ours && file != configuration_header)
    offend(file, "includes no header of dspp, so that a unit of it alone could be compiled unlike the others. Include <dspp/base/config.hpp>.")
  if (is_header && number > 500 && !waived("long_header", file))
    offend(file, "has " number " lines, but a header has at most 500. Look for the second idea in it.")
}

function check_line(file, number, line, is_header, is_public,    where, width, word) {
  where = file ":" number
  width = line; gsub(/[\200-\277]/, "", width)
  # A sentence for `require` stays on the line of the call, where every compiler echoes it (nvcc echoes nothing else).
  if (length(width) > 120 && line !~ /require\(.*"dspp: /) offend(where, "has " length(width) " columns, but a line has at most 120.")
  else if (length(width) > 200) offend(where, "has " length(width) " columns, but a line with a sentence has at most 200. Shorten it, or put the numbers on the next line.")
  if (line ~ /(TODO|FIXME|XXX)/) offend(where, "leaves work behind in a comment. Do it, or write an issue.")
  if (line ~ /^[ \t]*#[ \t]*(if|ifdef|ifndef|elif)[ \t(!]/ && file != configuration_header && line ~ configuration_macros)
    offend(where, "reads a macro of the compilation, but only <dspp/base/config.hpp> does. Ask it: #if DSPP_HAS_OPENMP().")
  if (!is_header) return
  if (line ~ /^using namespace / && line !~ /^using namespace (dspp::)?literals;/)
    offend(where, "opens a namespace for everybody who includes it. Name what is used.")
  if (!is_public) return
  if (line ~ /^namespace dspp( |::detail)/ && folder_of(file) in own_namespace && file !~ ("/" folder_of(file) "[.]hpp$") && !waived("core_name", file))
    offend(where, "declares names in dspp, but those of " folder_of(file) "/ are in dspp::" folder_of(file) ". Open that namespace.")
  if (line ~ /^[ \t]*#[ \t]*define /) {
    word = line; sub(/^[ \t]*#[ \t]*define[ \t]+/, "", word)
    if (word !~ /^DSPP_/) offend(where, "defines a macro that does not begin with DSPP_.")
  }
  if (line ~ /^[ \t]*#[ \t]*include[ \t]*["<]CLI\// && folder_of(file) != "app")
    offend(where, "includes CLI11, which only dspp's own programs need. Only app/ may.")
  if (above_devices(folder_of(file))) check_device(file, where, line)
  if (line ~ /^[ \t]*#[ \t]*include[ \t]*["<](dspp|kernels)\//) {
    word = line; sub(/^[^"<]*["<]/, "", word); sub(/[">].*/, "", word)
    check_include(where, folder_of(file), word)
  }
  if (line ~ /^[ \t]*#[ \t]*include[ \t]*"/) offend(where, "includes with quotes. Write <dspp/...>, so that the floor can be seen.")
}

function check_device(file, where, line) {
  if (line ~ device_words || line ~ host_algorithms || looks_at_elements(line))
    offend(where, "touches a device's memory, or asks what a device is, but above ops/ only operations and D::read, write, copy and fill do. Use those.")
  if (line ~ /::synchronous([^a-zA-Z_]|$)/ && !waived("synchronous", file))
    offend(where, "asks whether a device is synchronous, but above ops/ only <dspp/engine/known_at_once.hpp> does. Ask that.")
}

# True if the line looks at an element behind `auto* p = x.data()`: p[i] or *p, in the block of p.
function looks_at_elements(line,    indent, name, found) {
  indent = match(line, /[^ ]/)
  for (name in pointer) {
    if (line ~ /^ *}/ && indent < pointer[name]) delete pointer[name]
    else if (line ~ ("(^|[^a-zA-Z_.])" name "[[]") || line ~ ("[*]" name "([^a-zA-Z_]|$)")) found = 1
  }
  name = line
  if (sub(/ = [^;]*[.]data(_from)?[(].*/, "", name) && name ~ /(auto|[*])( const)? [a-z_]+$/) {
    sub(/.* /, "", name)
    pointer[name] = indent
  }
  return found
}

function check_include(where, from, included,    to) {
  to = folder_of(included)
  if (!("include/" included in exists) && !(included in exists))
    offend(where, "includes <" included ">, but there is no such header.")
  if (from == to || (!(from in floor) && !(from in side))) return
  if (to in side) {
    if ((from " " to) in beside) return
    if (!(from in floor) || floor[from] + 0 < side_user[to] + 0)
      offend(where, "includes <" included ">, but " to "/ stands aside: only floor " side_user[to] " and above may use it.")
  } else if (!(to in floor)) {
    offend(where, "includes <" included ">, but floors.txt gives " to "/ no floor.")
  } else if (from in side) {
    if (floor[to] + 0 > side[from] + 0)
      offend(where, "includes <" included "> of floor " floor[to] ", but " from "/ stands on floors up to " side[from] ".")
  } else if (floor[to] + 0 > floor[from] + 0) {
    offend(where, "includes <" included "> of floor " floor[to] ", but " from "/ is floor " floor[from] ". A header includes its own floor and those below.")
  }
}

# include/dspp/<folder>/<name>.hpp is what tests/<folder>/<name>_test.cpp may be about; of include/dspp/<folder>/<part>/<name>.hpp
# tests/<folder>/<name>_test.cpp and <part>_<name>_test.cpp may be, and of kernels/<name>.cuh tests/cuda/<name>_test.cpp.
function mirror(file,    parts, n) {
  if (file ~ /^kernels\/[^\/]*\.cuh$/) {
    sub(/^kernels\//, "", file); sub(/\.cuh$/, "", file)
    mirrored["cuda " file] = 1
    return
  }
  if (file !~ /^include\/dspp\/.*\.hpp$/) return
  n = split(file, parts, "/")
  sub(/\.hpp$/, "", parts[n])
  mirrored[parts[3] " " parts[n]] = 1
  if (n > 4) mirrored[parts[3] " " parts[n - 1] "_" parts[n]] = 1
}

# tests/<folder>/<name>_test.cpp is about a header of that name; <name>_<aspect>_test.cpp is about a part of it.
function check_test_path(file,    parts, n, folder, name) {
  n = split(file, parts, "/")
  folder = parts[2]
  if (folder in test_folder) return
  if (!(folder in floor) && !(folder in side)) {
    offend(file, "lies in a test folder that mirrors no floor. Move it, or name the folder in floors.txt.")
    return
  }
  if (n != 3 || parts[3] !~ /_test\.cpp$/) return
  name = parts[3]; sub(/_test\.cpp$/, "", name)
  do {
    if (((folder " " name) in mirrored) || name == folder) return
  } while (sub(/_[^_]*$/, "", name))
  if (!waived("no_header", file))
    offend(file, "mirrors no header of include/dspp/" folder "/. Name the test after its header, or waive it with a reason.")
}
