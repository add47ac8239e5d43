// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <dspp/launch/launch.hpp>

using namespace dspp;

namespace {

using Variables = std::map<std::string, std::string>;

Launch launch_of(const Variables& variables) {
  return read_launch([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

std::string refusal_of(const Variables& variables) {
  try {
    launch_of(variables);
  } catch (const Error& e) {
    CHECK(e.code() == ErrorCode::usage);
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a process without a launcher is rank 0 of 1") {
  const Launch alone = launch_of({});
  CHECK(alone.is_first());
  CHECK(alone.size == 1);
  CHECK(alone.by.empty());
  CHECK(alone.local_rank == 0);
  CHECK(launch_of({{"SLURM_NTASKS", "4"}}).size == 1);
  CHECK(launch_of({{"RANK", "4"}}).size == 1);
  CHECK(launch_of({{"LOCAL_RANK", "4"}}).local_rank == 0);
  CHECK(launch_of({{"OMPI_COMM_WORLD_RANK", "1"}}).size == 1);
}

TEST_CASE("the variables of Open MPI, PMI, Slurm, torchrun and deepspeed give the rank and the number of ranks") {
  const Launch open_mpi =
      launch_of({{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "8"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}});
  CHECK(open_mpi.rank == 2);
  CHECK(open_mpi.size == 8);
  CHECK(open_mpi.local_size == 4);
  CHECK_FALSE(open_mpi.is_first());
  CHECK(launch_of({{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}}).rank == 1);
  CHECK(launch_of({{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}}).local_size == 3);
  CHECK(launch_of({{"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "6"}}).by == "SLURM_PROCID");
  CHECK(launch_of({{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}, {"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "3"}}).by ==
        "PMI_RANK");
  const Launch torchrun = launch_of(
      {{"RANK", "5"}, {"WORLD_SIZE", "8"}, {"LOCAL_WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}, {"MASTER_PORT", "29500"}});
  CHECK(torchrun.rank == 5);
  CHECK(torchrun.size == 8);
  CHECK(torchrun.local_size == 4);
  CHECK(torchrun.local_rank == 1);
  CHECK(torchrun.by == "RANK");
  const Launch both = launch_of({{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}, {"RANK", "1"}, {"WORLD_SIZE", "3"}});
  CHECK(both.by == "PMI_RANK");
  CHECK(both.local_rank == -1);
}

TEST_CASE("two launchers that disagree are both named") {
  const std::string sentence =
      "dspp: run needs one answer to which rank this is, but OMPI_COMM_WORLD_RANK says rank 1 of 2 and SLURM_PROCID "
      "says "
      "rank 0 of 2. Unset the variables of the launcher that did not start it.";
  Variables v = {
      {"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}};
  CHECK(refusal_of(v) == sentence);
  v["SLURM_PROCID"] = "1";
  CHECK(refusal_of(v).empty());
  v["SLURM_NTASKS"] = "4";
  CHECK(refusal_of(v).find("SLURM_PROCID says rank 1 of 4") != std::string::npos);
}

TEST_CASE("all variables are listed if any two disagree") {
  Variables v = {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"PMI_RANK", "1"}, {"PMI_SIZE", "2"},
                 {"SLURM_PROCID", "1"},         {"SLURM_NTASKS", "2"},         {"RANK", "1"},     {"WORLD_SIZE", "2"}};
  CHECK(refusal_of(v).empty());
  v["WORLD_SIZE"] = "4";
  CHECK(refusal_of(v) ==
        "dspp: run needs one answer to which rank this is, but OMPI_COMM_WORLD_RANK says rank 1 of 2, PMI_RANK says "
        "rank 1 of 2, SLURM_PROCID says rank 1 of 2 and RANK says rank 1 of 4. Unset the variables of the launcher "
        "that did not start it.");
  v["WORLD_SIZE"] = "2";
  v["MPI_LOCALRANKID"] = v["LOCAL_RANK"] = "1";
  CHECK(refusal_of(v).empty());
  CHECK(launch_of(v).local_rank == 1);
  v["LOCAL_RANK"] = "0";
  CHECK(refusal_of(v).find("PMI_RANK says rank 1 of 2 with local rank 1, SLURM_PROCID says rank 1 of 2 and RANK says "
                           "rank 1 of 2 with local rank 0.") != std::string::npos);
}

TEST_CASE("a rank that is not a number, or not below the size, is refused") {
  for (const char* rank : {"", "one", "-1", "1 ", "99999999999999999999"})
    CHECK(refusal_of({{"PMI_RANK", rank}, {"PMI_SIZE", "2"}}).find("a number in the variable PMI_RANK") !=
          std::string::npos);
  CHECK(refusal_of({{"PMI_RANK", "2"}, {"PMI_SIZE", "2"}}).find("says rank 2 of 2") != std::string::npos);
  CHECK(refusal_of({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "0"}}) != "");
}

namespace {

/// The variables of each launcher: rank, size, local size, local rank.
constexpr std::array<std::array<const char*, 4>, 4> launchers{{
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", "MPI_LOCALRANKID"},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE", "SLURM_LOCALID"},
    {"RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "LOCAL_RANK"},
}};

std::string local_rank_refusal(const Variables& variables, const std::string& text) {
  try {
    check_local_rank(launch_of(variables), text);
  } catch (const Error& e) {
    CHECK(e.code() == ErrorCode::usage);
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("for every launcher each variable that is not a number, negative or too large is refused") {
  for (const auto& variables : launchers) {
    CAPTURE(variables[0]);
    const auto& [rank, size, local_size, local_rank] = variables;
    const Variables good = {{rank, "1"}, {size, "4"}, {local_size, "2"}, {local_rank, "1"}};
    CHECK(launch_of(good).by == rank);
    CHECK(launch_of(good).local_rank == 1);
    for (const char* name : {rank, size, local_size, local_rank})
      for (const char* bad : {"", "one", "-1", "+1", "1 ", " 1", "0x1", "1.0", "1e0", "99999999999999999999", "\xff"}) {
        Variables v = good;
        v[name] = bad;
        CHECK(refusal_of(v).find("dspp: run needs a number in the variable " + std::string(name) + ", but") == 0);
      }
    for (const auto& [name, large] : {std::pair{rank, "4"}, {rank, "999999999"}, {size, "1"}, {size, "0"}}) {
      Variables v = good;
      v[name] = large;
      CHECK(refusal_of(v).find("dspp: run needs a rank below the number of ranks, but") == 0);
    }
    for (const char* large : {"4", "999999999"}) {
      Variables v = good;
      v[local_rank] = large;
      CHECK(refusal_of(v).find(std::string("needs a local rank below the ") +
                               (rank == std::string("SLURM_PROCID") ? "4" : "2") + " ranks of this machine, but " +
                               rank + " says rank 1 of 4 with local rank " + large) != std::string::npos);
    }
  }
}

TEST_CASE("a launch of one process, as in a container, does not contradict a launcher of several") {
  for (const auto& a : launchers)
    for (const auto& b : launchers) {
      if (a == b) continue;
      const Launch launch = launch_of({{a[0], "0"}, {a[1], "1"}, {a[3], "0"}, {b[0], "1"}, {b[1], "4"}, {b[3], "1"}});
      CHECK(launch.by == b[0]);
      CHECK(launch.rank == 1);
      CHECK(launch.size == 4);
      CHECK(launch.local_rank == 1);
    }
}

TEST_CASE("any two launchers that disagree in rank, size or local rank are listed, and agree otherwise") {
  for (const auto& a : launchers)
    for (const auto& b : launchers) {
      if (a == b) continue;
      CAPTURE(a[0]);
      CAPTURE(b[0]);
      Variables v = {{a[0], "1"}, {a[1], "4"}, {a[3], "1"}, {b[0], "1"}, {b[1], "4"}, {b[3], "1"}};
      CHECK(refusal_of(v).empty());
      for (const auto& [which, other] : {std::pair{0, "2"}, {1, "5"}, {3, "0"}}) {
        Variables w = v;
        w[b[static_cast<std::size_t>(which)]] = other;
        const std::string sentence = refusal_of(w);
        CHECK(sentence.find("needs one answer to which rank this is, but ") != std::string::npos);
        CHECK(sentence.find(std::string(a[0]) + " says rank 1 of 4") != std::string::npos);
        CHECK(sentence.find(std::string(b[0]) + " says rank ") != std::string::npos);
      }
    }
}

TEST_CASE("--local_rank is accepted if it agrees with the launcher, and refused otherwise") {
  const Variables torchrun = {{"RANK", "5"}, {"WORLD_SIZE", "8"}, {"LOCAL_WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}};
  CHECK(local_rank_refusal(torchrun, "1").empty());
  CHECK(local_rank_refusal(torchrun, "2") ==
        "dspp: --local_rank needs to be the number of this rank on its machine, 1 as the launcher of RANK says, but "
        "got '2'. Leave it to the launcher, or out.");
  const Variables silent = {{"PMI_RANK", "5"}, {"PMI_SIZE", "8"}, {"MPI_LOCALNRANKS", "4"}};
  for (const char* good : {"0", "1", "2", "3"}) CHECK(local_rank_refusal(silent, good).empty());
  CHECK(local_rank_refusal(silent, "4").find("from 0 to 3 as the launcher of PMI_RANK says, but got '4'") !=
        std::string::npos);
  CHECK(local_rank_refusal({}, "0").empty());
  CHECK(local_rank_refusal({}, "1").find("0 without a launcher, but got '1'") != std::string::npos);
  for (const char* bad : {"", "one", "-1", "+0", "0 ", "0x0", "0.0", "99999999999999999999", "\xff"})
    for (const Variables& v : {Variables{}, silent, torchrun})
      CHECK(local_rank_refusal(v, bad).find("dspp: --local_rank needs to be the number of this rank") == 0);
}

namespace {

/// The text of a variable, and its number; -1: not a number.
struct Drawn {
  std::string text{};
  int number = -1;
  bool there = false;
};

/// Mostly one of a few numbers, so that launchers agree often enough; else not a number.
template <class Random>
Drawn drawn_variable(Random& random, int most, unsigned absent_of_8) {
  static const char* const bad[] = {"", "-1", "+1", "1 ", "1x", "0x1", "1.5", "4294967297", "nan", "\n", "\xff"};
  if (random() % 8 < absent_of_8) return {};
  if (random() % 64 == 0) return {bad[random() % std::size(bad)], -1, true};
  const int number = static_cast<int>(random() % 16 == 0 ? random() % 1'000'000'000 : random() % (most + 1u));
  return {(random() % 32 == 0 ? "00" : "") + std::to_string(number), number, true};
}

/// The launch that the drawn variables give, if they agree: row D4, implemented independently.
struct Expected {
  bool good = true;
  int rank = 0, size = 1, local_size = 1, local_rank = 0;
};

Expected expected_of(const std::array<std::array<Drawn, 4>, 4>& drawn) {
  std::vector<Expected> all;
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    const auto& [rank, size, local_size, local_rank] = drawn[i];
    if (!rank.there || !size.there) continue;
    for (const Drawn& one : drawn[i])
      if (one.there && (one.number < 0 || one.text.size() > 9)) return {false};
    const int locals = local_size.there ? local_size.number : size.number;
    if (rank.number >= size.number || locals == 0) return {false};
    if (local_rank.there && local_rank.number >= (i == 2 ? size.number : locals)) return {false};
    all.push_back({true, rank.number, size.number, locals, local_rank.there ? local_rank.number : -1});
  }
  int largest = 0;
  for (const Expected& one : all) largest = std::max(largest, one.size);
  Expected expected;
  bool found = false;
  for (const Expected& one : all) {
    if (one.size == 1 && largest > 1) continue;
    if (!found) {
      expected = one;
    } else {
      if (expected.rank != one.rank || expected.size != one.size) expected.good = false;
      if (expected.local_rank >= 0 && one.local_rank >= 0 && expected.local_rank != one.local_rank)
        expected.good = false;
      if (expected.local_rank < 0) expected.local_rank = one.local_rank;
    }
    found = true;
  }
  return expected;
}

}  // namespace

TEST_CASE("random environments give the launch or the sentence that their numbers imply") {
  const char* size = std::getenv("DSPP_FAULTS");
  const int count = size != nullptr && size == std::string("full") ? 2'500'000 : 50'000;
  std::mt19937_64 random(7);
  int good = 0, wrong = 0, tolerated = 0;
  for (int n = 0; n < count; ++n) {
    std::array<std::array<Drawn, 4>, 4> drawn;
    Variables variables;
    for (std::size_t i = 0; i < drawn.size(); ++i) {
      const bool here = random() % 2 == 0;
      for (std::size_t j = 0; j < 4; ++j) {
        drawn[i][j] = here ? drawn_variable(random, j == 0 || j == 3 ? 1 : 2, j < 2 ? 0 : 4) : Drawn{};
        if (drawn[i][j].there) variables[launchers[i][j]] = drawn[i][j].text;
      }
    }
    const Drawn option = drawn_variable(random, 2, 0);
    const Expected expected = expected_of(drawn);
    bool right = true;
    try {
      const Launch launch = launch_of(variables);
      ++good;
      right = expected.good && launch.rank == expected.rank && launch.size == expected.size &&
              launch.local_size == expected.local_size && launch.local_rank == expected.local_rank;
      const bool agrees =
          option.number >= 0 && option.text.size() <= 9 &&
          (launch.local_rank >= 0 ? option.number == launch.local_rank : option.number < launch.local_size);
      bool passed = true;
      try {
        check_local_rank(launch, option.text);
      } catch (const Error& error) {
        passed = false;
        right = right && std::string(error.what()).find("dspp: --local_rank needs ") == 0;
      }
      right = right && passed == agrees;
      tolerated += passed;
    } catch (const Error& error) {
      const std::string sentence = error.what();
      right = !expected.good && error.code() == ErrorCode::usage && sentence.find("dspp: run needs ") == 0 &&
              sentence.find('\n') == std::string::npos;
    }
    if (!right && ++wrong < 4) {
      std::string all;
      for (const auto& [name, text] : variables) all += name + "='" + text + "' ";
      MESSAGE(all << "--local_rank='" << option.text << "'");
    }
  }
  CHECK(wrong == 0);
  CHECK(good > count / 8);
  CHECK(good < count * 7 / 8);
  CHECK(tolerated > count / 64);
}
