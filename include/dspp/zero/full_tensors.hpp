// SPDX-License-Identifier: Apache-2.0
/// Whole parameters and gradients by global name, under every strategy: how Engine::full_parameter,
/// Engine::full_gradient and checkpoints find the elements that a rank holds.
#pragma once

#include <algorithm>
#include <ranges>
#include <string>
#include <string_view>

#include <dspp/optim/loss_scale.hpp>
#include <dspp/tensor/tensor.hpp>
#include <dspp/zero/materialize.hpp>

namespace dspp {

/// Whether this rank's copy of a parameter is the one that counts: the first where several hold the same elements.
template <Device D>
constexpr bool speaks_for(const ParameterBase<D>& p, int tp_rank) {
  return p.cut.dimension >= 0 || tp_rank == 0;
}

/// The parameter of that global name, e.g. "blocks.0.mlp.up.weight".
///
/// Throws   Error(usage) if the model has none
template <class Engine>
const auto& find_parameter(const Engine& engine, std::string_view name) {
  for (const auto& named : engine.inventory().parameters)
    if (named.name.text == name) return named;
  fail(ErrorCode::usage, "dspp: the model needs a parameter named '" + std::string(name) +
                             "', but has none. Take a name that visit() gives, such as '" +
                             engine.inventory().parameters.front().name.text + "'.");
}

namespace detail {
/// Calls f(bucket, at, global_begin, count) for every run of elements of the parameter that this rank, and no other,
/// answers for; `at` counts from the beginning of the rank's range of the bucket, as masters and moments do.
template <class Engine, class Named, class F>
void for_each_owned(Engine& engine, const Named& named, F f) {
  auto& replicas = engine.replicas();
  const int tp_rank = engine.world().place().tp;
  if (!speaks_for(*named.parameter, tp_rank)) return;
  if (!replicas.rule().optimizer_is_split() && replicas.group().rank() != 0) return;
  for_each_piece(named, [&](const auto& p, auto& b) {
    const Range own = replicas.owned(b);
    const Size begin = std::max(own.begin, p.offset), end = std::min(own.end, p.offset + p.count());
    if (begin >= end) return;
    p.geometry.for_each_run(tp_rank, begin - p.offset, end - p.offset, [&](Size local, Size global, Size count) {
      f(b, p.offset + local - own.begin, global, count);
    });
  });
}
}  // namespace detail

/// Calls f(global_begin, count, local_data) for every run of elements of the parameter that this rank, and no other,
/// answers for; local_data points to masters where there are any, else to values.
template <class Engine, class Named, class F>
void for_each_owned_run(Engine& engine, const Named& named, F f) {
  detail::for_each_owned(engine, named, [&](auto& b, Size at, Size global, Size count) {
    if (b.master)
      f(global, count, b.master.data() + at);
    else if constexpr (std::is_same_v<typename Engine::T, Compute<typename Engine::T>>)
      f(global, count,
        b.values.data() + (engine.replicas().rule().values_are_split() ? 0 : engine.replicas().owned(b).begin) + at);
  });
}

/// The same for the optimizer's moment number `moment`, counted from 0.
template <class Engine, class Named, class F>
void for_each_owned_moment_run(Engine& engine, const Named& named, int moment, F f) {
  detail::for_each_owned(engine, named, [&](auto& b, Size at, Size global, Size count) {
    f(global, count, b.moments[moment].data() + at);
  });
}

namespace detail {

/// Fills `whole`, which is zero, with the parameter.
template <class Engine, class Named, class State>
void collect_parameter(Engine& engine, const Named& named, const Tensor<State, 1>& whole) {
  for_each_owned_run(engine, named, [&](Size global, Size count, const State* data) {
    std::copy_n(data, count, whole.data() + global);
  });
  all_reduce(engine.world().all(), buffer(whole.data(), whole.count()), Purpose::checkpoint);
}

/// Fills `whole`, which is zero, with the sum of the parameter's gradients so far, reduced and not, loss scale taken
/// out.
template <class Engine, class Named, class State>
void collect_gradient(Engine& engine, const Named& named, const Tensor<State, 1>& whole) {
  using T = typename Engine::T;
  auto& replicas = engine.replicas();
  replicas.complete_all();
  const int tp_rank = engine.world().place().tp;
  const auto add = [&](const auto& p, const auto* gradient, Range range) {
    const Size begin = std::max(range.begin, p.offset), end = std::min(range.end, p.offset + p.count());
    if (begin < end)
      p.geometry.for_each_run(tp_rank, begin - p.offset, end - p.offset, [&](Size local, Size global, Size count) {
        for (Size i = 0; i < count; ++i)
          whole.data()[global + i] += static_cast<State>(gradient[p.offset + local + i - range.begin]);
      });
  };
  const auto add_storage = [&](const auto& p, const auto& storage, Range range) {
    if (!storage) return;
    if (replicas.config().wide_gradients)
      add(p, reinterpret_cast<const State*>(storage.data()), range);
    else
      add(p, reinterpret_cast<const T*>(storage.data()), range);
  };
  for_each_piece(named, [&](const auto& p, auto& b) {
    if (!p.partial_over_tp() && !speaks_for(p, tp_rank)) return;
    if (p.touched) add_storage(p, b.gradient, Range{0, b.count});
    add_storage(p, b.reduced, replicas.owned(b));
  });
  all_reduce(engine.world().all(), buffer(whole.data(), whole.count()), Purpose::checkpoint);
  if constexpr (needs_loss_scale<T>)
    for (Size i = 0; i < whole.count(); ++i) whole.data()[i] /= static_cast<State>(engine.loss_scale());
}

}  // namespace detail

/// Replaces a parameter's elements by those of a whole one, on every rank its own part; masters too. The optimizer's
/// moments stay: call Engine::restart() if the parameter was trained before.
///
/// Throws   Error(usage) unless `whole` has as many elements as the parameter has globally
template <class Engine>
void set_parameter(Engine& engine, std::string_view name, const std::ranges::contiguous_range auto& whole) {
  const auto& named = find_parameter(engine, name);
  if (std::ranges::ssize(whole) != named.parameter->geometry.global_count())
    fail(ErrorCode::usage, "dspp: set_parameter needs all " + std::to_string(named.parameter->geometry.global_count()) +
                               " elements of '" + std::string(name) + "', but got " +
                               std::to_string(std::ranges::ssize(whole)) + ". Give the whole parameter.");
  const auto source = [&](const auto&, Size first, Size count, auto* values) {
    for (Size i = 0; i < count; ++i)
      values[i] = static_cast<std::remove_reference_t<decltype(*values)>>(std::ranges::data(whole)[first + i]);
  };
  for_each_piece(named, [&](auto& p, auto& b) {
    Bucket<typename Engine::T, typename Engine::D> only = b;
    only.parameters = {&p};
    fill_bucket(only, engine.replicas(), engine.world().place().tp, source);
  });
}

}  // namespace dspp
