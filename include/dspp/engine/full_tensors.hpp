// SPDX-License-Identifier: Apache-2.0
/// Whole parameters and gradients by global name, under every strategy: for looking at, not for training.
#pragma once

#include <string>
#include <string_view>

#include <dspp/engine/engine.hpp>

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

/// Calls f(global_begin, count, local_data) for every run of elements of the parameter that this rank, and no other,
/// answers for; local_data points to masters where there are any, else to values.
template <class Engine, class Named, class F>
void for_each_owned_run(Engine& engine, const Named& named, F f) {
  const auto& p = *named.parameter;
  auto& b = named.unit->buckets()[static_cast<std::size_t>(p.bucket)];
  auto& replicas = engine.replicas();
  const Range own = replicas.owned(b);
  const int tp_rank = engine.world().place().tp;
  if (!speaks_for(p, tp_rank) || (!replicas.rule().optimizer_is_split() && engine.world().data_rank() != 0)) return;
  const Size begin = std::max(own.begin, p.offset), end = std::min(own.end, p.offset + p.count());
  if (begin >= end) return;
  const Size values_begin = replicas.rule().values_are_split() ? own.begin : 0;
  p.geometry.for_each_run(tp_rank, begin - p.offset, end - p.offset, [&](Size local, Size global, Size count) {
    if (b.master)
      f(global, count, b.master.data() + (p.offset + local - own.begin));
    else if constexpr (std::is_same_v<typename Engine::T, Compute<typename Engine::T>>)
      f(global, count, b.values.data() + (p.offset + local - values_begin));
  });
}

/// The whole parameter on every rank, [elements of the global tensor], in the precision of the master.
///
/// Cost     one all-reduce over the world. Call it on every rank.
template <class Engine>
auto full_parameter(Engine& engine, std::string_view name) {
  using State = Compute<typename Engine::T>;
  const auto& named = find_parameter(engine, name);
  auto whole = Tensor<State, 1>::zeros(shape(named.parameter->geometry.global_count()), engine.world().memory(),
                                       Category::communication, "full parameter");
  for_each_owned_run(engine, named, [&](Size global, Size count, const State* data) {
    std::copy_n(data, count, whole.data() + global);
  });
  all_reduce(engine.world().all(), buffer(whole.data(), whole.count()), Purpose::checkpoint);
  return whole;
}

/// The whole gradient of the parameter, summed over all ranks, between backward and step: that of the mean loss over
/// the micro- steps so far times their share of the global batch.
///
/// Cost     one all-reduce over the world. Call it on every rank.
template <class Engine>
auto full_gradient(Engine& engine, std::string_view name) {
  using T = typename Engine::T;
  using State = Compute<T>;
  const auto& named = find_parameter(engine, name);
  const auto& p = *named.parameter;
  auto& replicas = engine.replicas();
  auto& b = named.unit->buckets()[static_cast<std::size_t>(p.bucket)];
  replicas.complete_all();
  auto whole = Tensor<State, 1>::zeros(shape(p.geometry.global_count()), engine.world().memory(),
                                       Category::communication, "full gradient");
  const int tp_rank = engine.world().place().tp;
  const auto add = [&](const auto* gradient, Range range) {
    const Size begin = std::max(range.begin, p.offset), end = std::min(range.end, p.offset + p.count());
    if (begin < end)
      p.geometry.for_each_run(tp_rank, begin - p.offset, end - p.offset, [&](Size local, Size global, Size count) {
        for (Size i = 0; i < count; ++i)
          whole.data()[global + i] += static_cast<State>(gradient[p.offset + local + i - range.begin]);
      });
  };
  const auto add_storage = [&](const auto& storage, Range range) {
    if (!storage) return;
    if (replicas.config().wide_gradients)
      add(reinterpret_cast<const State*>(storage.data()), range);
    else
      add(reinterpret_cast<const T*>(storage.data()), range);
  };
  if (p.partial_over_tp || speaks_for(p, tp_rank)) {
    if (p.touched) add_storage(b.gradient, Range{0, b.count});
    add_storage(b.reduced, replicas.owned(b));
  }
  all_reduce(engine.world().all(), buffer(whole.data(), whole.count()), Purpose::checkpoint);
  return whole;
}

/// Replaces a parameter's elements by those of a whole one, on every rank its own part; masters too.
template <class Engine, class State>
void set_parameter(Engine& engine, std::string_view name, const State* whole) {
  const auto& named = find_parameter(engine, name);
  auto& b = named.unit->buckets()[static_cast<std::size_t>(named.parameter->bucket)];
  Bucket<typename Engine::T, typename Engine::D> only = b;
  only.parameters = {named.parameter};
  fill_bucket(only, engine.replicas(), engine.world().place().tp,
              [&](const auto&, Size first, Size count, auto* values) {
                for (Size i = 0; i < count; ++i)
                  values[i] = static_cast<std::remove_reference_t<decltype(*values)>>(whole[first + i]);
              });
}

}  // namespace dspp
