// SPDX-License-Identifier: Apache-2.0
// Parameters that are not finite are never written: earlier files stay, byte for byte.
// labels: engine
#include <limits>
#include <map>
#include <mutex>

#include <dspp/checkpoint/training_state.hpp>
#include <dspp/hub/hugging_face.hpp>
#include <laws/folder.hpp>
#include <laws/training_run.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

constexpr GptConfig tiny{.layers = 1, .width = 8, .heads = 4, .vocabulary = 13, .sequence = 4};

/// Every file below the folder, whole.
std::map<std::string, std::string> content_of(const Folder& folder) {
  std::map<std::string, std::string> files;
  for (const std::string& name : folder.list())
    files[name] = fs::is_directory(folder.file(name)) ? "" : folder.read(name);
  return files;
}

template <class F>
std::string sentence_of(F action) {
  try {
    action();
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::state);
    return error.what();
  }
  return "no error";
}

/// Sets one element of each parameter in turn to `value`, which is not finite in the policy's type: saving is an error
/// with the parameter on every rank. Restored, it is saved as before.
template <class P>
void check_saves(int ranks, double value) {
  CAPTURE(P::zero_stage);
  const Folder folder;
  std::map<std::string, std::string> saved;
  run_ranks_of<P>({.ranks = ranks, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
    Engine<Gpt<P>, AdamW> engine(world, Gpt<P>(tiny), AdamW{}, EngineConfig{.bucket_bytes = 512});
    const auto save_all = [&] {
      save_checkpoint(engine, folder.file("states"));
      save_weights(engine, folder.file("weights"));
      hub::save_hugging_face(engine, folder.file("hugging_face"));
    };
    save_all();
    if (world.is_first()) saved = content_of(folder);
    for (const auto& named : engine.inventory().parameters) {
      const std::string& name = named.name->text;
      CAPTURE(name);
      auto whole = engine.gather_parameter(name);
      const std::span values(whole.data(), static_cast<std::size_t>(whole.count()));
      auto& element = values[values.size() / 2];
      const auto before = std::exchange(element, static_cast<std::decay_t<decltype(element)>>(value));
      set_parameter(engine, name, values);
      const std::string sentence = "dspp: saving needs parameters that are finite, but '" + name +
                                   "' holds a value that is not. Go on from a checkpoint that was saved before, with a "
                                   "lower learning rate.";
      CHECK(sentence_of([&] { save_checkpoint(engine, folder.file("states")); }) == sentence);
      CHECK(sentence_of([&] { save_checkpoint(engine, folder.file("states"), {.tag = "new", .keep = 1}); }) ==
            sentence);
      CHECK(sentence_of([&] { save_weights(engine, folder.file("weights")); }) == sentence);
      CHECK(sentence_of([&] { hub::save_hugging_face(engine, folder.file("hugging_face")); }) == sentence);
      if (world.is_first()) CHECK(content_of(folder) == saved);
      element = before;
      set_parameter(engine, name, values);
    }
    auto& moment = engine.state().of(engine.units()[0]->buckets()[0]).moments[1].data()[0];
    const auto before = std::exchange(moment, std::numeric_limits<Compute<typename P::Element>>::infinity());
    CHECK(sentence_of([&] {
            save_checkpoint(engine, folder.file("states"));
          }).starts_with("dspp: saving needs parameters and moments that are finite, but a moment of '"));
    save_weights(engine, folder.file("weights"));
    moment = before;
    save_all();
    if (world.is_first()) CHECK(content_of(folder) == saved);
  });
}

}  // namespace

TEST_CASE("a state, weights or a Hugging Face folder with NaN or infinity is not written, and the parameter is named") {
  check_saves<Policy<F32>>(1, std::numeric_limits<double>::quiet_NaN());
  check_saves<Policy<Bf16, Zero<2>>>(2, -std::numeric_limits<double>::infinity());
  check_saves<Policy<F16, Zero<3>, Tp<2>>>(4, 70000);  // finite in the masters, infinite in f16
}
