// SPDX-License-Identifier: Apache-2.0
/// The sentence of the error that a call ends with.
#pragma once

#include <string>

#include <dspp/base/error.hpp>

namespace dspp::laws {

/// "no error" if there is none.
std::string sentence_of(auto&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace dspp::laws
