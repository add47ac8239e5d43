// SPDX-License-Identifier: Apache-2.0
/// Whole parameters and gradients by global name, under every strategy, for Engine::gather_parameter,
/// Engine::gather_gradient and checkpoints.
#pragma once

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <dspp/ops/arithmetic.hpp>
#include <dspp/optim/loss_scale.hpp>
#include <dspp/tensor/tensor.hpp>
#include <dspp/zero/sharded_state.hpp>

namespace dspp {

/// True if this rank holds the primary copy of a parameter: the first of the ranks of Tp with the same elements.
template <Device D>
constexpr bool is_primary_copy(const ParameterBase<D>& p, int tp_rank) {
  return p.cut.dimension >= 0 || tp_rank == 0;
}

/// The parameter of that global name, e.g. "blocks.0.mlp.up.weight".
///
/// Throws   Error(usage) if the model has none
template <class Engine>
const auto& find_parameter(const Engine& engine, std::string_view name) {
  for (const auto& named : engine.inventory().parameters)
    if (named.name->text == name) return named;
  fail(ErrorCode::usage, "dspp: the model needs a parameter named '" + std::string(name) +
                             "', but has none. Take a name that visit() gives, such as '" +
                             engine.inventory().parameters.front().name->text + "'.");
}

namespace detail {
/// Calls f(bucket, at, global_begin, count) for every contiguous run of the parameter's elements whose primary copy
/// this rank holds; `at` is the offset in the rank's range of the bucket, as in masters and moments.
template <class Engine, class Named, class F>
void for_each_owned(Engine& engine, const Named& named, F f) {
  auto& replicas = engine.replicas();
  const int tp_rank = engine.world().place().tp;
  if (!is_primary_copy(*named.parameter, tp_rank)) return;
  if (replicas.copy() != 0 || (!replicas.rule().optimizer_is_split() && replicas.group().rank() != 0)) return;
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

namespace detail {
/// The same as f(tensor, at, global_begin, count), with the masters if there are any, else the values.
template <class Engine, class Named, class F>
void for_each_owned_part(Engine& engine, const Named& named, F f) {
  using T = typename Engine::T;
  for_each_owned(engine, named, [&](auto& b, Size at, Size global, Size count) {
    if constexpr (!std::is_same_v<T, Compute<T>>)  // else there is no master: nothing is fetched
      if (const auto* const state = optimizer_state(engine, b); state && state->master)
        return f(state->master, at, global, count);
    f(engine.replicas().owned_values(b), at, global, count);
  });
}

/// Calls f(host) with elements [begin, begin + count) of a vector on the host.
template <class T, class D, class F>
void read_part(const Tensor<T, 1, D>& x, Size begin, Size count, F f) {
  D::read(x.memory(), static_cast<const T*>(x.data_from(begin)), count, f);
}
}  // namespace detail

/// Calls f(global_begin, count, elements) for every run of the parameter's elements of which this rank has the primary
/// copy: masters if there are any, else values. They are on the host until f returns.
template <class Engine, class Named, class F>
void for_each_owned_run(Engine& engine, const Named& named, F f) {
  detail::for_each_owned_part(engine, named, [&](const auto& x, Size at, Size global, Size count) {
    detail::read_part(x, at, count, [&]<class T>(const T* host) {
      if constexpr (std::is_same_v<T, Compute<T>>) {
        f(global, count, host);
      } else {
        const std::vector<Compute<T>> wide(host, host + count);
        f(global, count, wide.data());
      }
    });
  });
}

/// The same for the optimizer's moment number `moment`, counted from 0, if the parameter has that many.
template <class Engine, class Named, class F>
void for_each_owned_moment_run(Engine& engine, const Named& named, int moment, F f) {
  detail::for_each_owned(engine, named, [&](auto& b, Size at, Size global, Size count) {
    if (moment >= engine.state().moments(b)) return;
    detail::read_part(engine.state().of(b).moments[moment], at, count,
                      [&](const auto* host) { f(global, count, host); });
  });
}

namespace detail {

/// A tensor of zeros for all elements of a parameter, after `collect(named, whole)`.
template <class Engine, class Collect>
auto collected(Engine& engine, std::string_view name, Collect collect) {
  const auto& named = find_parameter(engine, name);
  auto whole = Engine::FullTensor::zeros(shape(named.parameter->geometry.global_count()), engine.world().memory(),
                                         Category::communication, "full tensor");
  collect(named, whole);
  return whole;
}

/// Fills `whole`, which is zero, with the parameter.
template <class Engine, class Named, class State, class D>
void collect_parameter(Engine& engine, const Named& named, const Tensor<State, 1, D>& whole) {
  read_state(engine, [&] {
    for_each_owned_part(engine, named, [&](const auto& x, Size at, Size global, Size count) {
      using T = typename std::remove_cvref_t<decltype(x)>::Element;
      launch<kernels::Pointwise<pointwise::Identity, State, T>, D>(
          x.memory(), pointwise::Identity{}, count, whole.data_from(global), static_cast<const T*>(x.data_from(at)));
    });
  });
  all_reduce(engine.world().all(), buffer(whole.data(), whole.count()), Purpose::checkpoint);
}

/// Fills `whole`, which is zero, with the sum of the parameter's gradients so far, reduced and unreduced, unscaled.
template <class Engine, class Named, class State, class D>
void collect_gradient(Engine& engine, const Named& named, Tensor<State, 1, D>& whole) {
  using T = typename Engine::T;
  if (named.parameter->is_frozen())
    fail(ErrorCode::usage, "dspp: gather_gradient needs a parameter that is trained, but '" + named.name->text +
                               "' is frozen by its group. Ask for another, or take it out of the group.");
  auto& replicas = engine.replicas();
  replicas.complete_all();
  const int tp_rank = engine.world().place().tp;
  const auto add = [&]<class G>(const auto& p, const auto& storage, Range range) {
    const Range own = common(range, {p.offset, p.offset + p.count()});
    if (own.count() > 0)
      p.geometry.for_each_run(tp_rank, own.begin - p.offset, own.end - p.offset,
                              [&](Size local, Size global, Size count) {
                                const Size at = p.offset + local - range.begin;
                                ops::add_into(Tensor<State, 1, D>::view(whole.storage(), global, shape(count)),
                                              Tensor<G, 1, D>::view(storage, at, shape(count)));
                              });
  };
  const auto add_storage = [&](const auto& p, const auto& storage, Range range) {
    if (!storage) return;
    if (replicas.config().wide_gradients)
      add.template operator()<State>(p, storage, range);
    else
      add.template operator()<T>(p, storage, range);
  };
  for_each_piece(named, [&](const auto& p, auto& b) {
    if (!p.partial_over_tp() && !is_primary_copy(p, tp_rank)) return;
    if (p.has_unreduced_gradient()) add_storage(p, b.gradient, Range{0, b.count});
    // Under stage 0 every replica has the whole sum of what is reduced already.
    const bool is_first = replicas.rule().optimizer_is_split() || replicas.group().rank() == 0;
    if (is_first) add_storage(p, b.reduced, replicas.owned(b));
  });
  all_reduce(engine.world().all(), buffer(whole.data(), whole.count()), Purpose::checkpoint);
  if constexpr (needs_loss_scale<T>) whole = ops::scale(std::move(whole), 1 / engine.loss_scale());
}

}  // namespace detail

/// Sets this rank's part of a parameter, masters too, from the whole parameter. The optimizer's moments stay: call
/// Engine::restart() if the parameter was trained before.
///
/// Throws   Error(usage) unless `whole` has the global number of elements
template <class Engine, class Whole>
requires requires(const Whole& whole) {
  std::data(whole)[0];
  std::ssize(whole);
}
void set_parameter(Engine& engine, std::string_view name, const Whole& whole) {
  const auto& named = find_parameter(engine, name);
  if (std::ssize(whole) != named.parameter->geometry.global_count())
    fail(ErrorCode::usage, "dspp: set_parameter needs all " + std::to_string(named.parameter->geometry.global_count()) +
                               " elements of '" + std::string(name) + "', but got " +
                               std::to_string(std::ssize(whole)) + ". Give the whole parameter.");
  const auto source = [&](const auto&, Size first, Size count, auto* values) {
    for (Size i = 0; i < count; ++i)
      values[i] = static_cast<std::remove_reference_t<decltype(*values)>>(std::data(whole)[first + i]);
  };
  for_each_piece(named, [&](auto& p, auto& b) {
    const Range own{p.offset, p.offset + p.count()};
    fill_parameters(engine, b, own, source);
  });
  settle_files(engine);
}

}  // namespace dspp
