// SPDX-License-Identifier: Apache-2.0
// Gives the parsers whatever libFuzzer thinks of: parsers_fuzz [-max_total_time=60] [corpus folder]...
#include <cstddef>
#include <cstdint>

#include <fuzz/parsers.hpp>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  dspp::fuzz::check_parsers({reinterpret_cast<const char*>(data), size});
  return 0;
}
