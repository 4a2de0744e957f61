// Reads a safetensors file: maps it, checks all of it, and hands out typed views of its tensors.
#ifndef EXAMPLES_COMMON_SAFETENSORS_H
#define EXAMPLES_COMMON_SAFETENSORS_H

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace examples {

// One tensor of the file; data points into the mapping.
struct StoredTensor {
    std::string dtype; // as the file names it: "F32", "I64", ...
    std::vector<uint64_t> shape;
    const unsigned char *data = nullptr;
    uint64_t bytes = 0;
};

// A mapped file. Views stay valid as long as the object exists.
class SafeTensors {
public:
    SafeTensors() = default;
    ~SafeTensors() { close(); }
    SafeTensors(const SafeTensors &) = delete;
    SafeTensors &operator=(const SafeTensors &) = delete;

    // Maps the file and checks header, offsets and sizes. Returns "", or one sentence that says what is wrong with it.
    std::string open(const std::string &path);
    void close();

    // The f32 tensor of this name and shape. Returns "", or one sentence.
    std::string f32(const std::string &name, const std::vector<uint64_t> &shape, const float **data) const;
    const std::map<std::string, StoredTensor> &tensors() const { return tensors_; }

private:
    std::string map_file();
    std::string read_header();

    std::string path_;
    unsigned char *map_ = nullptr;
    uint64_t bytes_ = 0;
    std::map<std::string, StoredTensor> tensors_;
};

} // namespace examples
#endif
