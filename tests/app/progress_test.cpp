// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <limits>
#include <memory>

#include <dspp/app/progress.hpp>

using namespace dspp;

namespace {

/// The output of a Progress to a temporary file while `use` had it.
template <class F>
std::string output(bool terminal, F use) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), std::fclose);
  REQUIRE(file != nullptr);
  {
    Progress progress(file.get(), terminal);
    use(progress);
  }
  std::string text(static_cast<std::size_t>(std::ftell(file.get())), '\0');
  std::rewind(file.get());
  REQUIRE(std::fread(text.data(), 1, text.size(), file.get()) == text.size());
  return text;
}

const ProgressPoint point{.step = 7, .loss = 1.5, .tokens_per_second = 1234, .seconds_left = 62};

}  // namespace

TEST_CASE("progress is one line, without unknown figures") {
  CHECK(progress_text(point) == "step 7  loss 1.5000  1234 tokens/s  1:02 left");
  ProgressPoint p = point;
  p.tokens_per_second = 41240;
  p.limit_tokens_per_second = 82480;
  p.seconds_left = 3723;
  CHECK(progress_text(p) == "step 7  loss 1.5000  41.2 k tokens/s (50 % of the GEMM limit)  1:02:03 left");
  p.seconds_left = std::numeric_limits<double>::infinity();
  CHECK(progress_text(p) == "step 7  loss 1.5000  41.2 k tokens/s (50 % of the GEMM limit)");
  p.loss_scale = 65536;
  CHECK(progress_text(p) == "step 7  loss 1.5000  scale 65536  41.2 k tokens/s (50 % of the GEMM limit)");
  p.loss_scale = 1;
  p.seconds_left = 5;
  p.last = true;
  CHECK(progress_text(p) == "step 7  loss 1.5000  41.2 k tokens/s (50 % of the GEMM limit)");
}

TEST_CASE("a file gets plain lines: the first, the last, and at most one every few seconds between them") {
  const std::string text = output(false, [](Progress& progress) {
    for (int i = 0; i < 100; ++i) progress.show(point);
    ProgressPoint last = point;
    last.last = true;
    progress.show(last);
  });
  CHECK(text == "step 7  loss 1.5000  1234 tokens/s  1:02 left\nstep 7  loss 1.5000  1234 tokens/s\n");
}

TEST_CASE("a terminal gets one line that is rewritten and ends with the job") {
  const std::string text = output(true, [](Progress& progress) {
    progress.show(point);
    ProgressPoint last = point;
    last.last = true;
    progress.show(last);
  });
  CHECK(text == "\r\033[Kstep 7  loss 1.5000  1234 tokens/s  1:02 left\r\033[Kstep 7  loss 1.5000  1234 tokens/s\n");
}

TEST_CASE("progress without points prints nothing") {
  CHECK(output(true, [](Progress&) {}).empty());
  CHECK(output(false, [](Progress&) {}).empty());
}

TEST_CASE("a terminal without a width, as mpirun gives its processes if its output is a file, is not interactive") {
  using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;
  const int keyboard = posix_openpt(O_RDWR | O_NOCTTY);
  if (keyboard < 0 || ptsname(keyboard) == nullptr || access(ptsname(keyboard), F_OK) != 0) {
    MESSAGE("skipped: this machine has no pseudo terminals (/dev/pts)");
    return;
  }
  REQUIRE(grantpt(keyboard) == 0);
  REQUIRE(unlockpt(keyboard) == 0);
  const File screen(fdopen(open(ptsname(keyboard), O_RDWR | O_NOCTTY), "w"), std::fclose),
      file(std::tmpfile(), std::fclose);
  REQUIRE(isatty(fileno(screen.get())) == 1);
  CHECK(!is_watched(screen.get()));
  const winsize size{.ws_row = 24, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0};
  REQUIRE(ioctl(keyboard, TIOCSWINSZ, &size) == 0);
  CHECK(is_watched(screen.get()));
  CHECK(!is_watched(file.get()));
  close(keyboard);
}
