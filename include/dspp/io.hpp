// SPDX-License-Identifier: Apache-2.0
/// Side floor: files and their formats.
#pragma once

#include <dspp/io/block_calls.hpp>
#include <dspp/io/block_file.hpp>
#include <dspp/io/checkpoint_folder.hpp>
#include <dspp/io/checkpoint_lock.hpp>
#include <dspp/io/checkpoint_manifest.hpp>
#include <dspp/io/checkpoint_names.hpp>
#include <dspp/io/checkpoint_writer.hpp>
#include <dspp/io/file.hpp>
#include <dspp/io/file_system.hpp>
#include <dspp/io/json.hpp>
#include <dspp/io/json_text.hpp>
#include <dspp/io/mapped_file.hpp>
#include <dspp/io/pickled.hpp>
#include <dspp/io/safetensors.hpp>
#include <dspp/io/safetensors_folder.hpp>
#include <dspp/io/safetensors_header.hpp>
#include <dspp/io/safetensors_index.hpp>
#include <dspp/io/text_file.hpp>
