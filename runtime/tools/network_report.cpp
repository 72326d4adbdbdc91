#include "network_report.h"

#include <algorithm>
#include <cstdio>
#include <string>

#include "base/json.h"

namespace bitedge {
namespace {

using Cells = std::vector<std::string>;

std::string number(double value, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

// Columns as wide as their widest cell; the first is text, the others lie to the right when they are numbers.
void print_cells(const std::vector<Cells>& lines, size_t text_columns) {
  std::vector<size_t> widths(lines.front().size());
  for (const Cells& cells : lines) {
    for (size_t i = 0; i < cells.size(); i++) widths[i] = std::max(widths[i], cells[i].size());
  }
  for (const Cells& cells : lines) {
    std::string line;
    for (size_t i = 0; i < cells.size(); i++) {
      const std::string gap(widths[i] - cells[i].size(), ' ');
      line += (i ? "  " : "") + (i < text_columns ? cells[i] + gap : gap + cells[i]);
    }
    std::printf("%s\n", line.substr(0, line.find_last_not_of(' ') + 1).c_str());
  }
}

// The row of the best kernels at the same threads and batch, which a speed-up is against.
const NetworkRow* base_of(const std::vector<NetworkRow>& rows, const NetworkRow& row) {
  for (const NetworkRow& other : rows) {
    if (other.engine == "bitedge" && other.threads == row.threads && other.batch == row.batch) return &other;
  }
  return nullptr;
}

double images_per_second(const NetworkRow& row) { return 1e3 * row.batch / row.p50; }

void print_layers(const std::vector<LayerTime>& layers) {
  double total = 0;
  for (const LayerTime& layer : layers) total += layer.ms;
  std::vector<Cells> lines = {{"layer", "operator", "kernel", "ms", "%", "GMAC/s", "bare loop", "share %"}};
  for (const LayerTime& layer : layers) {
    lines.push_back({layer.name, layer.op, layer.kernel, number(layer.ms, 4), number(100 * layer.ms / total, 1),
                     layer.rate > 0 ? number(layer.rate, 0) : "-", layer.limit > 0 ? number(layer.limit, 0) : "-",
                     layer.limit > 0 ? number(100 * layer.rate / layer.limit, 0) : "-"});
  }
  lines.push_back({"total", "", "", number(total, 4), "100.0", "", "", ""});
  std::printf("\n");
  print_cells(lines, 3);
}

void write_layer(JsonWriter* json, const LayerTime& layer) {
  json->open('{').key("name").string(layer.name).key("op").string(layer.op).key("kernel").string(layer.kernel);
  json->key("ms");
  write_number(json, layer.ms);
  json->key("macs").number(layer.macs).key("gmacs_per_s");
  write_number(json, layer.rate, layer.rate > 0);
  json->key("limit_gmacs_per_s");
  write_number(json, layer.limit, layer.limit > 0);
  json->key("share");
  write_number(json, layer.limit > 0 ? layer.rate / layer.limit : 0, layer.limit > 0);
  json->close('}');
}

void write_row(JsonWriter* json, const NetworkRow& row) {
  json->open('{').key("engine").string(row.engine).key("net").string(row.net);
  json->key("threads").integer(row.threads).key("batch").integer(row.batch);
  json->key("status").string("ok").key("agrees").boolean(true).key("ms").open('{').key("min");
  write_number(json, row.min);
  json->key("p50");
  write_number(json, row.p50);
  json->key("p90");
  write_number(json, row.p90);
  json->key("p99");
  write_number(json, row.p99);
  json->close('}').key("images_per_s");
  write_number(json, images_per_second(row));
  json->key("bytes").number(row.bytes).key("peak_rss").number(row.peak_rss).key("load_ms");
  write_number(json, row.load_ms);
  json->key("cold_ms");
  write_number(json, row.cold_ms);
  json->key("top1").null().key("layers").open('[');
  for (const LayerTime& layer : row.layers) write_layer(json, layer);
  json->close(']').key("reason").null().close('}');
}

}  // namespace

void print_table(const Host& host, const std::vector<NetworkRow>& rows) {
  std::printf("%s on %s, %d cores, %s, kernels %s", rows.front().net.c_str(), host.cpu.c_str(), host.cores,
              host.system.c_str(), host.kernels.c_str());
  if (!host.governor.empty()) std::printf(", governor %s", host.governor.c_str());
  if (host.temperature_c != 0) std::printf(", %.0f degrees", host.temperature_c);
  if (!host.throttled.empty()) std::printf(", throttled %s", host.throttled.c_str());
  std::printf("\n\n");
  std::vector<Cells> lines = {
      {"engine", "status", "threads", "batch", "size kB", "top-1 %", "ms p50", "ms p99", "images/s", "speed-up"}};
  for (const NetworkRow& row : rows) {
    const NetworkRow* base = base_of(rows, row);
    lines.push_back({row.engine, "ok", std::to_string(row.threads), std::to_string(row.batch),
                     number(double(row.bytes) / 1024, 0), "-", number(row.p50, 3), number(row.p99, 3),
                     number(images_per_second(row), 0), base ? number(row.p50 / base->p50, 1) + "x" : "-"});
  }
  print_cells(lines, 2);
  std::printf("\nspeed-up: how many times longer that row takes than bitedge, same threads and batch, in this run\n");
  for (const NetworkRow& row : rows) {
    if (!row.layers.empty()) print_layers(row.layers);
  }
}

void print_json(const Host& host, const std::vector<NetworkRow>& rows) {
  JsonWriter json;
  json.open('{').key("host");
  write_host(&json, host);
  json.key("rows").open('[');
  for (const NetworkRow& row : rows) write_row(&json, row);
  json.close(']').close('}');
  std::printf("%s\n", json.text().c_str());
}

}  // namespace bitedge
