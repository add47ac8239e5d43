// SPDX-License-Identifier: Apache-2.0
/// What the ranks that resume a checkpoint must have in common of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <dspp/base/facts.hpp>
#include <dspp/checkpoint/training_facts.hpp>
#include <dspp/io/checkpoint_folder.hpp>
#include <dspp/io/checkpoint_manifest.hpp>

#if DSPP_HAS_DEFINITIONS()
#include <iterator>
#include <utility>

#include <dspp/base/digest.hpp>
#endif

namespace dspp::detail {

std::string moment_name(const std::string& parameter, int moment);

/// Throws unless the checkpoint is the one that `latest` names: another may have been put in its place.
void require_named(const TrainingFacts& facts, const io::CheckpointFolder& checkpoints, const std::string& tag,
                   std::uint64_t run);

/// The facts of a checkpoint's manifest, with the checksums of its files.
Facts facts_of_manifest(const io::CheckpointManifest& manifest);

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE std::string moment_name(const std::string& parameter, int moment) {
  return parameter + ".moment" + std::to_string(moment + 1);
}

DSPP_INLINE void require_named(const TrainingFacts& facts, const io::CheckpointFolder& checkpoints,
                               const std::string& tag, std::uint64_t run) {
  const auto refuse = [&](const std::string& named, const std::string& got) {
    fail(ErrorCode::file, "dspp: resuming needs the checkpoint that '" + checkpoints.latest() + "' names, " + named +
                              ", but '" + checkpoints.path_of(tag) + "' is " + got + ": it was put in its place. " +
                              io::load_another_than({checkpoints.folder, tag}));
  };
  if (run != 0 && facts.progress.run != run)
    refuse("of run " + std::to_string(run), "of run " + std::to_string(facts.progress.run));
  if (!facts.tag.empty() && facts.tag != tag) refuse("'" + tag + "'", "'" + facts.tag + "'");
}

/// Members of nested JSON objects as facts, "optimizer lr", at most `most`.
DSPP_INLINE void add_facts(Facts& facts, const std::string& name, const io::Json& value, std::size_t most) {
  if (value.is(io::Json::Kind::integer))
    facts.add(name, value.integer);
  else if (value.is(io::Json::Kind::real))
    facts.add(name, value.real);
  else if (value.count() == 0)
    facts.add(name, value.is(io::Json::Kind::boolean) ? (value.boolean ? "true" : "false") : value.string);
  Size number = 0;
  for (const io::Json& item : value.items()) {
    if (facts.all().size() >= most) return;
    std::string own = name.empty() ? "" : name + " ";
    value.is(io::Json::Kind::object) ? own += item.key : own += std::to_string(number++);
    add_facts(facts, std::move(own), item, most);
  }
}

DSPP_INLINE Facts facts_of_manifest(const io::CheckpointManifest& manifest) {
  Facts facts;
  constexpr std::size_t most_names = 1000;
  add_facts(facts, "", manifest.training(), most_names);
  if (facts.all().size() >= most_names) {
    const std::string& text = manifest.training_text;
    facts.add("all that the checkpoint says of the training",
              digest_text(Digest().add(text.data(), std::ssize(text)).value()));
  }
  for (const io::CheckpointFile& file : manifest.files) {
    facts.add("bytes of " + file.name, file.bytes);
    const Size bytes = 4 * std::ssize(file.checksums);
    facts.add("checksums of " + file.name, digest_text(Digest().add(file.checksums.data(), bytes).value()));
  }
  return facts;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::detail
