// bitedge-bench: measures the core where there is no Python.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>

#include "base/error.h"
#include "base/text.h"
#include "bench_epilogues.h"
#include "bench_kernels.h"
#include "bench_network.h"
#include "host.h"
#include "network_report.h"

namespace bitedge {
namespace {

constexpr char kUsage[] =
    "usage: bitedge-bench model.gguf [--threads 1,4] [--batch 1,8] [--runs 200] [--kernels NAME[,NAME...]|all]\n"
    "                     [--profile] [--json]\n"
    "       bitedge-bench --net birealnet18|xnornet|binarynet [--width W] [--image-size N] [options as above]\n"
    "       bitedge-bench kernels [--kernels NAME[,NAME...]] [--rounds N] [--json]\n"
    "       bitedge-bench epilogues [--kernels NAME[,NAME...]] [--rounds N] [--json]\n"
    "       bitedge-bench host\n"
    "\n"
    "model.gguf  its golden vectors are checked first, then its latency is measured\n"
    "--net       the same with random weights, checked against the scalar kernels: no file is needed\n"
    "kernels     the binary layers of the networks on every set of kernels, next to the bare loop, and layers of "
    "floats\n"
    "            next to their roofline: fused multiply-adds, or a copy of as many floats (one thread)\n"
    "epilogues   the blocks of BiRealNet18 with RSign and RPReLU and without, in turns (one thread)\n"
    "host        this machine, as JSON\n"
    "\n"
    "Ends with 0, with 1 when an answer is wrong, and with 2 when the arguments or the file are.\n";

Error refusal(const std::string& message) { return Error(Status::kArgument, message); }

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

int positive(const std::string& option, const std::string& text, int largest = 1000000) {
  char* end = nullptr;
  const long value = std::strtol(text.c_str(), &end, 10);
  if (text.empty() || *end || value < 1 || value > largest) {
    throw refusal(join(option, " wants a whole number from 1 to ", largest, ", got ", quoted(text)));
  }
  return int(value);
}

std::vector<int> positives(const std::string& option, const std::string& text, int largest) {
  std::vector<int> values;
  for (const std::string& part : split(text)) values.push_back(positive(option, part, largest));
  return values;
}

// Walks the arguments: a name, and the word after it when asked for.
class Words {
 public:
  Words(int count, char** words) : count_(count), words_(words) {}
  bool next() { return ++at_ < count_; }
  std::string name() const { return words_[at_]; }
  std::string value() {
    const std::string option = name();
    if (!next()) throw refusal(option + " wants a value; try --help");
    return name();
  }

 private:
  int count_, at_ = -1;
  char** words_;
};

int kernels(Words words, void (*bench)(const KernelBench&)) {
  KernelBench options;
  while (words.next()) {
    const std::string name = words.name();
    if (name == "--json") {
      options.json = true;
    } else if (name == "--kernels") {
      options.sets = split(words.value());
    } else if (name == "--rounds") {
      options.rounds = positive(name, words.value());
    } else {
      throw refusal("unknown argument " + quoted(name) + "; try --help");
    }
  }
  bench(options);
  return 0;
}

NetworkBench network_options(Words words) {
  NetworkBench options;
  while (words.next()) {
    const std::string name = words.name();
    if (name == "--json") {
      options.json = true;
    } else if (name == "--profile") {
      options.profile = true;
    } else if (name == "--net") {
      options.net = words.value();
    } else if (name == "--width") {
      options.size.width = positive(name, words.value(), 4096);
    } else if (name == "--image-size") {
      options.size.image = positive(name, words.value(), 4096);
    } else if (name == "--threads") {
      options.threads = positives(name, words.value(), 256);
    } else if (name == "--batch") {
      options.batches = positives(name, words.value(), 4096);
    } else if (name == "--runs") {
      options.runs = positive(name, words.value());
    } else if (name == "--kernels") {
      options.kernels = split(words.value());
    } else if (name.substr(0, 1) == "-" || !options.file.empty()) {
      throw refusal("unknown argument " + quoted(name) + "; try --help");
    } else {
      options.file = name;
    }
  }
  if (options.file.empty() == options.net.empty()) throw refusal("give a model.gguf or --net NAME; try --help");
  const bool sized = options.size.width || options.size.image;
  if (sized && options.net.empty()) throw refusal("--width and --image-size go with --net; a file has its own");
  return options;
}

int network(const Words& words) {
  const NetworkBench options = network_options(words);
  const Host host = describe_host();  // before this process heats and loads the machine itself
  const std::vector<NetworkRow> rows = bench_network(options);
  options.json ? print_json(host, rows) : print_table(host, rows);
  return 0;
}

int show_host() {
  JsonWriter json;
  write_host(&json, describe_host());
  std::printf("%s\n", json.text().c_str());
  return 0;
}

int run(int count, char** words) {
  const std::string verb = count > 0 ? words[0] : "--help";
  if (verb == "--help" || verb == "-h") {
    std::fputs(kUsage, stdout);
    return 0;
  }
  if (verb == "kernels") return kernels(Words(count - 1, words + 1), bench_kernels);
  if (verb == "epilogues") return kernels(Words(count - 1, words + 1), bench_epilogues);
  if (verb == "host" && count == 1) return show_host();
  return network(Words(count, words));
}

}  // namespace
}  // namespace bitedge

int main(int count, char** words) {
  try {
    return bitedge::run(count - 1, words + 1);
  } catch (const bitedge::Error& error) {
    std::fprintf(stderr, "bitedge-bench: %s\n", error.what());
    return error.code == bitedge::Status::kGolden ? 1 : 2;
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "bitedge-bench: out of memory\n");
    return 2;
  }
}
