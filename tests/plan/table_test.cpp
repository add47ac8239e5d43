// SPDX-License-Identifier: Apache-2.0
// labels: engine
#include <doctest/doctest.h>

#include <dspp/plan/table.hpp>

using namespace dspp;

TEST_CASE("a plan's table has bytes by category, traffic by axis without unused collectives, and operations") {
  Plan plan;
  plan.peak = 3_MiB;
  plan.resident = 4096;
  plan.state[Category::parameters] = 4096;
  plan.at_peak[Category::activations] = 3_MiB - 64;
  plan.at_peak[Category::data] = 64;
  plan.replica_traffic.count(Collective::all_gather, Purpose::parameter, 1000);
  plan.traffic_along.tp.count(Collective::all_reduce, Purpose::activation, 20);
  plan.traffic_along.tp.count(Collective::all_reduce, Purpose::replicated_gradient, 3);
  plan.traffic_along.cp.count(Collective::all_to_all, Purpose::activation, 7);
  plan.world_traffic.count(Collective::all_reduce, Purpose::scalar, 8);
  plan.parameters = 1557611200;
  plan.forward_flops = 27e12;
  plan.backward_flops = 54e12;
  CHECK(table_of(plan) ==
        "  bytes of one rank  between steps           at the peak\n"
        "  parameters                  4096  4.0 KiB            0      0 B\n"
        "  gradients                      0      0 B            0      0 B\n"
        "  optimizer                      0      0 B            0      0 B\n"
        "  activations                    0      0 B      3145664  2.9 MiB\n"
        "  communication                  0      0 B            0      0 B\n"
        "  workspace                      0      0 B            0      0 B\n"
        "  data                           0      0 B           64     64 B\n"
        "  all                         4096  4.0 KiB      3145728  3.0 MiB\n"
        "  reserved, at most                              4194304  4.0 MiB\n"
        "\n"
        "  bytes read in one step, over  replicas  Cp  Tp  all ranks\n"
        "  all_reduce                           0   0  23          8\n"
        "  all_gather                        1000   0   0          0\n"
        "  all_to_all                           0   7   0          0\n"
        "  all                               1000   7  23          8\n"
        "\n"
        "  of the model and one step\n"
        "  parameters of all ranks        1557611200\n"
        "  operations forward         27000000000000\n"
        "  operations backward        54000000000000\n");
}

TEST_CASE("the comparison at the start and the check every check_ranks steps have their own rows") {
  Plan plan;
  plan.start_traffic.count(Collective::all_gather, Purpose::check, 24);
  plan.check_traffic.count(Collective::all_gather, Purpose::check, 312);
  const std::string table = table_of(plan);
  CHECK(table.find("  bytes read once, to compare what ranks were given   24\n") != std::string::npos);
  CHECK(table.find("  bytes read by a check of the ranks                 312\n") != std::string::npos);
}
