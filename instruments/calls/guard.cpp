// Guard-page buffers by mmap.
#include "guard.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace polyhead::test {

namespace {

constexpr size_t margin = 256; // canary bytes on each side of a buffer placed inside; a multiple of every vector size

size_t page_bytes() {
    static const size_t bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    return bytes;
}

} // namespace

const char *place_name(Place place) {
    return place == Place::inside ? "inside" : place == Place::at_end ? "at_end" : "at_begin";
}

GuardedBuffer::GuardedBuffer(size_t bytes, Place place) : bytes_(bytes) {
    const size_t page = page_bytes();
    const size_t wanted = bytes + (place == Place::inside ? 2 * margin : 0);
    const size_t usable = std::max<size_t>(1, (wanted + page - 1) / page) * page;
    mapped_ = usable + 2 * page;
    void *memory = mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(static_cast<char *>(memory) + page, usable, PROT_READ | PROT_WRITE) != 0) {
        std::abort(); // a test without memory has nothing to say
    }
    mapping_ = static_cast<char *>(memory);
    uint32_t *words = reinterpret_cast<uint32_t *>(mapping_ + page);
    std::fill(words, words + usable / sizeof(uint32_t), canary);
    switch (place) {
    case Place::inside:
        data_ = mapping_ + page + margin;
        break;
    case Place::at_begin:
        data_ = mapping_ + page - (bytes == 0 ? 64 : 0);
        break;
    case Place::at_end:
        data_ = mapping_ + page + usable - bytes;
        break;
    }
}

GuardedBuffer::~GuardedBuffer() {
    if (mapping_ != nullptr) {
        munmap(mapping_, mapped_);
    }
}

GuardedBuffer::GuardedBuffer(GuardedBuffer &&other) noexcept {
    *this = std::move(other);
}

GuardedBuffer &GuardedBuffer::operator=(GuardedBuffer &&other) noexcept {
    std::swap(mapping_, other.mapping_);
    std::swap(mapped_, other.mapped_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
}

void GuardedBuffer::make_read_only() {
    if (mapping_ != nullptr) {
        mprotect(mapping_ + page_bytes(), mapped_ - 2 * page_bytes(), PROT_READ);
    }
}

bool GuardedBuffer::all_canary() const {
    if (mapping_ == nullptr) {
        return true;
    }
    const uint32_t *words = reinterpret_cast<const uint32_t *>(mapping_ + page_bytes());
    const size_t count = (mapped_ - 2 * page_bytes()) / sizeof(uint32_t);
    return std::all_of(words, words + count, [](uint32_t word) { return word == canary; });
}

bool GuardedBuffer::margins_canary() const {
    if (mapping_ == nullptr || bytes_ == 0) { // without bytes data() is a border
        return all_canary();
    }
    const auto halves = [](const char *begin, const char *end) {
        return std::all_of(reinterpret_cast<const uint16_t *>(begin), reinterpret_cast<const uint16_t *>(end),
                           [](uint16_t half) { return half == canary_16; });
    };
    return halves(mapping_ + page_bytes(), data_) && halves(data_ + (bytes_ + 1) / 2 * 2, mapping_ + mapped_ - page_bytes());
}

} // namespace polyhead::test
