// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <string>

#include <dspp/io/json.hpp>
#include <dspp/observe.hpp>

#include <laws/json_tree.hpp>

using namespace dspp;

namespace kernels_of_this_test {
template <class F, class T>
struct Pointwise;
template <class F>
struct Vjp;
struct GeluTanh;
template <class T, class G>
struct LayerNormVjp;
}  // namespace kernels_of_this_test

namespace {

template <class T>
struct Unnamed;

const int qkv[2] = {}, head = 0;

const NameOfParameter name_of_parameter = [](const void* parameter) -> std::string {
  if (parameter == &qkv[0]) return "blocks.0.qkv.weight";
  if (parameter == &qkv[1]) return "blocks.1.qkv.weight";
  return "head.weight";
};

/// Two blocks and a head, forward, with a collective.
void tell(Profiler& profiler) {
  for (int block = 0; block < 2; ++block) {
    const std::uint64_t range = profiler.begin_range("forward", "blocks." + std::to_string(block));
    profiler.use(&qkv[block]);
    profiler.count_flops(100);
    { const ProfiledKernel kernel(&profiler, "[T = dspp::kernels::Matmul<float, float>]"); }
    profiler.end_operation();
    { const ProfiledKernel kernel(&profiler, "[T = dspp::kernels::Attention<float>]", 50); }
    profiler.end_range(range);
  }
  const std::uint64_t range = profiler.begin_range("forward", "");
  profiler.use(&head);
  { const ProfiledKernel kernel(&profiler, "zero", 6); }
  profiler.end_range(range);
  profiler.begin_collective("all_reduce", "gradient", false);
  profiler.end_collective(80);
}

}  // namespace

TEST_CASE("an operation has the name of its kernel, or of the function that a pointwise kernel computes") {
  using namespace kernels_of_this_test;
  using dspp::detail::operation_named, dspp::detail::signature_of;
  CHECK(operation_named("copy") == "copy");
  CHECK(operation_named(signature_of<LayerNormVjp<float, double>>()) == "layer_norm_vjp");
  CHECK(operation_named(signature_of<Pointwise<GeluTanh, float>>()) == "gelu_tanh");
  CHECK(operation_named(signature_of<Pointwise<Vjp<GeluTanh>, float>>()) == "gelu_tanh_vjp");
  CHECK(operation_named(signature_of<Unnamed<float>>()) == "unnamed");
  CHECK(operation_named(signature_of<Pointwise<Unnamed<float>, float>>()) == "unnamed");
  for (const char* of_clang :
       {"[T = (anonymous namespace)::Unnamed<float>]", "[T = user::(anonymous namespace)::Unnamed]"})
    CHECK(operation_named(of_clang) == "unnamed");
}

TEST_CASE("a range that ended with the one around it, after an error, ends no other when it is ended again") {
  Profiler profiler;
  const std::uint64_t outer = profiler.begin_range("forward", ""), inner = profiler.begin_range("forward", "blocks.1");
  profiler.end_range(outer);
  const std::uint64_t next = profiler.begin_range("backward", "blocks.0");
  profiler.end_range(inner);
  { const ProfiledKernel kernel(&profiler, "zero", 6); }
  profiler.end_range(next);
  const Profile profile = profile_of(profiler, name_of_parameter, 1);
  REQUIRE(profile.rows.size() == 1);
  CHECK(profile.rows[0].pass == "backward");
  CHECK(profile.rows[0].layer == "blocks.0");
}

TEST_CASE("rows have pass, layer and operation; merged, layers whose numbers differ are one") {
  Profiler profiler;
  tell(profiler);
  const Profile profile = profile_of(profiler, name_of_parameter, 2);
  REQUIRE(profile.rows.size() == 6);
  CHECK(profile.rows[0].pass == "forward");
  CHECK(profile.rows[0].layer == "blocks.0.qkv");
  CHECK(profile.rows[0].operation == "matmul");
  CHECK(profile.rows[0].flops == 100);
  CHECK(profile.rows[1].layer == "blocks.0");
  CHECK(profile.rows[1].operation == "attention");
  CHECK(profile.rows[4].layer == "head");
  CHECK(profile.rows[5].pass.empty());
  CHECK(profile.rows[5].operation == "all_reduce gradient");
  CHECK(profile.rows[5].collective);
  CHECK(profile.rows[5].bytes == 80);

  const Profile merged = profile.merged();
  REQUIRE(merged.rows.size() == 4);
  CHECK(merged.rows[0].layer == "blocks.*.qkv");
  CHECK(merged.rows[0].calls == 2);
  CHECK(merged.rows[0].flops == 200);
  CHECK(merged.rows[1].layer == "blocks.*");
  CHECK(merged.rows[1].bytes == 100);
  CHECK(merged.seconds_in_work() == doctest::Approx(profile.seconds_in_work()));
  CHECK(profile.seconds_in("forward") <= profile.seconds);
}

TEST_CASE("numbers within a name stay") {
  CHECK(dspp::detail::without_numbers("h.12.mlp2.3x.4") == "h.*.mlp2.3x.*");
  CHECK(dspp::detail::without_numbers("") == "");
}

TEST_CASE("a share is of the limit that binds") {
  ProfileRow row{.seconds = 2, .flops = 50, .bytes = 30};
  CHECK(row.share_of({}) == 0);
  CHECK(row.share_of({.flops = 100}) == doctest::Approx(0.25));
  CHECK(row.share_of({.flops = 100, .bytes = 20}) == doctest::Approx(0.75));
  row.collective = true;
  CHECK(row.share_of({.flops = 100, .bytes = 20}) == 0);
}

TEST_CASE("the table has the longest first, small ones together, and what is between") {
  Profile profile{.seconds = 10, .steps = 2, .limits = {.flops = 1e9, .bytes = 1e9}};
  profile.rows.push_back({"forward", "blocks.0.mlp", "matmul", false, 2, 1, 5e8, 0});
  profile.rows.push_back({"forward", "blocks.1.mlp", "matmul", false, 2, 2, 5e8, 0});
  profile.rows.push_back({"forward", "blocks.1.mlp", "gelu", false, 2, 4, 0, Size{2'000'000'000}});
  profile.rows.push_back({"forward", "blocks.0", "tiny", false, 7, 0.04, 0, 0});
  profile.rows.push_back({"", "", "all_gather parameter", true, 3, 1, 0, Size{1'000'000'000}});
  CHECK(profile.table() ==
        "  a step of rank 0                            calls        ms    share  GFLOP/s  GB/s  of limit\n"
        "  forward                                            3520.000   70.4 %\n"
        "  . blocks.*.mlp gelu                             1  2000.000   40.0 %            0.5      50 %\n"
        "  . blocks.*.mlp matmul                           2  1500.000   30.0 %      0.3            33 %\n"
        "  . others, of less than half a percent each           20.000    0.4 %\n"
        "  beside                                              500.000   10.0 %\n"
        "  . all_gather parameter                        1.5   500.000   10.0 %            1.0\n"
        "  between operations                                  980.000   19.6 %\n"
        "  all                                                5000.000  100.0 %\n"
        "  communication: none\n");
  profile.communication = {.under_way = 4, .hidden = 1, .exposed = 2.5};
  CHECK(profile.table().ends_with("\n" + profile.communication.line(2)));
}

TEST_CASE("the JSON of a profile and its timeline are read back") {
  Profiler profiler(100);
  tell(profiler);
  const std::string json = profile_of(profiler, name_of_parameter, 1, {.flops = 1e9}).json().text();
  const laws::JsonTree tree = laws::json_tree(json, "the profile");
  CHECK(tree.find("rows")->items.size() == 6);
  const std::string lines = trace_lines(profiler, name_of_parameter, 3);
  const laws::JsonTree trace = laws::json_tree("[" + lines + "0]", "the trace");
  REQUIRE(trace.items.size() == profiler.events().size() + 2);
  CHECK(lines.find(R"("name":"matmul","cat":"kernel","args":{"layer":"blocks.1.qkv"})") != std::string::npos);
  CHECK(lines.find(R"("name":"forward blocks.0","cat":"range")") != std::string::npos);
  CHECK(lines.find(R"("name":"all_reduce gradient","cat":"collective")") != std::string::npos);
  CHECK(lines.find(R"("tid":3,"args":{"name":"rank 3"})") != std::string::npos);
}

TEST_CASE("the lane of a rank says that events were not kept, and a table whose it is") {
  Profiler profiler(3);
  tell(profiler);
  CHECK(trace_lines(profiler, name_of_parameter, 3).find(R"({"name":"rank 3, the first 3 events"})") !=
        std::string::npos);
  Profile profile = profile_of(profiler, name_of_parameter, 1);
  profile.rank = 3;
  CHECK(profile.table().find("  a step of rank 3 ") == 0);
}
