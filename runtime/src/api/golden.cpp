#include "api/golden.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "api/model.h"
#include "base/error.h"
#include "base/text.h"
#include "kernels/kernels.h"
#include "run/context.h"

namespace bitedge {
namespace {

std::string decimal(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", number);
  return text;
}

}  // namespace

std::vector<uint8_t> golden_bytes(uint64_t seed, size_t count) {
  std::vector<uint8_t> bytes(count);
  uint64_t state = seed;
  for (size_t i = 0; i < count; i += 8) {
    uint64_t word = state += 0x9e3779b97f4a7c15;
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
    word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
    word ^= word >> 31;
    std::memcpy(bytes.data() + i, &word, std::min<size_t>(8, count - i));
  }
  return bytes;
}

std::vector<uint8_t> golden_input(const Value& input, uint64_t seed) {
  std::vector<uint8_t> bytes = golden_bytes(seed, input.shape.elements());
  if (input.kind != Kind::kFloat) return bytes;
  std::vector<uint8_t> floats(bytes.size() * sizeof(float));
  for (size_t i = 0; i < bytes.size(); ++i) {
    const float number = static_cast<float>(2 * bytes[i] - 255) / 256;
    std::memcpy(floats.data() + i * sizeof number, &number, sizeof number);
  }
  return floats;
}

void Model::check() const {
  const Golden& golden = metadata().golden;
  if (golden.count == 0) throw Error(Status::kGolden, "the model has no golden vectors to check itself with");
  const size_t outputs = output().shape.elements();
  Context context(program(), 1, false, context_limit(0));
  std::vector<float> answer(outputs);
  for (uint32_t n = 0; n < golden.count; ++n) {
    context.run(golden_input(input(), golden.seed + n).data(), 1, answer.data());
    const float* expected = golden.output.data + n * outputs;
    double largest = 1;
    for (size_t i = 0; i < outputs; ++i) largest = std::max(largest, std::fabs(double(expected[i])));
    for (size_t i = 0; i < outputs; ++i) {
      const double difference = std::fabs(double(answer[i]) - double(expected[i]));
      if (difference <= 1e-3 * largest) continue;  // so written that NaN does not pass
      throw Error(Status::kGolden,
                  join("golden vector ", n, ": output ", i, " is ", decimal(answer[i]), ", expected ",
                       decimal(expected[i]), " within ", decimal(1e-3 * largest), ", with the kernels ",
                       quoted(program().kernels().name), ": do not trust this model on this machine"));
    }
  }
}

}  // namespace bitedge
