// SPDX-License-Identifier: Apache-2.0
/// Floor 13: folders of Hugging Face.
#pragma once

#include <dspp/hub/hugging_face.hpp>
#include <dspp/hub/hugging_face_bert.hpp>
#include <dspp/hub/hugging_face_config.hpp>
#include <dspp/hub/hugging_face_families.hpp>
#include <dspp/hub/hugging_face_fields.hpp>
#include <dspp/hub/hugging_face_names.hpp>
#include <dspp/hub/hugging_face_rope.hpp>
#include <dspp/hub/hugging_face_tokens.hpp>
