#include "base/budget.h"

#include "base/error.h"
#include "base/text.h"

namespace bitedge {

thread_local Budget* Budget::current_ = nullptr;

void Budget::take(uint64_t bytes) {
  if (bytes > limit_ - used_) refuse_memory("the model", used_ + bytes, limit_);
  used_ += bytes;
}

void refuse_memory(const char* what, uint64_t needed, uint64_t limit) {
  throw Error(Status::kMemory, join(what, " needs at least ", needed, " bytes of memory, more than the limit of ",
                                    limit, ": raise memory_limit"));
}

}  // namespace bitedge
