# SPDX-License-Identifier: Apache-2.0
# awk -f step_figure.awk -v headers="a.hpp b.hpp ..." <all headers of include/dspp>: the way through those files as a figure in
# Mermaid's words. An arrow is an include, direct or through files that are not of the list; one that others imply is left out.
function reach(start, from,    i, n, next_of) {
  n = split(includes[from], next_of, " ")
  for (i = 1; i <= n; i++)
    if (!((start, next_of[i]) in seen)) {
      seen[start, next_of[i]] = 1
      reach(start, next_of[i])
    }
}
function name(i,    part) {
  split(list[i], part, /[\/.]/)
  return part[2]
}
function reaches(i, j) { return i != j && ((list[i], list[j]) in seen) }
FNR == 1 { file = FILENAME; sub(/^.*include\/dspp\//, "", file) }
/^#include <dspp\// {
  header = $2
  gsub(/^<dspp\/|>$/, "", header)
  includes[file] = includes[file] " " header
}
END {
  count = split(headers, list, " ")
  for (i = 1; i <= count; i++) reach(list[i], list[i])
  print "flowchart TD"
  for (i = 1; i <= count; i++) {
    split(list[i], part, "/")
    if (part[1] in shown) continue
    shown[part[1]] = 1
    print "  subgraph in_" part[1] "[" part[1] "/]"
    for (j = i; j <= count; j++) if (index(list[j], part[1] "/") == 1) print "    " name(j) "[" name(j) ".hpp]"
    print "  end"
  }
  for (i = 1; i <= count; i++)
    for (j = 1; j <= count; j++) {
      implied = 0
      for (k = 1; k <= count; k++) if (reaches(i, k) && reaches(k, j)) implied = 1
      if (reaches(i, j) && !implied) print "  " name(i) " --> " name(j)
    }
}
