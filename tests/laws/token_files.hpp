// SPDX-License-Identifier: Apache-2.0
/// Token files in which every token is its position.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <dspp/data/shard_writer.hpp>
#include <dspp/data/token_batches.hpp>
#include <laws/folder.hpp>

namespace dspp::laws {

/// Token i is i; cut into files of `each` tokens.
inline std::shared_ptr<const data::TokenShards> counting_shards(const Folder& folder, Size tokens, Size each = 1 << 20,
                                                                Size vocabulary = 1 << 20) {
  std::vector<std::string> paths;
  for (Size first = 0; first < tokens; first += each) {
    paths.push_back(folder.file(std::to_string(each) + "_" + std::to_string(paths.size()) + ".tokens"));
    data::TokenShardWriter writer(paths.back(), {vocabulary, 1});
    for (Size i = first; i < std::min(first + each, tokens); ++i)
      writer.append(std::vector{static_cast<std::int32_t>(i)});
    writer.commit();
  }
  return std::make_shared<const data::TokenShards>(paths);
}

}  // namespace dspp::laws
