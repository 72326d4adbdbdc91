#include "file/blob.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace bitedge {
namespace {

constexpr std::align_val_t kAlignment{64};

struct Descriptor {
  explicit Descriptor(const std::string& path) : fd(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
  int fd;
};

}  // namespace

Blob Blob::map(const std::string& path) {
  const Descriptor file(path);
  struct stat status;
  if (file.fd < 0 || fstat(file.fd, &status) != 0) throw Error(Status::kIo, join("cannot open: ", strerror(errno)));
  if (!S_ISREG(status.st_mode)) throw Error(Status::kIo, "cannot open: not a regular file");
  const auto size = static_cast<size_t>(status.st_size);
  if (size == 0) throw Error(Status::kFormat, "empty file");
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (data == MAP_FAILED) throw Error(Status::kIo, join("cannot map ", size, " bytes: ", strerror(errno)));
  return Blob(static_cast<uint8_t*>(data), size, true);
}

Blob Blob::copy(const void* data, size_t size) {
  auto* bytes = static_cast<uint8_t*>(::operator new(size == 0 ? 1 : size, kAlignment));
  if (size > 0) std::memcpy(bytes, data, size);
  return Blob(bytes, size, false);
}

Blob::Blob(Blob&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(other.size_), mapped_(other.mapped_) {}

Blob::~Blob() {
  if (data_ == nullptr) return;
  if (mapped_) {
    munmap(data_, size_);
  } else {
    ::operator delete(data_, kAlignment);
  }
}

}  // namespace bitedge
