#include "file/blob.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

#include "base/budget.h"
#include "base/error.h"
#include "base/text.h"

namespace bitedge {
namespace {

constexpr std::align_val_t kAlignment{64};
constexpr size_t kMostAtOnce = size_t(1) << 30;  // some systems read no more in one call

struct Descriptor {
  explicit Descriptor(const std::string& path) : fd(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
  int fd;
};

}  // namespace

Blob::Blob(size_t size) : data_(static_cast<uint8_t*>(::operator new(size == 0 ? 1 : size, kAlignment))), size_(size) {}

Blob Blob::read(const std::string& path, uint64_t limit) {
  const Descriptor file(path);
  struct stat status;
  if (file.fd < 0 || fstat(file.fd, &status) != 0) throw Error(Status::kIo, join("cannot open: ", strerror(errno)));
  if (!S_ISREG(status.st_mode)) throw Error(Status::kIo, "cannot open: not a regular file");
  const auto size = static_cast<uint64_t>(status.st_size);
  if (size == 0) throw Error(Status::kFormat, "empty file");
  if (size > limit) refuse_memory("the file", size, limit);
  if (size > std::numeric_limits<size_t>::max() / 2) throw std::bad_alloc();
  Blob blob(static_cast<size_t>(size));
  for (size_t done = 0; done < blob.size_;) {
    const ssize_t count = ::read(file.fd, blob.data_ + done, std::min(blob.size_ - done, kMostAtOnce));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw Error(Status::kIo, join("cannot read: ", strerror(errno)));
    if (count == 0) throw Error(Status::kIo, "cannot read: the file became shorter meanwhile");
    done += static_cast<size_t>(count);
  }
  return blob;
}

Blob Blob::copy(const void* data, size_t size) {
  Blob blob(size);
  if (size > 0) std::memcpy(blob.data_, data, size);
  return blob;
}

Blob::Blob(Blob&& other) noexcept : data_(std::exchange(other.data_, nullptr)), size_(other.size_) {}

Blob::~Blob() {
  if (data_ != nullptr) ::operator delete(data_, kAlignment);
}

size_t Blob::drop(const void* part, size_t size) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE)), address = reinterpret_cast<uintptr_t>(part);
  const uintptr_t begin = (address + page - 1) / page * page, end = (address + size) / page * page;
  if (begin >= end || madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED) != 0) return 0;
  return end - begin;
}

}  // namespace bitedge
