// SPDX-License-Identifier: Apache-2.0
/// The progress of a long job: one line that is rewritten on a terminal, a line now and then elsewhere.
#pragma once

#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>

#include <dspp/base/types.hpp>

namespace dspp {

/// The state of training to show.
struct ProgressPoint {
  Size step = 0;
  double loss = 0;
  double loss_scale = 1;  ///< the loss is multiplied by it; 1: none
  double tokens_per_second = 0;
  double limit_tokens_per_second = 0;  ///< from the matrix products alone; 0: not measured
  double seconds_left = 0;
  bool last = false;  ///< always shown
};

/// "step 120  loss 1.9034  scale 65536  41.2 k tokens/s (38 % of the GEMM limit)  0:23 left".
std::string progress_text(const ProgressPoint& point);

/// True if the stream is a terminal with a width. Open MPI's mpirun gives its processes a terminal even if its own
/// output goes to a file; only that of a real terminal has its width.
bool is_watched(std::FILE* stream);

/// Prints points on a stream, rate-limited. Owned by the rank that prints: rank 0.
class Progress {
 public:
  explicit Progress(std::FILE* stream) : Progress(stream, is_watched(stream)) {}
  Progress(std::FILE* stream, bool terminal)
      : stream_(stream), terminal_(terminal), pause_seconds_(terminal ? 0.1 : 5.0) {}
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { finish(); }

  void show(const ProgressPoint& point);
  /// Ends the line, so that other output starts below it.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;

  std::string fitted(std::string line) const;

  std::FILE* stream_;
  bool terminal_;
  double pause_seconds_;
  bool line_open_ = false, shown_ = false;
  Clock::time_point last_{};
};

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

/// Columns of the terminal; 0 if there is none or its width is unknown.
std::size_t width_of(std::FILE* stream);

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE std::size_t width_of(std::FILE* stream) {
  winsize size{};
  return ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 ? size.ws_col : 0u;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace detail

inline bool is_watched(std::FILE* stream) {
  return isatty(fileno(stream)) == 1 && detail::width_of(stream) > 0;
}

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE std::string Progress::fitted(std::string line) const {
  const std::size_t width = detail::width_of(stream_);
  if (width > 1 && line.size() >= width) line.resize(width - 1);
  return line;
}

DSPP_INLINE std::string progress_text(const ProgressPoint& p) {
  char text[256];
  const bool many = p.tokens_per_second >= 9999.5;
  int n = std::snprintf(text, sizeof text, "step %lld  loss %.4f", static_cast<long long>(p.step), p.loss);
  std::string line(text, static_cast<std::size_t>(n));
  if (p.loss_scale != 1) {
    n = std::snprintf(text, sizeof text, "  scale %.10g", p.loss_scale);
    line.append(text, static_cast<std::size_t>(n));
  }
  n = std::snprintf(text, sizeof text, "  %.*f%s tokens/s", many ? 1 : 0,
                    many ? p.tokens_per_second / 1000 : p.tokens_per_second, many ? " k" : "");
  line.append(text, static_cast<std::size_t>(n));
  if (p.limit_tokens_per_second > 0)
    line += " (" + std::to_string(std::lround(100 * p.tokens_per_second / p.limit_tokens_per_second)) +
            " % of the GEMM limit)";
  if (!p.last && std::isfinite(p.seconds_left)) {
    const long left = std::lround(std::min(p.seconds_left, 1e9));
    n = left < 3600
            ? std::snprintf(text, sizeof text, "  %ld:%02ld left", left / 60, left % 60)
            : std::snprintf(text, sizeof text, "  %ld:%02ld:%02ld left", left / 3600, left / 60 % 60, left % 60);
    line.append(text, static_cast<std::size_t>(n));
  }
  return line;
}

DSPP_INLINE void Progress::show(const ProgressPoint& point) {
  const Clock::time_point now = Clock::now();
  if (shown_ && !point.last && std::chrono::duration<double>(now - last_).count() < pause_seconds_) return;
  shown_ = true;
  last_ = now;
  if (terminal_) {
    std::fprintf(stream_, "\r\033[K%s", fitted(progress_text(point)).c_str());
    line_open_ = true;
  } else {
    std::fprintf(stream_, "%s\n", progress_text(point).c_str());
  }
  std::fflush(stream_);
}

DSPP_INLINE void Progress::finish() {
  if (!line_open_) return;
  line_open_ = false;
  std::fprintf(stream_, "\n");
  std::fflush(stream_);
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
