# SPDX-License-Identifier: Apache-2.0
# awk -v out=<folder> -v name=<document's name> -f extract.awk <document.md>
#
# Writes each marked ```cpp block of the document to a file in <folder>, and one line for each to <folder>/manifest:
#   run <id> <line> <arguments>     a program that must end with 0
#   build <id> <line>               code that must compile
#   fails <id> <line>               code that must not compile, with an expected sentence (written into it)
#   wrong <line> <sentence>         a block that is not marked, or marked so that it cannot be checked
#
# The marks are the words after ```cpp:
#   run [args="..."]   without a main function, the block is the body of one
#   build
#   fails              the sentence is the next ```text block, or the next block quote
#   part=NAME          a block to be put in front of blocks marked with=NAME; alone, it is not compiled
#   with=NAME,NAME     the parts to put in front
#   sketch             not code of this version: not compiled
# In a run or build block, the comment
#   // CODE   does not compile:
#   // "dspp: the sentence."
# replaces the line above it by CODE in a copy of the block, which must then fail with that sentence.

function wrong(line, sentence) { print "wrong " line " " name ".md:" line " " sentence > (out "/manifest") }
function mark(key,    rest) {  # the value of key=... among the marks, or ""
  if (!match(marks, " " key "=[^ ]+")) return ""
  rest = substr(marks, RSTART + length(key) + 2, RLENGTH - length(key) - 2)
  return rest
}
function marked(word) { return index(marks " ", " " word " ") > 0 }

# ---- reading -------------------------------------------------------------------------------------------------------
inside == "" && /^```cpp/ { inside = "cpp"; begin_block(substr($0, 7)); next }
inside == "" && /^```/ { inside = "text"; collecting = (awaiting && /^```text/); next }
inside == "cpp" && /^```[ \t]*$/ { inside = ""; end_block(); next }
inside == "text" && /^```[ \t]*$/ { inside = ""; if (collecting) give_sentence(); collecting = 0; next }
inside == "cpp" { lines[++count] = $0; next }
inside == "text" { if (collecting) sentence = sentence " " $0; next }
awaiting && /^> / { sentence = sentence " " substr($0, 3); quoting = 1; next }
quoting { quoting = 0; give_sentence() }
END { if (quoting) give_sentence(); if (awaiting) no_sentence(); for (p in part) if (!(p in used)) wrong(part_line[p], "names a part `" p "` that no block uses.") }

function begin_block(words) {
  if (awaiting) no_sentence()
  marks = words; start = NR; count = 0
  arguments = ""
  if (match(marks, /args="[^"]*"/)) { arguments = substr(marks, RSTART + 6, RLENGTH - 7); marks = substr(marks, 1, RSTART - 1) substr(marks, RSTART + RLENGTH) }
}

function no_sentence() { awaiting = 0; wrong(start_of_failure, "must fail to compile, but no sentence follows it in a text block or a block quote.") }

# ---- writing -------------------------------------------------------------------------------------------------------
function end_block(    text, i) {
  if (marked("sketch")) return
  text = ""
  for (i = 1; i <= count; i++) text = text lines[i] "\n"
  if (mark("part") != "") { part[mark("part")] = text; part_line[mark("part")] = start }
  if (marked("run")) { write_file("run", start, source(text, 1), ""); variants(1) }
  else if (marked("build")) { write_file("build", start, source(text, 0), ""); variants(0) }
  else if (marked("fails")) { failure = source(text, 0); start_of_failure = start; sentence = ""; awaiting = 1 }
  else if (mark("part") == "") wrong(start, "is not marked: say run, build, fails, part=NAME or sketch after cpp.")
}

# The translation unit around a block.
function source(text, is_program,    names, n, i, front, all) {
  front = ""
  n = split(mark("with"), names, ",")
  for (i = 1; i <= n; i++) {
    if (!(names[i] in part)) wrong(start, "asks for a part `" names[i] "` that no block above it defines.")
    used[names[i]] = 1
    front = front "#line " (part_line[names[i]] + 1) " \"" name ".md\"\n" part[names[i]]
  }
  all = front text
  return (all ~ /#include <dspp\// ? "" : "#include <dspp/dspp.hpp>\n") \
    (all ~ /using namespace dspp;/ || all ~ /#include <dspp\// ? "" : "using namespace dspp;\n") \
    front "#line " (start + 1) " \"" name ".md\"\n" \
    (is_program && text !~ /int main\(/ ? "int main() {\n" text "}\n" : text)
}

function write_file(kind, line, text, expected,    id, file) {
  id = name "_" line
  file = out "/" id ".cpp"
  printf "%s%s", (expected == "" ? "" : "// expected-error {{" expected "}}\n"), text > file
  close(file)
  print kind " " id " " line " " (kind == "run" ? arguments : "") > (out "/manifest")
}

function give_sentence() {
  awaiting = 0
  sub(/^[ \t]+/, "", sentence); sub(/[ \t]+$/, "", sentence)
  write_file("fails", start_of_failure, failure, sentence)
}

# For every `// CODE   does not compile:` a copy of the block in which CODE stands in the place of the line above.
function variants(is_program,    i, j, k, code, said, text) {
  for (i = 2; i <= count; i++) {
    if (lines[i] !~ /^[ \t]*\/\/ .*  does not compile:/) continue
    code = lines[i]; sub(/^[ \t]*\/\/ /, "", code); sub(/  +does not compile:.*/, "", code)
    said = ""
    for (j = i + 1; j <= count && lines[j] ~ /^[ \t]*\/\//; j++) {
      k = lines[j]; sub(/^[ \t]*\/\/ */, "", k); said = said " " k
      if (k ~ /"[ \t]*$/) break
    }
    gsub(/^[ \t]*"|"[ \t]*$/, "", said)
    if (said == "") { wrong(start + i, "shows a line that does not compile, but not the sentence."); continue }
    text = ""
    for (k = 1; k <= count; k++) text = text (k == i - 1 ? code : lines[k]) "\n"
    write_file("fails", start + i, source(text, is_program), said)
  }
}
