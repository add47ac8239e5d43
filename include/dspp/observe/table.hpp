// SPDX-License-Identifier: Apache-2.0
/// Tables of text with aligned columns.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <dspp/base/error.hpp>

namespace dspp {

/// A heading and rows of as many cells, escaped by printable(). The first column is aligned left, the others right.
class Table {
 public:
  explicit Table(std::vector<std::string> heading) : rows_(1) {
    for (std::string& cell : heading) rows_[0].push_back(printable(cell));
  }

  void add(std::vector<std::string> row);

  /// Lines with line ends, each indented by two spaces, without trailing spaces.
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void Table::add(std::vector<std::string> row) {
  require(row.size() == rows_[0].size(),
          "dspp: a Table needs rows as wide as its heading, but one is not. Give each column a cell.");
  rows_.push_back(std::move(row));
  for (std::string& cell : rows_.back()) cell = printable(cell);
}

DSPP_INLINE std::string Table::text() const {
  std::vector<std::size_t> widths(rows_[0].size());
  for (const auto& row : rows_)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - row[i].size(), ' ');
      line += "  " + (i == 0 ? row[i] + space : space + row[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
