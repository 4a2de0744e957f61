// Reads a NumPy .npy file of version 1 to 3 into memory, little-endian and in C order.
#ifndef EXAMPLES_COMMON_NPY_H
#define EXAMPLES_COMMON_NPY_H

#include <cstdint>
#include <string>
#include <vector>

namespace examples {

// Reads an array of int32 ("<i4"), float ("<f4") or double ("<f8"), as `expected` says. Returns "", or one sentence.
std::string read_npy(const std::string &path, const std::string &expected, std::vector<int64_t> *shape, std::vector<unsigned char> *bytes);

template <class T> const char *npy_dtype();
template <> inline const char *npy_dtype<int32_t>() {
    return "<i4";
}
template <> inline const char *npy_dtype<float>() {
    return "<f4";
}
template <> inline const char *npy_dtype<double>() {
    return "<f8";
}

// The same into a typed vector.
template <class T> std::string read_npy(const std::string &path, std::vector<int64_t> *shape, std::vector<T> *values) {
    std::vector<unsigned char> bytes;
    std::string error = read_npy(path, npy_dtype<T>(), shape, &bytes);
    if (!error.empty())
        return error;
    values->resize(bytes.size() / sizeof(T));
    for (size_t i = 0; i < bytes.size(); i++)
        reinterpret_cast<unsigned char *>(values->data())[i] = bytes[i];
    return "";
}

} // namespace examples
#endif
