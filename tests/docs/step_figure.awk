# SPDX-License-Identifier: Apache-2.0
# awk -f step_figure.awk -v headers="a.hpp b.hpp ..." -v beside="c.hpp ..." <those headers, below include/dspp>: the way through
# the headers as a figure in Mermaid's words. An arrow is an #include, and every #include of one by another is an arrow. A header
# that they include from a folder of theirs has to be one of them or of `beside`; otherwise a sentence and exit status 1.
function name(header,    part) {
  split(header, part, /[\/.]/)
  return part[2]
}
function folder(header) { sub(/\/.*/, "", header); return header }
function offend(sentence) { print "dspp: " sentence | "cat >&2"; wrong = 1 }
BEGIN {
  count = split(headers, list, " ")
  for (i = 1; i <= count; i++) { on_way[list[i]]; drawn[folder(list[i])] }
  delete drawn["ops"]  # of the operations only what decides is on the way
  beside_count = split(beside, others, " ")
  for (i = 1; i <= beside_count; i++) left_out[others[i]]
}
FNR == 1 { file = FILENAME; sub(/^.*include\/dspp\//, "", file) }
/^ *#include <dspp\// {
  header = $2
  gsub(/^<dspp\/|>$/, "", header)
  if (header in on_way) includes[file, header]
  else if (header in left_out) used[header]
  else if (folder(header) in drawn) offend("the way of a step needs to name " header ", which " file " includes, in one of its two lists, but does not.")
}
END {
  for (i = 1; i <= beside_count; i++)
    if (!(others[i] in used)) offend("the way of a step lists " others[i] " beside it, but no file of it includes that.")
  print "flowchart TD"
  for (i = 1; i <= count; i++) {
    of = folder(list[i])
    if (of in shown) continue
    shown[of]
    print "  subgraph in_" of "[" of "/]"
    for (j = i; j <= count; j++) if (folder(list[j]) == of) print "    " name(list[j]) "[" name(list[j]) ".hpp]"
    print "  end"
  }
  for (i = 1; i <= count; i++)
    for (j = 1; j <= count; j++)
      if ((list[i], list[j]) in includes) print "  " name(list[i]) " --> " name(list[j])
  exit wrong
}
