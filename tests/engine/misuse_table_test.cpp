// SPDX-License-Identifier: Apache-2.0
// A table of misuses of engine, batch, optimizer and tape: each is an error sentence, and the training continues after
// it as one without it, bit for bit.
// labels: thread races
#include <cmath>
#include <functional>
#include <limits>
#include <memory>

#include <dspp/autograd/shape_operators.hpp>
#include <dspp/nn/rms_norm.hpp>
#include <dspp/optim/schedule.hpp>

#include <laws/training_run.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

constexpr Size width = 8, vocabulary = 13;
constexpr double nan = std::numeric_limits<double>::quiet_NaN(), infinite = std::numeric_limits<double>::infinity();

/// The misuse by Odd.
enum class Wrong {
  nothing,
  gives_no_gradient,
  gives_it_twice,
  notes_no_use,
  records_nothing,
  gives_another_shape,
  gives_less,
  gives_more,
  gives_another_type,
  uses_an_earlier_pass,
  captures_an_earlier_pass,
  uses_what_is_recomputed,
  end,
};
thread_local Wrong wrong = Wrong::nothing;  // a rank is a thread

/// x + shift, by hand.
template <class P>
struct Odd : Layer<P> {
  using T = ElementOf<P>;
  using X = Hidden<P>;
  ParameterOf<P, 1> shift{"Odd shift", shape(width), Initial::zeros()};
  std::shared_ptr<X> carried = std::make_shared<X>();  ///< the output of the last pass
  constexpr void visit(auto&& f) { f("shift", shift); }

  X operator()(const X& x) const {
    const X before = *carried;
    const Shape<2> rows{{x[0] * x[1], x[2]}};
    X y(ops::add_bias(x.value().reshape(rows), shift.value()).reshape(x.shape()), x.tape());
    if (!x.tape().recording()) return y;
    if (wrong != Wrong::notes_no_use) shift.register_use(x);
    if (wrong != Wrong::records_nothing)
      y.on_backward([self = this, slot = x.slot(), rows](Tape<Cpu>& tape, Tensor<T, 3> dy) {
        const auto add = [&] {
          self->shift.accumulate([&](auto d, Write how) { ops::sum_rows_into(d, how, dy.reshape(rows)); });
        };
        if (wrong != Wrong::gives_no_gradient) add();
        if (wrong == Wrong::gives_it_twice) add();
        if (wrong == Wrong::gives_another_shape) tape.give(slot, dy.reshape(rows));
        if (wrong == Wrong::gives_less) tape.give(slot, ops::slice(dy, 2, 1, 3));
        if (wrong == Wrong::gives_more) tape.give(slot, ops::pad_zero(dy, 2, 0, 4096));
        if (wrong == Wrong::gives_another_type) tape.give(slot, ops::cast<bf16>(dy));
        tape.give(slot, std::move(dy));
      });
    *carried = y;
    if (wrong == Wrong::uses_an_earlier_pass) return y + before;
    if (wrong == Wrong::captures_an_earlier_pass)
      return recompute([before](const X& v) { return v + 0.5 * before; }, y);
    if (wrong == Wrong::uses_what_is_recomputed) {
      X inside;
      const X z = recompute([&inside](const X& v) { return inside = 2.0 * v; }, y);
      return z + inside;
    }
    return y;
  }
};

template <class P>
struct Small : Layer<P> {
  VocabParallel<Embedding, P> tokens{vocabulary, width};
  Odd<P> odd;
  InUnit<LayerNorm<P>> norm{LayerNorm<P>(width)};
  Dropout<P> dropout{0.25};
  constexpr void visit(auto&& f) {
    f("tokens", tokens);
    f("odd", odd);
    f("norm", norm);
    f("dropout", dropout);
  }
  constexpr Loss<P> loss(const Tokens<P>& ids, const Tokens<P>& targets) const {
    return cross_entropy<P>(tokens.logits(dropout(norm(odd(tokens(ids))))), targets, vocabulary);
  }
};

template <class P>
using Trainer = Engine<Small<P>, AdamW>;

template <class World>
Batch<Cpu> good(World& world, Size number = 0) {
  return batch_of(world.memory(), number * 8, 2 * world.data_rank(), 2, 4, vocabulary);
}
Tensor<std::int32_t, 2> ids(Pool& pool, Size rows, Size columns) {
  return Tensor<std::int32_t, 2>::zeros(shape(rows, columns), pool, Category::data);
}

template <class P>
struct Row {
  std::string name;
  std::function<void(World<P>&, Trainer<P>&)> misuse;
};

template <class P>
void add_batches(std::vector<Row<P>>& rows) {
  using Make = std::function<Batch<Cpu>(World<P>&)>;
  const auto made_of = [](Size a, Size b, Size c, Size d) -> Make {
    return [=](World<P>& world) { return Batch<Cpu>{ids(world.memory(), a, b), ids(world.memory(), c, d)}; };
  };
  const auto spoiled = [](auto spoil) -> Make {
    return [=](World<P>& world) {
      auto batch = good(world);
      spoil(batch);
      return batch;
    };
  };
  const std::vector<std::pair<std::string, Make>> batches{
      {"no tensors", [](World<P>&) { return Batch<Cpu>(); }},
      {"no targets", spoiled([](auto& batch) { batch.targets = {}; })},
      {"no tokens", spoiled([](auto& batch) { batch.tokens = {}; })},
      {"no rows", made_of(0, 4, 0, 4)},
      {"no columns", made_of(2, 0, 2, 0)},
      {"fewer targets", made_of(2, 4, 2, 3)},
      {"more targets", made_of(2, 4, 3, 4)},
      {"turned targets", made_of(2, 4, 4, 2)},
      {"fewer weights", spoiled([](auto& batch) {
         batch.target_weights = Tensor<float, 2>::zeros(shape(2, 3), batch.tokens.memory());
       })},
      {"a negative weight", spoiled([](auto& batch) {
         batch.target_weights = Tensor<float, 2>::zeros(shape(2, 4), batch.tokens.memory());
         batch.target_weights.data()[5] = -1;
       })},
      {"a weight that is no number", spoiled([](auto& batch) {
         batch.target_weights = Tensor<float, 2>::zeros(shape(2, 4), batch.tokens.memory());
         batch.target_weights.data()[7] = std::nanf("");
       })},
      {"a token too large", spoiled([](auto& batch) { batch.tokens.data()[3] = vocabulary; })},
      {"a negative token", spoiled([](auto& batch) { batch.tokens.data()[0] = -1; })},
      {"a target too large", spoiled([](auto& batch) { batch.targets.data()[7] = vocabulary; })},
      {"a negative sample", spoiled([](auto& batch) { batch.first_sample = -1; })},
  };
  for (const auto& [name, make] : batches) {
    rows.push_back({"forward of " + name, [make = make](auto& world, auto& engine) { engine.forward(make(world)); }});
    rows.push_back({"eval of " + name, [make = make](auto& world, auto& engine) { engine.eval_batch(make(world)); }});
    rows.push_back({"train_batch of " + name, [make = make](auto& world, auto& engine) {
                      engine.train_batch(std::vector<Batch<Cpu>>{good(world), make(world)});
                    }});
  }
}

template <class P>
void add_numbers(std::vector<Row<P>>& rows) {
  const auto constructed = [&](const std::string& name, AdamW optimizer, EngineConfig config = {},
                               BatchSizes sizes = {}) {
    rows.push_back({name, [=](auto& world, auto&) { Trainer<P>(world, Small<P>(), optimizer, sizes, config); }});
  };
  for (const double bad : {-1e-3, nan, infinite, -infinite}) {
    const std::string value = " " + std::to_string(bad);
    rows.push_back({"rate" + value, [bad](auto&, auto& engine) { engine.set_learning_rate(bad); }});
    rows.push_back({"schedule" + value, [bad](auto&, auto& engine) {
                      engine.set_learning_rate(WarmupLR{.max_lr = bad, .warmup_steps = 2}(5));
                    }});
    rows.push_back({"resumed rate" + value, [bad](auto&, auto& engine) {
                      auto progress = engine.progress();
                      progress.learning_rate = bad;
                      engine.resume(progress);
                    }});
    constructed("lr" + value, {.lr = bad});
    constructed("weight_decay" + value, {.weight_decay = bad});
    constructed("epsilon" + value, {.epsilon = bad});
    constructed("beta1" + value, {.beta1 = bad});
    constructed("beta2" + value, {.beta2 = bad});
  }
  for (const double bad : {1.0, 1.5}) {
    constructed("beta1 " + std::to_string(bad), {.beta1 = bad});
    constructed("beta2 " + std::to_string(bad), {.beta2 = bad});
  }
  for (const double bad : {-1.0, nan}) constructed("clip_norm", {}, {.clip_norm = bad});
  for (const Size bad : {-1, 0}) {
    constructed("accumulate", {}, {}, {.accumulate = bad});
    constructed("micro_batch", {}, {}, {.micro_batch = bad});
  }
  constructed("sequence", {}, {}, {.sequence = -1});
  constructed("large accumulate", {}, {}, {.accumulate = Size{1} << 62});
  constructed("large micro_batch", {}, {}, {.micro_batch = Size{1} << 40});
}

/// Layers that cannot be described. They throw where they are, on the ranks that make them.
template <class P>
void add_descriptions(std::vector<Row<P>>& rows) {
  const auto described = [&](const std::string& name, auto make) {
    rows.push_back({name, [make](auto&, auto&) { make(); }});
  };
  for (const Size bad : {-1, 0}) {
    const std::string extent = " of " + std::to_string(bad);
    described("LayerNorm" + extent, [bad] { LayerNorm<P>{bad}; });
    described("RmsNorm" + extent, [bad] { RmsNorm<P>{bad}; });
    described("Linear" + extent, [bad] { Linear<P>(bad, 4); });
    described("Linear to" + extent, [bad] { Linear<P>(4, bad); });
    described("Embedding" + extent, [bad] { Embedding<P>(bad, 4); });
  }
  for (const double bad : {-1e-5, nan}) {
    described("epsilon of LayerNorm", [bad] { LayerNorm<P>(4, bad); });
    described("epsilon of RmsNorm", [bad] { RmsNorm<P>(4, bad); });
    described("init_std", [bad] { Initial::normal(bad); });
  }
  described("infinite init_std", [] { Initial::normal(infinite); });
  described("layers of a Gpt", [] { Gpt<P>{GptConfig{.layers = -1}}; });
}

template <class P>
void add_calls(std::vector<Row<P>>& rows) {
  rows.push_back({"gather_gradient after step", [](auto&, auto& engine) { engine.gather_gradient("odd.shift"); }});
  rows.push_back({"gather_gradient after forward", [](auto& world, auto& engine) {
                    const auto loss = engine.forward(good(world));
                    engine.gather_gradient("odd.shift");
                  }});
  rows.push_back({"unknown parameter", [](auto&, auto& engine) { engine.gather_parameter("odd.sift"); }});
  rows.push_back({"short parameter",
                  [](auto&, auto& engine) { set_parameter(engine, "odd.shift", std::vector<float>(width - 1)); }});
  rows.push_back({"step without backward", [](auto&, auto& engine) { engine.step(); }});
  rows.push_back({"step after forward alone", [](auto& world, auto& engine) {
                    const auto loss = engine.forward(good(world));
                    engine.step();
                  }});
  rows.push_back({"backward without forward", [](auto& world, auto& engine) {
                    const auto loss = engine.forward(good(world));
                    engine.eval_batch(good(world));
                    engine.backward(loss);
                  }});
  rows.push_back({"tokens refilled before backward", [](auto& world, auto& engine) {
                    const auto batch = good(world);
                    const auto loss = engine.forward(batch);
                    batch.tokens.data()[3] ^= 1;
                    engine.backward(loss);
                  }});
  rows.push_back({"targets refilled before backward", [](auto& world, auto& engine) {
                    const auto batch = good(world);
                    const auto loss = engine.forward(batch);
                    batch.targets.fill(1);
                    engine.backward(loss);
                  }});
  rows.push_back({"weights refilled before backward", [](auto& world, auto& engine) {
                    auto batch = good(world);
                    batch.target_weights = Tensor<float, 2>::zeros(batch.targets.shape(), world.memory());
                    batch.target_weights.fill(1);
                    const auto loss = engine.forward(batch);
                    batch.target_weights.data()[0] = 2;
                    engine.backward(loss);
                  }});
  rows.push_back({"a batch of another accumulate", [](auto& world, auto& engine) {
                    auto batch = good(world);
                    batch.accumulate = 3;
                    engine.forward(batch);
                  }});
  rows.push_back({"backward of an earlier loss", [](auto& world, auto& engine) {
                    const auto first = engine.forward(good(world)), second = engine.forward(good(world, 1));
                    engine.backward(first);
                  }});
  for (const std::size_t count : {0, 1})
    rows.push_back({"train_batch of " + std::to_string(count) + " batches", [count](auto& world, auto& engine) {
                      engine.train_batch(std::vector<Batch<Cpu>>(count, good(world)));
                    }});
}

template <class P>
void add_layers(std::vector<Row<P>>& rows) {
  for (int w = 1; w < static_cast<int>(Wrong::end); ++w)
    rows.push_back({"layer " + std::to_string(w), [w](auto& world, auto& engine) {
                      struct Scope {
                        ~Scope() { wrong = Wrong::nothing; }
                      } scope;
                      wrong = static_cast<Wrong>(w);
                      engine.backward(engine.forward(good(world)));
                    }});
}

struct Seen {
  std::vector<std::string> sentences;  ///< by each rank; "" where nothing was thrown
  std::vector<double> numbers;         ///< losses, norms and parameters, of all ranks
};

/// Three steps of two micro-steps each; `row`, if any, before the second one.
template <class P>
Seen trained(int ranks, const Row<P>* row) {
  Seen seen{std::vector<std::string>(static_cast<std::size_t>(ranks)), {}};
  std::vector<std::vector<double>> numbers(static_cast<std::size_t>(ranks));
  run_ranks_of<P>({.ranks = ranks, .threads_per_rank = 1, .timeout_seconds = 30}, [&](World<P>& world) {
    const auto me = static_cast<std::size_t>(world.rank());
    Trainer<P> engine(world, Small<P>(), AdamW{.lr = 0.05}, {.accumulate = 2}, {.bucket_bytes = 64});
    for (Size step = 0; step < 3; ++step) {
      if (step == 1 && row) {
        try {
          row->misuse(world, engine);
        } catch (const Error& error) {
          seen.sentences[me] = error.what();
        }
      }
      const StepReport report =
          engine.train_batch(std::vector<Batch<Cpu>>{good(world, 2 * step), good(world, 2 * step + 1)});
      numbers[me].insert(numbers[me].end(), {report.loss, report.gradient_norm});
    }
    for (const char* name : {"tokens.weight", "odd.shift", "norm.weight", "norm.bias"}) {
      const auto whole = engine.gather_parameter(name);
      numbers[me].insert(numbers[me].end(), whole.data(), whole.data() + whole.count());
    }
    numbers[me].push_back(static_cast<double>(engine.steps()));
  });
  for (const auto& own : numbers) seen.numbers.insert(seen.numbers.end(), own.begin(), own.end());
  return seen;
}

template <class P>
void check_rows(int ranks, const std::vector<Row<P>>& rows) {
  const Seen undisturbed = trained<P>(ranks, nullptr);
  for (const double number : undisturbed.numbers) CHECK(std::isfinite(number));
  for (const Row<P>& row : rows) {
    CAPTURE(row.name);
    const Seen seen = trained<P>(ranks, &row);
    for (const std::string& sentence : seen.sentences) {
      CAPTURE(sentence);
      CHECK(sentence.starts_with("dspp: "));
    }
    CHECK(seen.numbers == undisturbed.numbers);
  }
}

template <class P>
void check_table(int ranks) {
  std::vector<Row<P>> rows;
  add_batches(rows);
  add_numbers(rows);
  add_descriptions(rows);
  add_calls(rows);
  add_layers(rows);
  CHECK(rows.size() > 80);
  check_rows(ranks, rows);
}

}  // namespace

TEST_CASE("each misuse is an error sentence, after which the training continues bit for bit") {
  check_table<Policy<F32>>(2);  // on every rank; no operation is in flight before step
}

TEST_CASE("the same where units are gathered and reduced during the step") {
  check_table<Policy<F32, Zero<3>>>(2);
}

TEST_CASE("a missing gradient is found after backward, when the reductions in flight have completed") {
  using P = Policy<F32, Zero<2>>;
  std::vector<Row<P>> rows;
  add_layers(rows);
  check_rows<P>(2, {rows.at(static_cast<std::size_t>(Wrong::gives_no_gradient) - 1)});
}

TEST_CASE("batches that are refused while reductions are in flight leave a world that goes on") {
  using P = Policy<F32, Zero<2>>;
  std::vector<Row<P>> all, rows;
  add_batches(all);
  add_calls(all);
  for (const Row<P>& row : all)
    if (row.name.starts_with("train_batch")) rows.push_back(row);
  CHECK(rows.size() > 15);
  check_rows<P>(2, rows);
}

TEST_CASE("a use that no gradient reaches is not missing one") {
  using P = Policy<F32>;
  struct Unused : Small<P> {
    Loss<P> loss(const Tokens<P>& ids, const Tokens<P>& targets) const {
      const auto x = this->tokens(ids);
      const auto unused = this->odd(this->norm(x));
      return cross_entropy<P>(this->tokens.logits(this->dropout(x)), targets, vocabulary);
    }
  };
  run_ranks_of<P>({.ranks = 1, .threads_per_rank = 1, .timeout_seconds = 30}, [](World<P>& world) {
    Engine<Unused, AdamW> engine(world, Unused(), AdamW{});
    for (Size step = 0; step < 2; ++step) {
      engine.backward(engine.forward(good(world, step)));
      const auto gradient = engine.gather_gradient("odd.shift");
      for (Size i = 0; i < gradient.count(); ++i) CHECK(gradient.data()[i] == 0);
      CHECK(engine.step().acted());
    }
  });
}
