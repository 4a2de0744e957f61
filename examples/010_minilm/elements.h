// Numbers as a kernel stores them: f32 or bf16. Between kernels the example computes with floats.
#ifndef EXAMPLES_010_MINILM_ELEMENTS_H
#define EXAMPLES_010_MINILM_ELEMENTS_H

#include <cstdint>
#include <initializer_list>
#include <vector>

#include <polyhead/polyhead.h>

namespace minilm {

class Elements {
public:
    // Room for so many numbers; a rounded copy of floats.
    Elements(polyhead::DType dtype, size_t count) : dtype_(dtype), floats_(is_bf16() ? 0 : count), halves_(is_bf16() ? count : 0) {}
    Elements(polyhead::DType dtype, const std::vector<float> &values) : Elements(dtype, values.size()) {
        for (size_t i = 0; i < values.size(); i++) {
            if (is_bf16())
                halves_[i] = polyhead::to_bf16(values[i]);
            else
                floats_[i] = values[i];
        }
    }

    polyhead::MutableTensorView view(std::initializer_list<int64_t> shape) {
        return is_bf16() ? polyhead::view(halves_.data(), shape) : polyhead::view(floats_.data(), shape);
    }
    std::vector<float> floats() const {
        std::vector<float> values = floats_;
        for (const polyhead::bf16 half : halves_)
            values.push_back(polyhead::to_float(half));
        return values;
    }

private:
    bool is_bf16() const { return dtype_ == polyhead::DType::bf16; }

    polyhead::DType dtype_;
    std::vector<float> floats_;
    std::vector<polyhead::bf16> halves_;
};

} // namespace minilm
#endif
