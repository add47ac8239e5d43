// SPDX-License-Identifier: Apache-2.0
/// A plan of a model that cannot be moved to Meta: it has more template parameters than its policy.
// expected-error {{dspp: a plan needs the model under another policy, on Meta, but its type does not say}}
// expected-error {{how. Make it a}}
// expected-error {{template of its policy alone, or give it a member template <class Q> using on = ....}}
#include <dspp/models/gpt.hpp>
#include <dspp/plan/plan.hpp>

using namespace dspp;

/// A model with a number among its template parameters.
namespace model_with_more_parameters {
template <class P, int Depth>
struct Model : Gpt<P> {
  using Gpt<P>::Gpt;
#ifdef DSPP_TWIN
  template <class Q>
  using on = Model<Q, Depth>;
#endif
};
constexpr auto paper = plan<Model<Policy<>, 2>>(GptConfig{.layers = 1, .width = 8, .heads = 2, .sequence = 4},
                                                {.micro_batch = 1, .sequence = 4});
}  // namespace model_with_more_parameters
