// SPDX-License-Identifier: Apache-2.0
/// Where a rank's time went, by pass, layer and operation: a table, JSON, and a timeline for Perfetto.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <dspp/base/json_writer.hpp>
#include <dspp/base/profiler.hpp>
#include <dspp/observe/communication_time.hpp>
#include <dspp/observe/table.hpp>

namespace dspp {

/// What the machine gives this rank while all ranks ask for it: the rates that a profile's are a share of. 0: not
/// known.
struct RateLimits {
  double flops = 0;  ///< a second, of matrix products
  double bytes = 0;  ///< a second, read and written
};

/// All work of one operation in one layer, or in all layers whose names differ in numbers alone.
struct ProfileRow {
  std::string pass{};       ///< "forward", "backward", "step"; empty: none of them
  std::string layer{};      ///< "blocks.0.attention.qkv"; of an operation of no layer, its unit: "blocks.0"; or empty
  std::string operation{};  ///< "matmul", "all_gather parameter"
  bool collective = false;
  Size calls = 0;
  double seconds = 0;
  double flops = 0;  ///< as plans count them
  Size bytes = 0;    ///< of the operands and results that the operation tells; of a collective, read from other ranks

  /// The least time that the limits allow, over the time taken; 0 for a collective, or where no limit is known.
  double share_of(const RateLimits& limits) const;
};

/// Names a parameter that a Profiler was told of: "blocks.0.attention.qkv.weight".
using NameOfParameter = std::function<std::string(const void*)>;

/// A rank's time over some steps.
struct Profile {
  std::vector<ProfileRow> rows{};       ///< by pass, layer and operation, in the order in which they first ran
  std::vector<ProfileRow> transfers{};  ///< what moved beside them, of a device whose clock tells: by operation alone
  double seconds = 0;                   ///< of all, from the beginning of the profile
  Size steps = 0;
  RateLimits limits{};
  int rank = 0;
  CommunicationTime communication{};

  /// The rows with the digits of layers' names as one: "blocks.*".
  Profile merged() const;
  /// Seconds of the rows of this pass; of all.
  double seconds_in(std::string_view pass) const;
  double seconds_in_work() const;

  /// Lines with line ends: the rows of merged(), in each pass and layer the longest first; those of less than half a
  /// percent together; the time between operations; the transfers; and the line of the communication.
  std::string table() const;
  JsonObject json() const;
};

/// What the profiler heard so far.
Profile profile_of(const Profiler& profiler, const NameOfParameter& name, Size steps, const RateLimits& limits = {});

/// The rank's kept events, a line each, as objects of a list `traceEvents`: Chrome's trace format, which
/// ui.perfetto.dev shows, then what was under way of communication, and the communication_counters. `offset`:
/// nanoseconds, added to each time. Each line ends with a comma. The name of the rank's lane says if events were not
/// kept.
std::string trace_lines(const Profiler& profiler, const NameOfParameter& name, int rank, std::int64_t offset = 0);

namespace detail {
/// "matmul" of the signature that names dspp::kernels::Matmul<float, float>, "pointwise gelu" of a Pointwise<Gelu, ..>.
std::string operation_named(std::string_view signature);
/// "blocks.*.mlp" of "blocks.3.mlp": the parts that are numbers alone.
std::string without_numbers(const std::string& layer);
}  // namespace detail

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

namespace detail {

inline constexpr double shown_share = 0.005;

/// "LayerNormVjp" -> "layer_norm_vjp".
DSPP_INLINE std::string in_snake_case(std::string_view name) {
  std::string text;
  for (const char c : name) {
    const bool upper = c >= 'A' && c <= 'Z';
    if (upper && !text.empty()) text += '_';
    text += upper ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return text;
}

/// The name after the namespaces that `text` begins with, without what follows it.
DSPP_INLINE std::string_view plain_name(std::string_view text) {
  constexpr std::string_view unnamed = "(anonymous namespace)::";  // as clang++ writes it
  if (const auto at = text.find(unnamed); at != std::string_view::npos && at < text.find_first_of("<,>];&"))
    text.remove_prefix(at + unnamed.size());
  const auto end = text.find_first_of("<,>];& ");
  text = text.substr(0, end);
  const auto scope = text.rfind("::");
  return scope == std::string_view::npos ? text : text.substr(scope + 2);
}

DSPP_INLINE std::string operation_named(std::string_view signature) {
  const auto begin = signature.find("T = ");
  if (begin == std::string_view::npos) return std::string(signature);
  const std::string_view type = signature.substr(begin + 4);
  std::string name = in_snake_case(plain_name(type));
  if (!name.starts_with("pointwise")) return name;
  // the functor: the first argument, or the first of its own where it is a Vjp
  auto argument = type.find('<');
  if (argument == std::string_view::npos) return name;
  std::string functor = in_snake_case(plain_name(type.substr(argument + 1)));
  if (functor == "vjp" && (argument = type.find('<', argument + 1)) != std::string_view::npos)
    functor = in_snake_case(plain_name(type.substr(argument + 1))) + "_vjp";
  return functor;
}

/// The layer of a parameter: its name without the last part.
DSPP_INLINE std::string layer_of(std::string name) {
  const auto dot = name.rfind('.');
  return dot == std::string::npos ? name : name.substr(0, dot);
}

DSPP_INLINE std::string without_numbers(const std::string& layer) {
  std::string text;
  for (std::size_t i = 0; i < layer.size(); ++i) {
    const bool digit = layer[i] >= '0' && layer[i] <= '9';
    const bool begins = i == 0 || layer[i - 1] == '.';
    if (!digit || !begins) {
      text += layer[i];
      continue;
    }
    std::size_t end = i;
    while (end < layer.size() && layer[end] >= '0' && layer[end] <= '9') ++end;
    const bool whole = end == layer.size() || layer[end] == '.';
    text += whole ? "*" : layer.substr(i, end - i);
    i = end - 1;
  }
  return text;
}

/// What a row of a profiler is called, but for its layer.
DSPP_INLINE ProfileRow named_row(const Profiler& profiler, const Profiler::Row& row, const NameOfParameter& name) {
  ProfileRow result{.calls = row.calls, .flops = row.flops, .bytes = row.bytes};
  result.seconds = static_cast<double>(row.nanoseconds) * 1e-9;
  if (row.range >= 0) {
    const Profiler::Range& range = profiler.ranges()[static_cast<std::size_t>(row.range)];
    result.pass = range.what, result.layer = range.name;
  }
  if (row.parameter != nullptr) result.layer = layer_of(name(row.parameter));
  result.collective = row.kind != Profiler::Kind::kernel;
  result.operation = result.collective ? std::string(row.name) + " " + row.purpose : operation_named(row.name);
  return result;
}

/// Adds rows that are called the same.
DSPP_INLINE std::vector<ProfileRow> sum_of_equal(const std::vector<ProfileRow>& rows) {
  std::vector<ProfileRow> sums;
  std::map<std::tuple<std::string, std::string, std::string>, std::size_t> places;
  for (const ProfileRow& row : rows) {
    const auto [place, is_new] = places.try_emplace({row.pass, row.layer, row.operation}, sums.size());
    if (is_new) {
      sums.push_back(row);
      continue;
    }
    ProfileRow& sum = sums[place->second];
    sum.calls += row.calls, sum.seconds += row.seconds, sum.flops += row.flops, sum.bytes += row.bytes;
  }
  return sums;
}

}  // namespace detail

DSPP_INLINE double ProfileRow::share_of(const RateLimits& limits) const {
  if (collective || seconds <= 0) return 0;
  const double by_flops = limits.flops > 0 ? flops / limits.flops : 0;
  const double by_bytes = limits.bytes > 0 ? static_cast<double>(bytes) / limits.bytes : 0;
  return std::max(by_flops, by_bytes) / seconds;
}

DSPP_INLINE Profile Profile::merged() const {
  Profile result = *this;
  for (ProfileRow& row : result.rows) row.layer = detail::without_numbers(row.layer);
  result.rows = detail::sum_of_equal(result.rows);
  return result;
}

DSPP_INLINE double Profile::seconds_in(std::string_view pass) const {
  double sum = 0;
  for (const ProfileRow& row : rows) sum += row.pass == pass ? row.seconds : 0;
  return sum;
}

DSPP_INLINE double Profile::seconds_in_work() const {
  double sum = 0;
  for (const ProfileRow& row : rows) sum += row.seconds;
  return sum;
}

DSPP_INLINE std::string Profile::table() const {
  const Profile all = merged();
  const double per_step = 1e3 / static_cast<double>(std::max<Size>(steps, 1)), whole = std::max(seconds, 1e-12);
  Table lines({"a step of rank " + std::to_string(rank), "calls", "ms", "share", "GFLOP/s", "GB/s", "of limit"});
  const auto line = [&](const std::string& name, double time, const ProfileRow* row) {
    const auto rate = [&](double amount) {
      return amount > 0 && time > 0 ? detail::fixed(amount / time * 1e-9, 1) : "";
    };
    const double share = row ? row->share_of(limits) : 0;
    const double calls = row ? static_cast<double>(row->calls) / static_cast<double>(std::max<Size>(steps, 1)) : 0;
    lines.add({name, row ? detail::fixed(calls, calls == std::floor(calls) ? 0 : 1) : "",
               detail::fixed(time * per_step, 3), detail::fixed(100 * time / whole, 1) + " %",
               row ? rate(row->flops) : "", row ? rate(static_cast<double>(row->bytes)) : "",
               share > 0 ? detail::fixed(100 * share, 0) + " %" : ""});
  };
  std::vector<std::string> passes, layers;
  for (const ProfileRow& row : all.rows) {
    if (std::find(passes.begin(), passes.end(), row.pass) == passes.end()) passes.push_back(row.pass);
    if (std::find(layers.begin(), layers.end(), row.layer) == layers.end()) layers.push_back(row.layer);
  }
  for (const std::string& pass : passes) {
    line(pass.empty() ? "beside" : pass, all.seconds_in(pass), nullptr);
    double others = 0;
    for (const std::string& layer : layers) {
      std::vector<ProfileRow> shown;
      for (const ProfileRow& row : all.rows) {
        if (row.pass != pass || row.layer != layer) continue;
        if (row.seconds < detail::shown_share * whole)
          others += row.seconds;
        else
          shown.push_back(row);
      }
      std::stable_sort(shown.begin(), shown.end(), [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
      for (const ProfileRow& row : shown)
        line(". " + (layer.empty() ? "" : layer + " ") + row.operation, row.seconds, &row);
    }
    if (others > 0) line(". others, of less than half a percent each", others, nullptr);
  }
  line("between operations", std::max(0.0, seconds - seconds_in_work()), nullptr);
  line("all", seconds, nullptr);
  for (const ProfileRow& row : transfers) line("moving " + row.operation, row.seconds, &row);
  return lines.text() + communication.line(steps);
}

DSPP_INLINE JsonObject Profile::json() const {
  const auto lines_of = [&](const std::vector<ProfileRow>& of) {
    std::vector<std::string> list;
    for (const ProfileRow& row : of)
      list.push_back(JsonObject()
                         .add("pass", row.pass)
                         .add("layer", row.layer)
                         .add("operation", row.operation)
                         .add("collective", row.collective)
                         .add("calls", row.calls)
                         .add("seconds", row.seconds)
                         .add("flops", row.flops)
                         .add("bytes", row.bytes)
                         .add("share_of_limit", row.share_of(limits))
                         .text());
    return json_list_lines(list);
  };
  return JsonObject()
      .add("rank", rank)
      .add("steps", steps)
      .add("seconds", seconds)
      .add("limit_flops_per_second", limits.flops)
      .add("limit_bytes_per_second", limits.bytes)
      .add("communication", communication.json())
      .add_json("rows", lines_of(rows))
      .add_json("transfers", lines_of(transfers));
}

DSPP_INLINE Profile profile_of(const Profiler& profiler, const NameOfParameter& name, Size steps,
                               const RateLimits& limits) {
  Profile profile{.seconds = static_cast<double>(profiler.elapsed()) * 1e-9, .steps = steps, .limits = limits};
  for (const Profiler::Row& row : profiler.rows())
    if (row.kind != Profiler::Kind::range && row.calls > 0)
      (row.kind == Profiler::Kind::transfer ? profile.transfers : profile.rows)
          .push_back(detail::named_row(profiler, row, name));
  profile.rows = detail::sum_of_equal(profile.rows), profile.transfers = detail::sum_of_equal(profile.transfers);
  for (ProfileRow& transfer : profile.transfers)
    for (const ProfileRow& row : profile.rows) transfer.bytes += row.operation == transfer.operation ? row.bytes : 0;
  profile.communication = communication_time_of(profiler);
  return profile;
}

DSPP_INLINE std::string trace_lines(const Profiler& profiler, const NameOfParameter& name, int rank,
                                    std::int64_t offset) {
  const std::string lane = std::to_string(rank);
  std::string kept;
  if (profiler.lost_events() > 0) kept = ", the first " + std::to_string(profiler.events().size()) + " events";
  std::string text =
      R"({"ph":"M","name":"thread_name","pid":0,"tid":)" + lane + R"(,"args":{"name":"rank )" + lane + kept + "\"}},\n";
  std::vector<std::string> heads;  // of each row
  for (const Profiler::Row& row : profiler.rows()) {
    JsonObject object;
    if (row.kind == Profiler::Kind::range) {
      const Profiler::Range& range = profiler.ranges()[static_cast<std::size_t>(row.range)];
      object.add("name", range.name.empty() ? range.what : range.what + " " + range.name).add("cat", "range");
    } else {
      const ProfileRow named = detail::named_row(profiler, row, name);
      object.add("name", named.operation).add("cat", named.collective ? "collective" : "kernel");
      if (!named.layer.empty()) object.add("args", JsonObject().add("layer", named.layer));
    }
    const std::string members = object.text();
    heads.push_back(members.substr(0, members.size() - 1) + R"(,"ph":"X","pid":0,"tid":)" + lane);
  }
  const auto microseconds = [](std::int64_t nanoseconds) {
    return detail::trace_time(static_cast<double>(nanoseconds));
  };
  for (const Profiler::Event& event : profiler.events())
    text += heads[static_cast<std::size_t>(event.row)] + ",\"ts\":" + microseconds(event.begin + offset) +
            ",\"dur\":" + microseconds(event.end - event.begin) + "},\n";
  std::size_t number = 0;
  for (const Profiler::Event& flight : profiler.flights()) {  // which overlap each other
    const Profiler::Row& row = profiler.rows()[static_cast<std::size_t>(flight.row)];
    const JsonObject head = JsonObject()
                                .add("name", std::string(row.name) + " " + row.purpose)
                                .add("cat", "under way")
                                .add("id", lane + "." + std::to_string(number++));
    const std::string members = head.text();
    for (const bool begins : {true, false})
      text += members.substr(0, members.size() - 1) + R"(,"ph":")" + (begins ? "b" : "e") + R"(","pid":0,"tid":)" +
              lane + ",\"ts\":" + microseconds((begins ? flight.begin : flight.end) + offset) + "},\n";
  }
  return text + communication_counters(profiler, rank, offset);
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
