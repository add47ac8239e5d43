// SPDX-License-Identifier: Apache-2.0
/// Trains a BERT to fill in masked bytes of the lines of a text, and says how many it gets right in lines that it has
/// not seen: fill_masks --text PATH, --help lists all options.
#include <algorithm>
#include <cctype>
#include <memory>
#include <string_view>
#include <vector>

#include <dspp/dspp.hpp>

#include "text_job.hpp"

using namespace dspp;

using P = Policy<Zero<2>>;
constexpr BertConfig config{.layers = 2, .width = 64, .vocabulary = 257, .sequence = 64};
constexpr BatchSizes sizes{.micro_batch = 16, .sequence = 64};
constexpr std::int32_t mask = 256;
using Lines = std::vector<std::string_view>;

/// The lines of 8 bytes or more, each cut to a sequence.
static Lines lines_of(data::ByteSpan bytes, const char* part) {
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  Lines lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (end >= 8) lines.push_back(text.substr(0, std::min<std::size_t>(end, sizes.sequence)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (lines.empty())
    fail(ErrorCode::file, std::string("dspp: fill_masks needs lines of 8 bytes or more, but the ") + part +
                              " part of the text has none. Give a longer text.");
  return lines;
}

/// Lines `first`, `first` + 1, ... of an endless stream, which is that of every number of ranks.
struct Sample {
  const Lines& lines;
  Size first;

  std::string_view line(Size i) const {
    const auto number = static_cast<std::uint64_t>(first + i / sizes.sequence) * 2654435761u % lines.size();
    return lines[static_cast<std::size_t>(number)];
  }
  std::int32_t byte(Size i) const {
    const auto at = static_cast<std::size_t>(i % sizes.sequence);
    return at < line(i).size() ? static_cast<unsigned char>(line(i)[at]) : 0;
  }
  /// One position in seven.
  bool is_masked(Size i) const {
    const auto bits = static_cast<std::uint64_t>(first * sizes.sequence + i + 1) * 0x9e3779b97f4a7c15u;
    return i % sizes.sequence < std::ssize(line(i)) && (bits >> 40) % 7 == 0;
  }
};

static void draw(BertBatch<P>& batch, const Sample& sample) {
  const auto fill = [](auto& field, auto value) {
    field.value().write([&](std::int32_t* out) {
      for (Size i = 0; i < field.value().count(); ++i) out[i] = static_cast<std::int32_t>(value(i));
    });
  };
  fill(batch.tokens, [&](Size i) { return sample.is_masked(i) ? mask : sample.byte(i); });
  fill(batch.token_types, [](Size) { return 0; });
  fill(batch.lengths, [&](Size i) { return std::ssize(sample.line(i * sizes.sequence)); });
  fill(batch.labels, [&](Size i) { return sample.is_masked(i) ? sample.byte(i) : ignored_target; });
}

/// The share of masked bytes whose logit is the largest; prints the first line, as it was filled in.
static double share_right(const Tensor<ElementOf<P>, 3, DeviceOf<P>>& logits, const Sample& sample, bool prints) {
  Size right = 0, all = 0;
  std::string masked, filled;
  logits.read([&](const ElementOf<P>* row) {
    for (Size i = 0; i < logits[0] * logits[1]; ++i, row += logits[2]) {
      const auto best = static_cast<std::int32_t>(std::max_element(row, row + logits[2]) - row);
      if (sample.is_masked(i)) right += best == sample.byte(i), ++all;
      if (i >= std::ssize(sample.line(0))) continue;
      masked += sample.is_masked(i) ? '_' : static_cast<char>(sample.byte(i));
      filled += static_cast<char>(sample.is_masked(i) && std::isprint(best) != 0 ? best : sample.byte(i));
    }
  });
  if (prints) std::printf("%s\n%s\n", printable(masked).c_str(), printable(filled).c_str());
  return static_cast<double>(right) / static_cast<double>(std::max<Size>(all, 1));
}

static void train(World<P>& world, const text_job::Job& job, const data::Text& text) {
  const Lines lines = lines_of(text.training(), "training"), unseen = lines_of(text.validation(), "held-out");
  Engine engine{world, Bert<P>(config), AdamW{.lr = 2e-3}, sizes};
  const Size all = sizes.micro_batch * world.data_size(), own = world.data_rank() * sizes.micro_batch;
  for (Size step = 0; step < job.steps; ++step) {
    auto batch = engine.model().new_batch(sizes, world.memory());
    draw(batch, {lines, step * all + own});
    const StepReport report = engine.train_batch(batch);
    if (world.is_first() && (step % 50 == 49 || step + 1 == job.steps))
      std::printf("step %3ld  loss %.3f\n", long(step + 1), report.loss);
  }
  auto held_out = engine.model().new_batch(sizes, world.memory());
  const Sample sample{unseen, own};
  draw(held_out, sample);
  const double right = engine.all_reduce_mean(engine.no_grad([&](const auto& model, auto& tape) {
    return share_right(model.logits(on_tape(held_out, tape)).value(), sample, world.is_first());
  }));
  if (world.is_first()) std::printf("%.1f %% of the masked bytes of new lines are right\n", 100 * right);
}

int main(int argc, char** argv) {
  return text_job::main_of("fill_masks", "Trains a BERT to fill in masked bytes of the lines of a text.", 300, argc,
                           argv, [](const text_job::Job& job) {
                             const auto text = data::open_data(data::TextFiles{job.text});
                             return run<P>(job.run, [&](World<P>& world) { train(world, job, *text); });
                           });
}
