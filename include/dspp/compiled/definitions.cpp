// SPDX-License-Identifier: Apache-2.0
/// dspp::compiled: the functions that are no templates, but for those that depend on whether the program has MPI and
/// those that need CLI11 (options.cpp).
#define DSPP_COMPILES
#include <dspp/app/interrupt.hpp>
#include <dspp/app/output.hpp>
#include <dspp/app/progress.hpp>
#include <dspp/autograd/integers.hpp>
#include <dspp/base.hpp>
#include <dspp/checkpoint/manifest_facts.hpp>
#include <dspp/checkpoint/weights_file.hpp>
#include <dspp/comm.hpp>
#include <dspp/comm/all_or_none.hpp>
#include <dspp/comm/fingerprint.hpp>
#include <dspp/data.hpp>
#include <dspp/engine/batch_print.hpp>
#include <dspp/engine/blend.hpp>
#include <dspp/engine/bucket_batches.hpp>
#include <dspp/engine/engine_facts.hpp>
#include <dspp/engine/profiling.hpp>
#include <dspp/engine/remedies.hpp>
#include <dspp/engine/source_batches.hpp>
#include <dspp/engine/step_graphs.hpp>
#include <dspp/engine/step_report.hpp>
#include <dspp/engine/token_samples.hpp>
#include <dspp/io.hpp>
#include <dspp/launch/ending.hpp>
#include <dspp/launch/launch.hpp>
#include <dspp/launch/rank_program.hpp>
#include <dspp/launch/run_options.hpp>
#include <dspp/launch/run_tcp.hpp>
#include <dspp/launch/tcp_place.hpp>
#include <dspp/nn/value_beside.hpp>
#include <dspp/nn/walk.hpp>
#include <dspp/observe.hpp>
#include <dspp/ops.hpp>
#include <dspp/parallel/vocab.hpp>
#include <dspp/tensor.hpp>

namespace dspp {
template class detail::Posting<detail::ThreadRank>;
template class detail::Posting<detail::TcpRank>;
template void all_or_none(AnyCommunicator&, FunctionRef<void()>);
template std::string text_of_first(AnyCommunicator&, std::string_view);
template std::string detail::text_of(AnyCommunicator&, const std::string&, int);
template std::string detail::describe_difference(AnyCommunicator&, const std::vector<int>&, const detail::OddRanks&,
                                                 const Facts&);
template void require_same_on_all_ranks(AnyCommunicator&, std::string_view, const Facts&, ErrorCode);
}
