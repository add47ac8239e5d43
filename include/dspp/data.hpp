// SPDX-License-Identifier: Apache-2.0
/// Side floor: text and batches of tokens.
#pragma once

#include <dspp/data/added_tokens.hpp>
#include <dspp/data/batch_range.hpp>
#include <dspp/data/batch_sizes.hpp>
#include <dspp/data/batch_stream.hpp>
#include <dspp/data/batches.hpp>
#include <dspp/data/bert_characters.hpp>
#include <dspp/data/bert_text.hpp>
#include <dspp/data/blend_order.hpp>
#include <dspp/data/bpe.hpp>
#include <dspp/data/bpe_model.hpp>
#include <dspp/data/byte_characters.hpp>
#include <dspp/data/fnv.hpp>
#include <dspp/data/host_batches.hpp>
#include <dspp/data/normal_form.hpp>
#include <dspp/data/normalizer.hpp>
#include <dspp/data/pre_tokenize.hpp>
#include <dspp/data/sample_order.hpp>
#include <dspp/data/sample_range.hpp>
#include <dspp/data/sample_rows.hpp>
#include <dspp/data/shard_header.hpp>
#include <dspp/data/shard_writer.hpp>
#include <dspp/data/text.hpp>
#include <dspp/data/text_files.hpp>
#include <dspp/data/token_batches.hpp>
#include <dspp/data/token_files_writer.hpp>
#include <dspp/data/token_folder.hpp>
#include <dspp/data/token_shards.hpp>
#include <dspp/data/tokenizer.hpp>
#include <dspp/data/tokenizer_file.hpp>
#include <dspp/data/tokenizer_parts.hpp>
#include <dspp/data/unicode_classes.hpp>
#include <dspp/data/unicode_decompositions.hpp>
#include <dspp/data/vocabulary.hpp>
#include <dspp/data/wordpiece.hpp>
