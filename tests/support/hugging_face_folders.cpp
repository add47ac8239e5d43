// SPDX-License-Identifier: Apache-2.0
// hugging_face_folders <directory>: writes the folders that tests/golden/check_hugging_face.py checks.
#define DOCTEST_CONFIG_IMPLEMENT
#include <laws/written_folders.hpp>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: hugging_face_folders <directory>\n", stderr);
    return 2;
  }
  doctest::Context context;  // for the checks within the laws
  context.setAsDefaultForAssertsOutOfTestCases();
  dspp::laws::fs::create_directories(argv[1]);
  dspp::laws::write_hugging_face_folders(argv[1]);
}
