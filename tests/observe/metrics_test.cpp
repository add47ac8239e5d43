// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/observe/metrics.hpp>
#include <laws/folder.hpp>

using namespace dspp;
using namespace dspp::laws;

TEST_CASE("runs that start in the same second get folders of their own") {
  const Folder folder;
  const std::string parent = (folder.path / "a" / "runs").string();
  const std::string first = create_run_folder(parent, 0), second = create_run_folder(parent, 0);
  CHECK(first.substr(0, parent.size() + 1) == parent + "/");
  CHECK(second == first + "-2");
  CHECK(create_run_folder(parent, 0) == first + "-3");
  CHECK(create_run_folder(parent, 1) != first);
  CHECK(fs::is_directory(second));
}

TEST_CASE("a run folder that cannot be created is an error") {
  const Folder folder;
  const std::string file = (folder.path / "file").string();
  write_text_file(file, "x");
  CHECK_THROWS_AS(create_run_folder(file, 0), Error);
}

TEST_CASE("a line of metrics can be read as soon as it is written") {
  const Folder folder;
  MetricsFile metrics((folder.path / "m.jsonl").string());
  CHECK(read_file(metrics.path()).empty());
  metrics.write(JsonObject().add("step", 1));
  CHECK(read_file(metrics.path()) == "{\"step\":1}\n");
  metrics.write(JsonObject().add("step", 2));
  CHECK(read_file(metrics.path()) == "{\"step\":1}\n{\"step\":2}\n");
}

TEST_CASE("a full disk and a path without folder are errors that name the file") {
  MetricsFile full("/dev/full");
  CHECK_THROWS_WITH_AS(full.write(JsonObject()),
                       "dspp: MetricsFile needs a file that it can write, but '/dev/full' cannot be written: No space "
                       "left on device. Check its permissions and the free space.",
                       Error);
  CHECK_THROWS_AS(MetricsFile("/absent/folder/m.jsonl"), Error);
  CHECK_THROWS_AS(write_text_file("/absent/folder/x.json", "{}"), Error);
  CHECK_THROWS_AS(write_text_file("/dev/full", "{}"), Error);
}

TEST_CASE("write_text_file replaces an existing file") {
  const Folder folder;
  const std::string path = (folder.path / "x").string();
  write_text_file(path, "a long text");
  write_text_file(path, "short");
  CHECK(read_file(path) == "short");
}
