// SPDX-License-Identifier: Apache-2.0
/// The whole of dspp as host code of a CUDA program.
#include <dspp/app.hpp>
#include <dspp/checkpoint.hpp>
#include <dspp/data.hpp>
#include <dspp/dspp.hpp>
#include <dspp/hub.hpp>
#include <dspp/io.hpp>
#include <dspp/observe.hpp>

static_assert(dspp::bf16(1.0f) == 1.0f && dspp::f16(1.0f) == 1.0f);
static_assert(dspp::detail::HasParts<dspp::Gpt<dspp::Policy<>>> && !dspp::detail::HasParts<dspp::GptConfig>);

int main() {
  return dspp::bf16(3.0f) == 3.0f && dspp::f16(1e-7f).bits == 2 ? 0 : 1;
}
