// The rows of `bitedge-bench` for a person and for a program, with the columns of `bitedge bench`.
#pragma once

#include <vector>

#include "bench_network.h"
#include "host.h"

namespace bitedge {

void print_table(const Host& host, const std::vector<NetworkRow>& rows);
void print_json(const Host& host, const std::vector<NetworkRow>& rows);

}  // namespace bitedge
