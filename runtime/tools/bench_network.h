// `bitedge-bench model.gguf` and `bitedge-bench --net NAME`: the latency of a network, after its answer was checked.
#pragma once

#include <string>
#include <vector>

#include "testing/random_network.h"

namespace bitedge {

struct NetworkBench {
  std::string file, net;  // one of the two
  NetworkSize size;       // of `net`
  std::vector<int> threads = {1}, batches = {1};
  std::vector<std::string> kernels;  // empty: the best; else each by name
  int runs = 200;
  bool profile = false, json = false;
};

struct LayerTime {
  std::string name, op, kernel;
  uint64_t macs = 0;
  double ms = 0, rate = 0, limit = 0;  // GMAC/s; 0: none
};

// One row of the report; docs/on-device.md describes the columns.
struct NetworkRow {
  std::string engine, net;
  int threads = 1, batch = 1;
  double min = 0, p50 = 0, p90 = 0, p99 = 0;  // milliseconds of one call
  double load_ms = 0, cold_ms = 0;
  uint64_t bytes = 0, peak_rss = 0;
  std::vector<LayerTime> layers;
};

// Throws Error{kGolden} when an answer is wrong, before anything is measured.
std::vector<NetworkRow> bench_network(const NetworkBench& options);

}  // namespace bitedge
