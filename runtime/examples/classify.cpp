// The same as classify.c, by the C++ wrapper: classify one raw image with a packed model.
//
//     classify model.gguf [image.bin]
//
// examples/CMakeLists.txt builds it against an installed library; so does
//
//     c++ -std=c++17 classify.cpp $(pkg-config --cflags --libs bitedge) -o classify
#include <algorithm>
#include <bitedge/bitedge.hpp>
#include <cstdio>
#include <fstream>
#include <iterator>

namespace {

std::vector<char> read_image(const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(std::string(path) + ": cannot be read");
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: classify model.gguf [image.bin]\n");
    return 2;
  }
  try {
    const bitedge::Model model(argv[1]);
    bitedge::Context context(model);
    std::vector<char> image(model.info().input_bytes, model.info().input_kind == BITEDGE_UINT8 ? char(128) : char(0));
    if (argc > 2) {
      image = read_image(argv[2]);
    } else {
      model.check_golden();
    }
    const std::vector<float> logits = context.run(image);
    const auto best = std::max_element(logits.begin(), logits.end());
    const std::string label = model.label(size_t(best - logits.begin()));
    std::printf("%s %.6g\n", label.c_str(), double(*best));
    const bitedge_memory memory = context.memory();
    std::fprintf(stderr, "%llu kB of memory\n", static_cast<unsigned long long>(memory.model + memory.arena) / 1000);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
