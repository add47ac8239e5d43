// SPDX-License-Identifier: Apache-2.0
/// The sentence of an error.
#pragma once

#include <string>

#include <doctest/doctest.h>

#include <dspp/base/error.hpp>

namespace dspp::laws {

/// The sentence of the Error(file) that action() throws; "no error" where it throws none.
template <class F>
std::string sentence_of(const F& action) {
  try {
    action();
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::file);
    return error.what();
  }
  return "no error";
}

}  // namespace dspp::laws
