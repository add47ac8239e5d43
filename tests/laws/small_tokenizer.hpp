// SPDX-License-Identifier: Apache-2.0
/// A tokenizer.json with all bytes, "th", "the", " t" and " the", and room for a test's own fields.
#pragma once

#include <string>
#include <string_view>

#include <dspp/data/byte_characters.hpp>
#include <dspp/io/json.hpp>

namespace dspp::laws {

struct SmallTokenizer {
  std::string vocabulary = R"(,"th":256,"the":257,"Ġt":258,"Ġthe":259)";
  std::string merges = R"(["t","h"],["th","e"],["Ġ","t"],["Ġ","the"])";
  std::string added = R"({"id":260,"content":"<end>","normalized":false,"special":true})";
  std::string words = R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":true})";
  std::string decoder = R"({"type":"ByteLevel"})";
  std::string model = R"("type":"BPE",)";
  std::string more = R"("normalizer":null,"post_processor":null,)";

  std::string json() const {
    std::string bytes;
    for (int byte = 0; byte < 256; ++byte) {
      const std::string one(1, static_cast<char>(static_cast<unsigned char>(byte)));
      bytes += (byte ? "," : "") + json_quoted(data::written_bytes(one)) + ":" + std::to_string(byte);
    }
    return "{" + more + "\"added_tokens\":[" + added + "],\"pre_tokenizer\":" + words + ",\"decoder\":" + decoder +
           ",\"model\":{" + model + "\"vocab\":{" + bytes + vocabulary + "},\"merges\":[" + merges + "]}}";
  }
};

}  // namespace dspp::laws
