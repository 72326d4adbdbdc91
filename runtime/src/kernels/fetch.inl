// Fetching ahead, while a convolution counts, what a later layer reads: BinaryConv::ahead. Included by the file of each
// instruction set.
namespace bitedge {
namespace {

class Fetch {
 public:
  // In as many turns as there are tiles.
  Fetch(const BinaryConv& c, size_t tiles)
      : at_(c.ahead), end_(c.ahead + c.ahead_bytes), turn_((c.ahead_bytes / kLine / tiles + 1) * kLine) {}

  bool left() const { return at_ < end_; }

  // A tile's turn at once.
  inline __attribute__((always_inline)) void turn() {
    if (!left()) return;
    const char* stop = size_t(end_ - at_) < turn_ ? end_ : at_ + turn_;
    for (; at_ < stop; at_ += kLine) __builtin_prefetch(at_, 0, 2);
  }

  // Two lines, while there are any: what eight pixels of half words count in one step leaves time for.
  inline __attribute__((always_inline)) void step() {
    if (!left()) return;
    __builtin_prefetch(at_, 0, 2);
    __builtin_prefetch(at_ + kLine, 0, 2);
    at_ += 2 * kLine;
  }

 private:
  static constexpr size_t kLine = 64;
  const char *at_, *end_;
  size_t turn_;
};

}  // namespace
}  // namespace bitedge
