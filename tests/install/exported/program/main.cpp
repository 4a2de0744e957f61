// Prints which variant computed the mean of 0 .. 36.
#include <cmath>
#include <cstdio>

#include <mean.h>

int main() {
    float rows[37 * 16], mean[16];
    for (int i = 0; i < 37 * 16; ++i) {
        rows[i] = static_cast<float>(i / 16);
    }
    const std::string variant = mean_of_rows(rows, mean);
    const bool good = !variant.empty() && std::fabs(mean[0] - 18) < 1e-4f && std::fabs(mean[15] - 18) < 1e-4f;
    std::printf("%s\n", good ? variant.c_str() : "wrong");
    return good ? 0 : 1;
}
