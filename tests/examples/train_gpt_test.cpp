// SPDX-License-Identifier: Apache-2.0
// examples/train_gpt.cpp as its user sees it: errors, files, output, and how it ends.
#include <examples/job.hpp>

#include <dspp/io/checkpoint_folder.hpp>
#include <dspp/io/text_file.hpp>
#include <laws/json_tree.hpp>

using namespace dspp;
using namespace dspp::laws;
using namespace dspp::examples;

namespace {

std::string validation_line(const Result& result) {
  for (const std::string& line : lines_of(result.out))
    if (line.starts_with("validation loss ")) return line;
  return {};
}

}  // namespace

TEST_CASE("bad input is refused in one sentence with status 2, and nothing is written") {
  const Job job;
  job.folder.write("empty.txt", "");
  job.folder.write("short.txt", "only a few words");
  job.folder.write("held_out_short.txt", std::string(100, 'x'));
  job.folder.write("binary/a.bin", std::string(100, '\0'));
  fs::create_directory(job.folder.path / "nothing");
  job.folder.write("weights/model.safetensors", "not that");
  job.folder.write("checkpoints/latest", io::sealed_text("step_00000001\n"));
  job.folder.write("saved/latest", io::sealed_text("step_00000002\n"));
  job.folder.write("saved/step_00000002/state.json", "not that");
  const std::vector<std::pair<std::string, std::string>> mistakes = {
      {"--data absent.txt", "'absent.txt' does not exist"},
      {"--data empty.txt", "is empty"},
      {"--data short.txt", "at least 65 bytes"},
      {"--data held_out_short.txt --sequence 16", "held-out bytes"},
      {"--data binary", "holds only binary files"},
      {"--data nothing", "holds none"},
      {"--data /proc/self/mem", "cannot be read"},
      {"--data", "nothing follows it"},
      {"--layers four", "got 'four'"},
      {"--layers 0", "from 1 to 1024"},
      {"--layers -1", "from 1 to 1024"},
      {"--width 99999999999999999999999", "from 1 to 16384"},
      {"--heads 2.5", "a whole number"},
      {"--width 30 --heads 4", "--width that the number of --heads divides"},
      {"--sequence 0", "from 1 to 65536"},
      {"--micro-batch 1e3", "a whole number"},
      {"--accumulate", "nothing follows it"},
      {"--lr nan", "a number from 1e-08 to 10"},
      {"--lr 0", "a number from 1e-08 to 10"},
      {"--steps -1", "a whole number"},
      {"--seconds 0", "a number from 0.1"},
      {"--seconds 1e999", "a number from 0.1"},
      {"--ranks 0", "from 1 to 256"},
      {"--ranks 257", "from 1 to 256"},
      {"--ranks 4 --ranks-per-node 5", "from 1 to the number of ranks"},
      {"--ranks-per-node -1", "a whole number"},
      {"--sum-order any", "rank or transport, but got 'any'"},
      {"--async-progress yes", "needs auto, on or off, but got 'yes'"},
      {"--seed 1.5", "a whole number"},
      {"--sample lots", "a whole number"},
      {"--local_rank=1", "0 without a launcher, but got '1'"},
      {"--local-rank -1", "0 without a launcher, but got '-1'"},
      {"--layer 2", "The nearest is --layers"},
      {"--smaple 2", "The nearest is --sample"},
      {"--text text.txt", "got '--text'. The nearest is --data;"},
      {"text.txt", "got 'text.txt'"},
      {"10", "got '10'. They begin with two dashes; --help lists all."},
      {"--steps=", "got ''"},
      {"--json absent/x.json", "does not exist"},
      {"--json nothing", "is a folder"},
      {"--json --save", "'--save' follows it"},
      {"--trace nothing", "is a folder"},
      {"--json same.json --trace ./same.json", "is the file of --json"},
      {"--memory-map nothing", "is a folder"},
      {"--memory-map absent/x.json", "does not exist"},
      {"--json same.json --memory-map ./same.json", "is the file of --json"},
      {"--trace same.json --memory-map same.json", "is the file of --trace"},
      {"--profile=all", "--profile needs no value, but got 'all'. Write --profile."},
      {"--save text.txt/below", "leads through a file"},
      {"--save text.txt", "leads through a file"},
      {"--save /proc/x", "'/proc/x' takes no folder: "},
      {"--save /proc", "'/proc' takes no folder: "},
      {"--save saved", "but 'saved' holds 'step_00000002'. Go on with that one by --resume saved, or give another"},
      {"--save saved/ --resume checkpoints", "but 'saved/' holds 'step_00000002'"},
      {"--save saved --load saved", "but 'saved' holds 'step_00000002'"},
      {"--save saved/step_00000002", "'saved/step_00000002' is a checkpoint"},
      {"--resume saved --save saved", "step_00000002/state.json' needs a last line"},
      {"--load nothing", "nothing/model.safetensors"},
      {"--load checkpoints", "it names 'step_00000001', which is not there"},
      {"--resume nothing", "nothing/latest' that names a checkpoint, but the folder has none"},
      {"--resume absent", "the folder does not exist"},
      {"--resume checkpoints", "it names 'step_00000001', which is not there"},
      {"--resume checkpoints --load weights", "--load is given, too"},
      {"--save-every 3", "there is no --save"},
      {"--save-every often", "a whole number"},
      {"--pool-limit 64MB", "--pool-limit needs a number of bytes of at least 1, but got '64MB'. Write 64MiB"},
      {"--pool-limit 0", "a number of bytes of at least 1"},
      {"--live-bytes -1", "--live-bytes needs a number of bytes of at least 0, but got '-1'."},
      {"--prefetch-bytes some", "--prefetch-bytes needs a number of bytes"},
      {"--pool-limit 1KiB", "--pool-limit needs at least the "},
      {"--topk-ratio 0.2", "--select-interval need a policy with ZenFlow, but this one has none."},
      {"--device cuda", "--device needs to be what this train_gpt was built for, cpu, but got 'cuda'"},
      {"--load weights", "weights/model.safetensors"},
      {"--layers 1024 --width 16384 --heads 1", "of memory"},
  };
  for (const auto& [options, expected] : mistakes) {
    const std::string data = options.find("--data") == std::string::npos ? "--data text.txt " : "";
    check_refused(job, data + options, expected);
  }
}

TEST_CASE("a checkpoint of another model is refused") {
  const Job job;
  REQUIRE(job.train("--steps 1 --save weights").status == 0);
  for (const char* other : {"--width 64", "--layers 2", "--sequence 8"})
    check_refused(job, "--data text.txt" + small_model + " --load weights --steps 1 " + other,
                  "needs the weights of this model");
}

TEST_CASE("--help lists every option") {
  const Job job;
  const Result result = job.run("--help");
  CHECK(result.status == 0);
  for (const char* option : {"--data",        "--tokens",         "--layers",
                             "--width",       "--heads",          "--sequence",
                             "--micro-batch", "--accumulate",     "--lr",
                             "--steps",       "--seconds",        "--ranks",
                             "--seed",        "--save",           "--device",
                             "--sum-order",   "--ranks-per-node", "--save-every",
                             "--resume",      "--load",           "--json",
                             "--sample",      "--prompt",         "--profile",
                             "--trace",       "--live-bytes",     "--prefetch-bytes",
                             "--memory-map",  "--async-progress"})
    CHECK_MESSAGE(result.out.find(option) != std::string::npos, option);
  // what ./dspp train --help prints
  CHECK(result.out == io::read_text_file(DSPP_TESTS_DIRECTORY "/../examples/help/train_gpt.txt"));
  CHECK(job.folder.list() == std::vector<std::string>{"text.txt"});
}

TEST_CASE("the first line says whether ranks have progress threads") {
  const Job job;
  const std::string said = "2 ranks as threads, each with a progress thread, ";
  CHECK(job.train("--steps 1 --ranks 2 --async-progress on").out.find(said) != std::string::npos);
  CHECK(job.train("--steps 1 --ranks 2 --async-progress off").out.find("progress thread") == std::string::npos);
}

TEST_CASE("--json has the documented keys, and in every row measured equals planned") {
  const Job job;
  for (const char* options :
       {"--ranks 1", "--ranks 2", "--ranks 3 --accumulate 2 --local_rank=0", "--ranks 3 --sum-order transport",
        "--ranks 4 --ranks-per-node 2 --async-progress on", "--ranks 2 --prefetch-bytes 0 --live-bytes 1GiB"}) {
    REQUIRE(job.train(std::string("--steps 4 --json result.json ") + options).status == 0);
    const JsonTree result = json_tree(job.folder.read("result.json"), "a result");
    CHECK(result.keys == std::vector<std::string>{"policy", "world", "val_loss", "train_seconds", "tokens_per_second",
                                                  "steps", "params", "bytes", "peak_bytes", "reserved_bytes",
                                                  "resident_bytes", "traffic"});
    CHECK(result.find("steps")->integer == 4);
    CHECK(result.find("val_loss")->real > 0);
    CHECK(result.find("policy")->string.substr(0, 7) == "Policy<");
    CHECK(result.find("bytes")->keys.size() == 7);
    check_as_planned(result);
    const bool alone = result.find("world")->integer == 1;
    CHECK((result.find("traffic")->find("reduce_scatter")->find("measured")->integer > 0) == !alone);
  }
}

TEST_CASE("a job ends with its report in a pool of its plan's peak, and not in one of a byte less") {
  const Job job;
  REQUIRE(job.train("--steps 2 --json result.json").status == 0);
  const Size peak = json_tree(job.folder.read("result.json"), "a result").find("peak_bytes")->find("planned")->integer;
  const auto limited = [&](Size limit) {
    return job.train("--steps 2 --save checkpoints --json limited.json --pool-limit " + std::to_string(limit));
  };
  const Result refused = limited(peak - 1);
  CHECK(refused.status == 2);
  CHECK(refused.err.find("--pool-limit needs at least the " + std::to_string(peak) + " bytes") != std::string::npos);
  CHECK(limited(peak).status == 0);
  CHECK(json_tree(job.folder.read("limited.json"), "a result").find("val_loss")->real > 0);
}

TEST_CASE("metrics.jsonl holds every step, and two runs with one seed the same losses") {
  const Job first, second, third;
  REQUIRE(first.train("--steps 30 --lr 0.01").status == 0);
  REQUIRE(second.train("--steps 30 --lr 0.01").status == 0);
  REQUIRE(third.train("--steps 30 --lr 0.01 --seed 2").status == 0);
  const auto steps = metrics_of(first.folder);
  REQUIRE(steps.size() == 30);
  double before = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    CHECK(steps[i].keys == std::vector<std::string>{"step", "loss", "lr", "gradient_norm", "tokens_per_second",
                                                    "seconds", "loss_scale", "skipped"});
    CHECK(steps[i].find("loss_scale")->real == 1);
    CHECK(steps[i].find("step")->integer == static_cast<Size>(i) + 1);
    CHECK(steps[i].find("seconds")->real > before);
    before = steps[i].find("seconds")->real;
  }
  CHECK(losses_of(first.folder) == losses_of(second.folder));
  CHECK(losses_of(first.folder) != losses_of(third.folder));
  CHECK(losses_of(first.folder).back() < losses_of(first.folder).front() - 1);
}

TEST_CASE("the global batch does not depend on the number of ranks") {
  const Job one, two;
  const std::string model = "--data text.txt --layers 1 --width 32 --heads 2 --sequence 16 --sample 0 --steps 2";
  REQUIRE(one.run(model + " --ranks 1 --micro-batch 4 --json result.json").status == 0);
  REQUIRE(two.run(model + " --ranks 2 --micro-batch 2 --json result.json").status == 0);
  CHECK(losses_of(one.folder)[0] == doctest::Approx(losses_of(two.folder)[0]).epsilon(1e-4));
  CHECK(validation_loss(one.folder) == doctest::Approx(validation_loss(two.folder)).epsilon(1e-3));
}

TEST_CASE("saved weights give the same validation loss in another world, and their text can be sampled") {
  const Job job;
  REQUIRE(job.train("--steps 5 --save deep/weights --json result.json").status == 0);
  const double saved = validation_loss(job.folder);
  const Result loaded =
      job.train("--steps 0 --ranks 1 --load deep/weights --json result.json --sample 12 --prompt line");
  REQUIRE(loaded.status == 0);
  CHECK(validation_loss(job.folder) == doctest::Approx(saved).epsilon(1e-9));
  CHECK(loaded.out.find("--- sample ---\nline") != std::string::npos);
}

TEST_CASE("a killed or stopped run that is resumed ends as an uninterrupted one, loss by loss") {
  const std::string options = "--steps 200 --ranks 2 --accumulate 2 ";
  const Job whole;
  const Result undisturbed = whole.train(options + "--json result.json");
  REQUIRE(undisturbed.status == 0);
  const std::vector<double> losses = losses_of(whole.folder);
  for (const int signal : {SIGKILL, SIGINT}) {
    CAPTURE(signal);
    const Job first, second;
    Process process(DSPP_TRAIN_GPT,
                    words("--data text.txt --save checkpoints --save-every 20 " + options + small_model), first.folder);
    REQUIRE(wait_until([&] { return fs::exists(first.folder.path / "checkpoints/latest"); }));
    process.signal(signal);
    CHECK(process.wait().status == (signal == SIGKILL ? 128 + SIGKILL : 0));
    const std::string checkpoints = " --resume " + first.folder.file("checkpoints");
    const Result resumed = second.train(options + "--seed 2 --json result.json" + checkpoints);
    CAPTURE(resumed.err);
    REQUIRE(resumed.status == 0);
    CHECK(resumed.err ==
          "dspp: --resume goes on with the seed of its checkpoint, 1: --seed 2 is the sample's alone.\n");
    CHECK(validation_line(resumed) == validation_line(undisturbed));
    CHECK(validation_loss(second.folder) == validation_loss(whole.folder));
    const std::vector<double> rest = losses_of(second.folder);
    CHECK(rest.size() >= 1);
    CHECK(rest.size() <= 180);
    CHECK(std::equal(rest.rbegin(), rest.rend(), losses.rbegin()));
    CHECK(resumed.out.find("resumed after " + std::to_string(200 - rest.size()) + " steps\n") != std::string::npos);
    check_as_planned(json_tree(second.folder.read("result.json"), "a result"));
  }
}

TEST_CASE("every tenth block of a text is held out, and a checkpoint of before that rule goes on with the last tenth") {
  const Job job;
  std::string text;
  for (int block = 0; block < 20; ++block)
    text += std::string(std::size_t{1} << 16, block % 10 == 9 ? 'z' : static_cast<char>('a' + block % 10));
  job.folder.write("blocks.txt", text);
  const auto loss_of = [&](const std::string& options) {
    REQUIRE(job.run("--data blocks.txt --json result.json --steps 3" + small_model + options).status == 0);
    return validation_loss(job.folder);
  };
  const double by_blocks = loss_of(" --save checkpoints");
  CHECK(loss_of(" --resume checkpoints") == by_blocks);
  const std::string state = "checkpoints/step_00000003/state.json";
  std::string facts = io::unsealed_text(job.folder.read(state), state);
  const std::string rule = R"("held_out":"every tenth block of 64 KiB",)";
  REQUIRE(facts.find(rule) != std::string::npos);
  facts.erase(facts.find(rule), rule.size());
  job.folder.write(state, io::sealed_text(facts));
  CHECK(loss_of(" --resume checkpoints") != by_blocks);
}

TEST_CASE("--profile prints a table of the steps, and --trace writes their timeline") {
  const Job job;
  const Result result = job.train("--steps 3 --ranks 2 --profile --trace trace.json");
  REQUIRE(result.status == 0);
  CHECK(result.out.find("  a step of rank 0 ") != std::string::npos);
  // A rank alone: two may wait for one another so long that no layer takes half a percent of a step.
  CHECK(job.train("--steps 3 --ranks 1 --profile").out.find("  . blocks.*") != std::string::npos);
  const JsonTree trace = json_tree(job.folder.read("trace.json"), "a trace");
  CHECK(trace.find("traceEvents")->items.size() > 100);
  const Result plain = job.train("--steps 3 --ranks 2 --trace trace.json");
  CHECK(plain.out.find("a step of rank 0") == std::string::npos);
  for (const Result* run : {&result, &plain}) {
    CHECK(run->out.find("\n  communication under way ") != std::string::npos);
    CHECK(run->out.find(" % hidden by the plan at these rates\n") != std::string::npos);
  }
  CHECK(job.train("--steps 3 --ranks 1 --trace trace.json").out.find("\n  communication: none\n") != std::string::npos);
  CHECK(plain.out.find("the timeline is in trace.json: ui.perfetto.dev shows it") != std::string::npos);
  CHECK(validation_line(plain) == validation_line(result));
}

TEST_CASE("--memory-map writes the blocks of the second step, or of the only one, planned as measured") {
  const Job job;
  for (const int steps : {1, 3}) {
    CAPTURE(steps);
    const Result result =
        job.train("--steps " + std::to_string(steps) + " --ranks 2 --memory-map map.json --json result.json");
    REQUIRE(result.status == 0);
    CHECK(result.out.find("are in map.json: planned peak ") != std::string::npos);
    const JsonTree map = json_tree(job.folder.read("map.json"), "a map");
    CHECK(map.find("rank")->integer == 0);
    CHECK(map.find("step")->integer == std::min(steps, 2));
    const JsonTree &planned = *map.find("planned"), &measured = *map.find("measured");
    CHECK(measured.find("region_bytes")->integer > 0);
    for (const char* key : {"peak_bytes", "before_bytes", "live_bytes"})
      CHECK_MESSAGE(planned.find(key)->text == measured.find(key)->text, key);
    const auto &paper = planned.find("blocks")->items, &run = measured.find("blocks")->items;
    REQUIRE(paper.size() == run.size());
    CHECK(paper.size() > 40);
    for (std::size_t i = 0; i < paper.size(); ++i)
      for (const char* key : {"label", "category", "bytes", "begin", "end"})
        CHECK_MESSAGE(paper[i].find(key)->text == run[i].find(key)->text, i, key);
    const JsonTree figures = json_tree(job.folder.read("result.json"), "a result");
    const double peak = figures.find("peak_bytes")->find("measured")->real;
    if (steps == 1) CHECK(static_cast<double>(measured.find("peak_bytes")->integer) == peak);
  }
}

TEST_CASE("what a process has in memory is what its ranks' plans say, and constants of the process and of a rank") {
  for (const int ranks : {1, 2}) {
    CAPTURE(ranks);
    const Job job;
    const Result result = job.train(
        "--layers 3 --width 256 --sequence 128 --micro-batch 8 --steps 3 --json result.json "
        "--ranks " +
        std::to_string(ranks));
    REQUIRE(result.status == 0);
    const JsonTree figures = json_tree(job.folder.read("result.json"), "a result");
    const double peak = figures.find("peak_bytes")->find("planned")->real, mib = 1 << 20;
    const double resident = static_cast<double>(figures.find("resident_bytes")->integer);
    CHECK(peak > 60 * mib);
    CHECK(resident > ranks * peak);
    CHECK(resident < 1.05 * ranks * peak + (64 + 32 * ranks) * mib);
  }
}

TEST_CASE("a timeline that cannot be written costs neither the checkpoint nor the report") {
  const Job job;
  const Result result = job.train("--steps 3 --save checkpoints --json result.json --trace /dev/full");
  CHECK(result.status == 2);
  CHECK(result.err.find("/dev/full") != std::string::npos);
  CHECK(io::CheckpointFolder{job.folder.file("checkpoints")}.tags() == std::vector<std::string>{"step_00000003"});
  CHECK(json_tree(job.folder.read("result.json"), "a result").find("val_loss") != nullptr);
}

TEST_CASE("the last two checkpoints are kept, and saving is not part of the comparison with the plan") {
  const Job job;
  REQUIRE(job.train("--steps 7 --ranks 2 --save checkpoints --save-every 2 --json result.json").status == 0);
  CHECK(io::CheckpointFolder{job.folder.file("checkpoints")}.tags() ==
        std::vector<std::string>{"step_00000006", "step_00000007"});
  check_as_planned(json_tree(job.folder.read("result.json"), "a result"));
  check_refused(job, "--data text.txt" + small_model + " --resume checkpoints --width 64",
                "needs the weights of this model");
}

TEST_CASE("a run resumes from the path of one checkpoint, and saves into the same folder") {
  const Job job;
  REQUIRE(job.train("--steps 6 --save checkpoints --save-every 4").status == 0);
  const std::vector<double> losses = losses_of(job.folder);
  fs::remove_all(job.folder.path / "runs");
  check_refused(job, "--data text.txt" + small_model + " --steps 1 --save checkpoints", "holds 'step_00000006'");
  const auto checkpoints = [&] { return io::CheckpointFolder{job.folder.file("checkpoints")}.tags(); };
  CHECK(checkpoints() == std::vector<std::string>{"step_00000004", "step_00000006"});
  const io::File damaged = io::File::to_write(job.folder.file("checkpoints/step_00000006/model.safetensors"));
  damaged.write_at(damaged.size() - 1, "?", 1);
  const std::string go_on = small_model + " --steps 6 --save checkpoints --resume ";
  for (const char* newest : {"checkpoints", "checkpoints/step_00000006"})
    check_refused(job, "--data text.txt" + go_on + newest,
                  "they were changed. Load 'checkpoints/step_00000004': give that path, or its last name as");
  const Result result = job.run("--data text.txt" + go_on + "checkpoints/step_00000004");
  CAPTURE(result.err);
  REQUIRE(result.status == 0);
  CHECK(result.err.empty());
  CHECK(losses_of(job.folder) == std::vector<double>(losses.end() - 2, losses.end()));
  CHECK(checkpoints() == std::vector<std::string>{"step_00000004", "step_00000006"});
  CHECK(job.train("--steps 7 --resume checkpoints").status == 0);
}

TEST_CASE("a run resumed on another text prints one warning, and so does one without steps left") {
  const Job job;
  job.folder.write("other.txt", some_text() + "!");
  job.folder.write("moved.txt", some_text());
  REQUIRE(job.train("--steps 2 --save checkpoints").status == 0);
  const Result other = job.run("--data other.txt" + small_model + " --steps 3 --ranks 3 --resume checkpoints");
  CHECK(other.status == 0);
  CHECK(lines_of(other.err).size() == 1);
  CHECK(
      other.err.starts_with("dspp: warning: --resume needs the text of its training for the batches that come next, "
                            "'text.txt' of 40010 bytes with the checksum "));
  CHECK(other.err.find(", but got 'other.txt' of 40011 bytes with the checksum ") != std::string::npos);
  const Result moved = job.run("--data moved.txt" + small_model + " --steps 2 --resume checkpoints");
  CHECK(moved.status == 0);
  CHECK(moved.err.empty());
  CHECK(moved.out.find("resumed after 2 steps, which --steps 2 counts too: none was left\n") != std::string::npos);
}

TEST_CASE("--seconds ends the run in time, with the learning rate at its end") {
  const Job job;
  REQUIRE(job.train("--seconds 2").status == 0);
  const auto steps = metrics_of(job.folder);
  REQUIRE(steps.size() > 2);
  CHECK(steps.back().find("seconds")->real < 3);
  double highest = 0;
  for (const JsonTree& step : steps) highest = std::max(highest, step.find("lr")->real);
  CHECK(steps.back().find("lr")->real < 0.2 * highest);
}

TEST_CASE("output to a file is plain lines, and errors go to the other stream") {
  const Job job;
  const Result result = job.train("--steps 3");
  CHECK(result.status == 0);
  CHECK(result.err.empty());
  CHECK(result.out.find('\r') == std::string::npos);
  CHECK(result.out.find('\033') == std::string::npos);
  CHECK(result.out.find("step 1  loss ") != std::string::npos);
  CHECK(result.out.find("validation loss ") != std::string::npos);
}

TEST_CASE("Ctrl-C ends the step, saves, reports, and leaves metrics that can be read") {
  const Job job;
  Process process(DSPP_TRAIN_GPT,
                  words("--data text.txt --seconds 600 --save weights --json result.json" + small_model), job.folder);
  REQUIRE(wait_until([&] { return lines_of(metrics_in(job.folder)).size() > 3; }));
  process.signal(SIGINT);
  const auto start = Clock::now();
  const Result result = process.wait();
  CHECK(seconds_since(start) < 20);
  CHECK(result.status == 0);
  CHECK(result.err.empty());
  CHECK(result.out.find("stopped after ") != std::string::npos);
  CHECK(result.out.find("validation loss ") != std::string::npos);
  const auto steps = metrics_of(job.folder);
  CHECK(json_tree(job.folder.read("result.json"), "a result").find("steps")->integer ==
        static_cast<Size>(steps.size()));
  CHECK(job.train("--steps 0 --load weights").status == 0);
}

TEST_CASE("a second Ctrl-C ends the program at once") {
  const Job job;
  Process process(DSPP_TRAIN_GPT, words("--data text.txt --seconds 600" + small_model + " --sample 1000000"),
                  job.folder);
  REQUIRE(wait_until([&] { return !metrics_in(job.folder).empty(); }));
  process.signal(SIGINT);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // now it evaluates, or samples without end
  const auto start = Clock::now();
  process.signal(SIGINT);
  CHECK(process.wait().status == 128 + SIGINT);
  CHECK(seconds_since(start) < 1);
}

TEST_CASE("a rank that throws stops all of them within a second, with its error, once") {
  const Job job;
  constexpr rlim_t full = 2000;  // rank 0 alone writes metrics; the others wait for it in a collective
  Process process(DSPP_TRAIN_GPT, words("--data text.txt --seconds 600 --ranks 3" + small_model), job.folder, full);
  REQUIRE(wait_until([&] { return metrics_in(job.folder).size() == full; }));
  const auto start = Clock::now();
  const Result result = process.wait();
  CHECK(seconds_since(start) < 1);
  CHECK(result.status != 0);
  REQUIRE(lines_of(result.err).size() == 1);
  CHECK(result.err.substr(0, 18) == "dspp: MetricsFile ");
  CHECK(result.err.find("File too large") != std::string::npos);
}

TEST_CASE("weights that are not finite end a run in its first step, and nothing is saved") {
  for (const char* options : {"--ranks 1", "--ranks 3 --accumulate 2"}) check_ends_at_nan(Job(), options);
}
