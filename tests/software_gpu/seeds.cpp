// SPDX-License-Identifier: Apache-2.0
// What each test program on the GPU in software links beside main.cpp: every test case begins with the first seed,
// alone or after others, and one that fails prints the seed that gives its orders again.
#include <cstdio>

#include <doctest/doctest.h>
#include <software_gpu/block.hpp>

namespace {

class Seeds final : public doctest::IReporter {
 public:
  explicit Seeds(const doctest::ContextOptions&) {}

  void test_case_start(const doctest::TestCaseData&) override {
    failed_ = false;
    dspp::software_gpu::seed(dspp::software_gpu::first_seed());
  }
  void log_assert(const doctest::AssertData& it) override {
    if (it.m_failed && (it.m_at & doctest::assertType::is_warn) == 0) keep_seed();
  }
  void log_message(const doctest::MessageData& it) override {
    if (it.m_severity != doctest::assertType::is_warn) keep_seed();
  }
  void test_case_exception(const doctest::TestCaseException&) override { keep_seed(); }
  void test_case_end(const doctest::CurrentTestCaseStats& it) override {
    if (it.testCaseSuccess) return;
    keep_seed();
    std::printf("software GPU: DSPP_GPU_SEED=%u\n", seed_);
    std::fflush(stdout);
  }

  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}

 private:
  /// Of the first failure.
  void keep_seed() {
    if (!failed_) seed_ = dspp::software_gpu::current_seed();
    failed_ = true;
  }

  bool failed_ = false;
  unsigned seed_ = 0;
};

}  // namespace

REGISTER_LISTENER("seeds", 1, Seeds);
