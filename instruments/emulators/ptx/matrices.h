// Sums of products of matrices as instructions make them: two ways, because that of devices is not published.
#ifndef POLYHEAD_INSTRUMENTS_CUDA_DRIVER_MATRICES_H
#define POLYHEAD_INSTRUMENTS_CUDA_DRIVER_MATRICES_H

#include <cmath>

namespace polyhead::cuda_driver {

constexpr int rows_of_warp = 16, depth_of_product = 16;

// a is 16 x depth, b is depth x columns, c is 16 x columns; row after row. c += a * b.
struct WarpMatrices {
    const float *a, *b;
    float *c;
    int columns, depth = depth_of_product;
};

// Products of numbers of 11 bits are exact in f32. One way: each sum is rounded to nearest, in the order of k.
inline void add_in_order(const WarpMatrices &m) {
    for (int k = 0; k < m.depth; k++) {
        const float *const b = m.b + k * m.columns;
        for (int row = 0; row < rows_of_warp; row++) {
            const float a = m.a[row * m.depth + k];
            float *const c = m.c + row * m.columns;
            for (int column = 0; column < m.columns; column++) {
                c[column] += a * b[column];
            }
        }
    }
}

inline float toward_zero(double x) {
    const float nearest = static_cast<float>(x);
    return std::fabs(static_cast<double>(nearest)) > std::fabs(x) ? std::nextafter(nearest, 0.0f) : nearest;
}

// c and some products are moved to the exponent of the largest, cut off below 24 bits, added, and cut off again.
inline float truncated_sum(float c, const float *products, int count) {
    float largest = std::fabs(c), plain = c;
    for (int i = 0; i < count; i++) {
        largest = std::fmax(largest, std::fabs(products[i]));
        plain += products[i];
    }
    if (!std::isfinite(plain) || largest == 0) {
        return plain;
    }
    const double unit = std::ldexp(1.0, std::ilogb(largest) - 23);
    double units = std::trunc(c / unit);
    for (int i = 0; i < count; i++) {
        units += std::trunc(products[i] / unit);
    }
    return toward_zero(units * unit);
}

// The other way: the later half of k first, each half at once, truncated.
inline void add_truncated(const WarpMatrices &m) {
    constexpr int most_at_once = 8;
    const int at_once = m.depth / 2;
    for (int row = 0; row < rows_of_warp; row++) {
        for (int column = 0; column < m.columns; column++) {
            for (int first = m.depth - at_once; first >= 0; first -= at_once) {
                float products[most_at_once];
                for (int i = 0; i < at_once; i++) {
                    products[i] = m.a[row * m.depth + first + i] * m.b[(first + i) * m.columns + column];
                }
                m.c[row * m.columns + column] = truncated_sum(m.c[row * m.columns + column], products, at_once);
            }
        }
    }
}

} // namespace polyhead::cuda_driver
#endif
