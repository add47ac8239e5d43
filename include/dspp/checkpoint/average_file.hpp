// SPDX-License-Identifier: Apache-2.0
/// A moving average of weights to and from a file, beside the checkpoints of its training.
#pragma once

#include <dspp/checkpoint/checkpoint.hpp>
#include <dspp/engine/weight_average.hpp>

namespace dspp {

/// save_weights() of the average: a file that any engine or Weights can load. Call on every rank.
template <class Engine>
void save_average(WeightAverage<Engine>& average, const std::string& directory) {
  average.within([&] { save_weights(average.engine(), directory); });
}

/// Reads what save_average wrote, under any strategy, bit for bit; the engine is unchanged. Call on every rank.
///
/// Throws   Error(file), the same on every rank, if a tensor is missing, unexpected, or of another shape, or if the
///          ranks' files differ
template <class Engine>
void load_average(WeightAverage<Engine>& average, const std::string& directory) {
  auto& ranks = average.engine().world().host();
  std::optional<io::SafetensorsReader> file;
  all_or_none(ranks, [&] {
    file.emplace(detail::weights_file(directory));
    detail::require_same_model(average.engine(), *file);
  });
  require_same_on_all_ranks(ranks, "load_average", file->facts(), ErrorCode::file);
  std::map<const void*, const io::TensorEntry*> entry_of;
  for (const auto& named : average.engine().inventory().parameters)
    entry_of[named.parameter] = &file->tensor(named.name->text);
  all_or_none(ranks, [&] {
    average.fill([&](const auto& p, Size first, Size count, auto* values) {
      file->read_as(*entry_of.at(&p), first, count, values);
    });
  });
}

}  // namespace dspp
