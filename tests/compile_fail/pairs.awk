# SPDX-License-Identifier: Apache-2.0
# awk -f pairs.awk <header>... <mistake>.cpp... pairs_waivers.txt: prints a line for each sentence of a static_assert that no
# `expected-error` of the catalogue begins with, or that one could be of another sentence as well; and for each waiver that is
# not needed. Quotes and white space are not compared. An `expected-error` may be followed by ones that go on with the sentence.
function normal(text) {
  gsub(/\\"/, "", text)
  gsub(/["'`]/, "", text)
  gsub(/[ \t]+/, " ", text)
  sub(/^ /, "", text)
  sub(/ $/, "", text)
  return text
}

# How much of the sentence the expected texts of one file say, from the text `from` on.
function said(sentence, from, last,    i, at) {
  at = length(expected[from])
  for (i = from + 1; i <= last && file_of[i] == file_of[from]; i++) {
    rest = substr(sentence, at + 1)
    space = substr(rest, 1, 1) == " " ? 1 : 0
    if (expected[i] != "" && substr(rest, 1 + space, length(expected[i])) == expected[i]) at += space + length(expected[i])
  }
  return at
}

FNR == 1 { inside = 0 }

FILENAME ~ /\.hpp$/ {
  line = $0
  while (line != "") {
    if (!inside) {
      at = match(line, /static_assert\(/)
      comment = index(line, "//")
      if (!at || (comment && comment < at)) break
      line = substr(line, at + RLENGTH)
      inside = depth = 1
      text = ""
      place = FILENAME ":" FNR
    }
    if (match(line, /^"([^"\\]|\\.)*"/)) {
      text = text substr(line, 2, RLENGTH - 2)
      line = substr(line, RLENGTH + 1)
      continue
    }
    character = substr(line, 1, 1)
    line = substr(line, 2)
    if (character == "/" && substr(line, 1, 1) == "/") break
    if (character == "," && depth == 1) text = ""  # of the condition
    if (character == "(") depth++
    if (character == ")" && --depth == 0) {
      inside = 0
      text = normal(text)
      if (text != "" && !(text in place_of)) {
        place_of[text] = place
        sentence[++sentences] = text
      }
    }
  }
}

FILENAME ~ /\.cpp$/ && match($0, /expected-error \{\{.*\}\}/) {
  expected[++texts] = normal(substr($0, RSTART + 17, RLENGTH - 19))
  file_of[texts] = FILENAME
}

FILENAME ~ /waivers/ && !/^#/ && /[^ ]/ {
  at = index($0, " | ")
  waiver[++waivers] = normal(substr($0, 1, at - 1))
  if (!at || substr($0, at + 3) !~ /[^ ]/) {
    printf "dspp: %s:%d needs `<beginning of a sentence> | <reason>`, but has no reason. Give one.\n", FILENAME, FNR
    failed = 1
  }
}

END {
  if (sentences == 0 || texts == 0) {
    print "dspp: the comparison needs headers and a catalogue, but has none. Give it both."
    exit 1
  }
  for (s = 1; s <= sentences; s++) {
    found = 0
    for (i = 1; i <= texts && !found; i++) {
      if (expected[i] !~ /^dspp: / || index(sentence[s], expected[i]) != 1) continue
      reach = substr(sentence[s], 1, said(sentence[s], i, texts))
      found = 1
      for (other = 1; other <= sentences; other++)
        if (other != s && index(sentence[other], reach) == 1) found = 0
    }
    waived = 0
    for (w = 1; w <= waivers; w++)
      if (waiver[w] != "" && index(sentence[s], waiver[w]) == 1) waived = used[w] = 1
    if (found && waived) {
      printf "dspp: a waiver needs a sentence without a mistake, but the catalogue has one for \"%s\". Delete it.\n", sentence[s]
      failed = 1
    }
    if (found || waived) continue
    printf "dspp: %s: a static_assert needs a mistake in tests/compile_fail that says its sentence, but none does: \"%s\"\n",
      place_of[sentence[s]], sentence[s]
    failed = 1
  }
  for (w = 1; w <= waivers; w++)
    if (!used[w]) {
      printf "dspp: a waiver needs a static_assert whose sentence it begins, but \"%s\" has none. Delete it.\n", waiver[w]
      failed = 1
    }
  if (!failed) printf "dspp: %d sentences of static_asserts have their mistakes, %d are waived.\n", sentences - waivers, waivers
  exit failed
}
