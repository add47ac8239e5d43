// SPDX-License-Identifier: Apache-2.0
/// Planned figures next to the measured ones.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include <dspp/base/json_writer.hpp>
#include <dspp/comm/traffic.hpp>
#include <dspp/observe/table.hpp>
#include <dspp/tensor/category.hpp>
#include <dspp/tensor/pool.hpp>

namespace dspp {

/// One row.
struct Comparison {
  std::string name;
  double planned = 0;
  double measured = 0;
};

/// A row per category.
std::vector<Comparison> compare(const CategoryBytes& planned, const CategoryBytes& measured);

/// A row per collective, of bytes per step without scalars and checks of ranks (all_to_all and send only where there
/// are any), and the row `scalars` of all collectives' scalars: loss, norm, agreement to stop.
std::vector<Comparison> compare(const Traffic& planned_per_step, const Traffic& measured, Size steps);

/// Bytes of one check of the ranks.
Comparison compare_checks(const Traffic& planned_per_check, const Traffic& measured, Size checks);

/// Lines with line ends: name, planned, measured, and their difference.
std::string table_of(const std::string& what, const std::vector<Comparison>& rows);

/// {"name":{"planned":64,"measured":64},...}.
JsonObject json_of(const std::vector<Comparison>& rows);
JsonObject json_of(const Comparison& row);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {
/// Digits for whole numbers, else three decimals.
std::string exact_text(double number);

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE std::string exact_text(double number) {
  if (number == std::floor(number) && std::abs(number) < 9e15) return std::to_string(static_cast<Size>(number));
  std::string text = std::to_string(number);
  return text.substr(0, text.find('.') + 4);
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace detail

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE std::vector<Comparison> compare(const CategoryBytes& planned, const CategoryBytes& measured) {
  std::vector<Comparison> rows;
  for (int i = 0; i < category_count; ++i) {
    const auto category = static_cast<Category>(i);
    rows.push_back(
        {name_of(category), static_cast<double>(planned[category]), static_cast<double>(measured[category])});
  }
  return rows;
}

DSPP_INLINE std::vector<Comparison> compare(const Traffic& planned_per_step, const Traffic& measured, Size steps) {
  const auto per_step = [&](Size bytes) {
    return steps > 0 ? static_cast<double>(bytes) / static_cast<double>(steps) : 0.0;
  };
  std::vector<Comparison> rows;
  for (const Collective c : {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
                             Collective::all_to_all, Collective::broadcast, Collective::send}) {
    const auto volume = [&](const Traffic& t) {
      return t.bytes(c) - t.bytes(c, Purpose::scalar) - t.bytes(c, Purpose::check);
    };
    const bool rare = c == Collective::all_to_all || c == Collective::send;
    if (rare && volume(planned_per_step) == 0 && volume(measured) == 0) continue;
    rows.push_back({name_of(c), static_cast<double>(volume(planned_per_step)), per_step(volume(measured))});
  }
  rows.push_back({"scalars", static_cast<double>(planned_per_step.bytes(Purpose::scalar)),
                  per_step(measured.bytes(Purpose::scalar))});
  return rows;
}

DSPP_INLINE Comparison compare_checks(const Traffic& planned_per_check, const Traffic& measured, Size checks) {
  return {"check_of_ranks", checks > 0 ? static_cast<double>(planned_per_check.bytes(Purpose::check)) : 0.0,
          checks > 0 ? static_cast<double>(measured.bytes(Purpose::check)) / static_cast<double>(checks) : 0.0};
}

DSPP_INLINE std::string table_of(const std::string& what, const std::vector<Comparison>& rows) {
  Table table({what, "planned", "measured", "", "difference"});
  for (const Comparison& row : rows) {
    const double difference = row.measured - row.planned;
    table.add({row.name, detail::exact_text(row.planned), detail::exact_text(row.measured),
               readable_bytes(static_cast<Size>(row.measured)),
               difference == 0 ? "none" : (difference > 0 ? "+" : "") + detail::exact_text(difference)});
  }
  return table.text();
}

DSPP_INLINE JsonObject json_of(const Comparison& row) {
  JsonObject object;
  const auto add = [&](const char* key, double number) {
    if (number == std::floor(number) && std::abs(number) < 9e15)
      object.add(key, static_cast<Size>(number));
    else
      object.add(key, number);
  };
  add("planned", row.planned);
  add("measured", row.measured);
  return object;
}

DSPP_INLINE JsonObject json_of(const std::vector<Comparison>& rows) {
  JsonObject object;
  for (const Comparison& row : rows) object.add(row.name, json_of(row));
  return object;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
