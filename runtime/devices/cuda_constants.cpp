// Writes what stands for tensors that a call leaves out.
#include "cuda_constants.h"

#include <algorithm>
#include <new>

#include "cuda_device.h"

namespace polyhead::runtime::cuda {
namespace {

std::mutex constants_mutex;
Constants *first_constants = nullptr; // of the contexts with open devices

constexpr uint32_t numbers_of_piece = 4096;

} // namespace

Constants *Constants::of(Context context) noexcept {
    const std::lock_guard<std::mutex> lock(constants_mutex);
    Constants *constants = first_constants;
    while (constants && constants->context_ != context) {
        constants = constants->next_;
    }
    if (!constants) {
        constants = new (std::nothrow) Constants(context, first_constants);
        first_constants = constants ? constants : first_constants;
    }
    if (constants) {
        ++constants->devices_;
    }
    return constants;
}

void Constants::let_go(Constants *constants, const Driver &driver) noexcept {
    const std::lock_guard<std::mutex> lock(constants_mutex);
    if (--constants->devices_ > 0) {
        return;
    }
    for (const Pointer memory : constants->all_) {
        driver.free(memory);
    }
    Constants **place = &first_constants;
    while (*place != constants) {
        place = &(*place)->next_;
    }
    *place = constants->next_;
    delete constants;
}

// What is made belongs to the list that is freed at the end: room for it comes first.
Pointer Constants::number(uint32_t bits, Device &device) noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    const uint32_t piece = bits / numbers_of_piece, place = bits % numbers_of_piece;
    const auto known = pieces_.find(piece);
    if (known != pieces_.end()) {
        return known->second + place * sizeof bits;
    }
    try {
        all_.reserve(all_.size() + 1);
        const auto made = pieces_.emplace(piece, 0).first;
        uint32_t numbers[numbers_of_piece];
        for (uint32_t i = 0; i < numbers_of_piece; ++i) {
            numbers[i] = piece * numbers_of_piece + i;
        }
        made->second = device.new_constant(numbers, sizeof numbers);
        if (made->second == 0) {
            pieces_.erase(made);
            return 0;
        }
        all_.push_back(made->second);
        return made->second + place * sizeof bits;
    } catch (const std::bad_alloc &) {
        return 0;
    }
}

// A longer row is a new one, as kernels may still read the one before: so their sizes double.
Pointer Constants::row(uint8_t byte, size_t bytes, Device &device) noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    Row &row = rows_[byte];
    if (row.bytes >= bytes) {
        return row.memory;
    }
    size_t room = std::max<size_t>(row.bytes, 1U << 16);
    while (room < bytes) {
        room *= 2;
    }
    try {
        all_.reserve(all_.size() + 1);
    } catch (const std::bad_alloc &) {
        return 0;
    }
    const Pointer memory = device.new_constant(byte, room);
    if (memory != 0) {
        all_.push_back(memory);
        row = {memory, room};
    }
    return memory;
}

} // namespace polyhead::runtime::cuda
