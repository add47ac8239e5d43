// SPDX-License-Identifier: Apache-2.0
// Runs the parsers on inputs of libFuzzer: parsers_fuzz [-max_total_time=120] [-runs=N] [corpus folder]...
// DSPP_FUZZ_PARSER=h runs one parser alone: the letter is put before each input (parsers.hpp lists the letters).
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include <fuzz/parsers.hpp>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const char* const only = std::getenv("DSPP_FUZZ_PARSER");
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  dspp::fuzz::check_parsers(only == nullptr ? std::string(input) : std::string(1, only[0]).append(input));
  return 0;
}
