#include "base/sha256.h"

#include <algorithm>

#include "base/sha256_compress.h"
#include "check.h"

using bitedge::Sha256;

namespace {

std::string hash(const std::string& text, size_t piece) {
  Sha256 hash;
  for (size_t i = 0; i < text.size(); i += piece) hash.update(text.data() + i, std::min(piece, text.size() - i));
  return hash.hex();
}

}  // namespace

// Vectors of FIPS 180-4's examples and NIST's SHA256ShortMsg.
TEST(gives_the_published_digests) {
  CHECK_EQ(hash("", 1), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK_EQ(hash("abc", 3), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK_EQ(hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 100),
           "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK_EQ(hash(std::string(1000000, 'a'), 1000000),
           "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(does_not_depend_on_how_the_bytes_arrive) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += static_cast<char>(i * 7);
  for (size_t length : {1, 54, 55, 56, 57, 63, 64, 65, 119, 120, 127, 128, 129, 300}) {
    const std::string part = text.substr(0, length), whole = hash(part, length);
    for (size_t piece : {1, 3, 63, 64, 65}) CHECK_EQ(hash(part, piece), whole);
  }
}

TEST(the_portable_code_agrees_with_what_the_cpu_has) {
  std::cout << "     covered: portable" << (bitedge::best_sha256() == bitedge::sha256_portable ? "" : ", native")
            << "\n";
  uint8_t blocks[5 * 64];
  for (size_t i = 0; i < sizeof blocks; ++i) blocks[i] = static_cast<uint8_t>(i * 37 + i / 64);
  for (size_t count = 0; count <= 5; ++count) {
    uint32_t one[8] = {1, 2, 3, 4, 5, 6, 7, 0xffffffff}, other[8];
    std::copy(one, one + 8, other);
    bitedge::sha256_portable(one, blocks, count);
    bitedge::best_sha256()(other, blocks, count);
    CHECK(std::equal(one, one + 8, other));
  }
}
