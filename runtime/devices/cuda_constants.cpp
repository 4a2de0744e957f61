// Writes what stands for tensors that a call leaves out.
#include "cuda_constants.h"

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
    for (const auto &[number, memory] : constants->pieces_) {
        driver.free(memory);
    }
    constants->rows_.free_all([&](Pointer memory) { driver.free(memory); });
    Constants **place = &first_constants;
    while (*place != constants) {
        place = &(*place)->next_;
    }
    *place = constants->next_;
    delete constants;
}

Pointer Constants::number(uint32_t bits, Device &device) noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    const uint32_t piece = bits / numbers_of_piece, place = bits % numbers_of_piece;
    const auto known = pieces_.find(piece);
    if (known != pieces_.end()) {
        return known->second + place * sizeof bits;
    }
    try {
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
        return made->second + place * sizeof bits;
    } catch (const std::bad_alloc &) {
        return 0;
    }
}

Pointer Constants::row(uint8_t byte, size_t bytes, Device &device) noexcept {
    return rows_.of(byte, bytes, [&](size_t room) { return device.new_constant(byte, room); });
}

} // namespace polyhead::runtime::cuda
