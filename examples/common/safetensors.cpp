// Reads a safetensors file: 8 bytes of header length, a JSON header, then the tensors back to back.
#include "safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <nlohmann/json.hpp>

namespace examples {
namespace {

using nlohmann::json;

constexpr uint64_t length_bytes = 8;
constexpr uint64_t max_header_bytes = 100000000; // the format's own limit

// A name taken from a file that may be anything: short and printable, so that an error stays one readable line.
std::string printable(const std::string &name) {
    std::string text;
    for (unsigned char c : name.substr(0, 80))
        text += c >= 0x20 && c < 0x7f ? static_cast<char>(c) : '?';
    return "\"" + text + (name.size() > 80 ? "...\"" : "\"");
}

std::string shape_text(const std::vector<uint64_t> &shape) {
    std::string text = "[";
    for (size_t i = 0; i < shape.size(); i++)
        text += (i ? "," : "") + std::to_string(shape[i]);
    return text + "]";
}

// Bits of one element, or 0 for a name the format does not have.
uint64_t dtype_bits(const std::string &dtype) {
    static const std::map<std::string, uint64_t> bits = {{"BOOL", 8}, {"U8", 8},   {"I8", 8},   {"F8_E5M2", 8}, {"F8_E4M3", 8},
                                                         {"I16", 16}, {"U16", 16}, {"F16", 16}, {"BF16", 16},   {"I32", 32},
                                                         {"U32", 32}, {"F32", 32}, {"F64", 64}, {"I64", 64},    {"U64", 64}};
    auto it = bits.find(dtype);
    return it == bits.end() ? 0 : it->second;
}

bool is_list_of_counts(const json &value) {
    return value.is_array() && std::all_of(value.begin(), value.end(), [](const json &item) { return item.is_number_unsigned(); });
}

// Fills *tensor from its header entry; `buffer` are the bytes after the header. Returns "" or what is wrong.
std::string read_entry(const json &entry, const unsigned char *buffer, uint64_t buffer_bytes, StoredTensor *tensor) {
    if (!entry.is_object())
        return "has a header entry that is not an object";
    auto dtype = entry.find("dtype"), shape = entry.find("shape"), offsets = entry.find("data_offsets");
    if (dtype == entry.end() || !dtype->is_string())
        return "has no dtype";
    if (shape == entry.end() || !is_list_of_counts(*shape))
        return "has no shape of non-negative integers";
    if (offsets == entry.end() || !is_list_of_counts(*offsets) || offsets->size() != 2)
        return "has no pair of data_offsets";
    tensor->dtype = dtype->get<std::string>();
    tensor->shape = shape->get<std::vector<uint64_t>>();
    uint64_t begin = (*offsets)[0].get<uint64_t>(), end = (*offsets)[1].get<uint64_t>();
    if (begin > end)
        return "begins at byte " + std::to_string(begin) + ", after its end at byte " + std::to_string(end);
    if (end > buffer_bytes)
        return "ends at byte " + std::to_string(end) + " of the data, but the file holds only " + std::to_string(buffer_bytes) +
               " (is it truncated?)";
    uint64_t bits = dtype_bits(tensor->dtype);
    if (!bits)
        return "has the unknown dtype " + printable(tensor->dtype);
    uint64_t size = bits / 8;
    for (uint64_t extent : tensor->shape)
        if (__builtin_mul_overflow(size, extent, &size))
            return "has the impossible shape " + shape_text(tensor->shape);
    if (size != end - begin)
        return "has shape " + shape_text(tensor->shape) + " of " + tensor->dtype + ", which takes " + std::to_string(size) +
               " bytes, but its data_offsets span " + std::to_string(end - begin);
    tensor->data = buffer + begin;
    tensor->bytes = size;
    return "";
}

// The format allows neither holes nor overlaps; either is a sign of a damaged file or of another format.
std::string check_coverage(const std::map<std::string, StoredTensor> &tensors, const unsigned char *buffer, uint64_t buffer_bytes) {
    std::vector<std::pair<uint64_t, uint64_t>> spans;
    for (const auto &[name, tensor] : tensors)
        spans.emplace_back(tensor.data - buffer, tensor.bytes);
    std::sort(spans.begin(), spans.end());
    uint64_t at = 0;
    for (auto [begin, size] : spans) {
        if (begin != at)
            return "tensors overlap or leave a hole at byte " + std::to_string(std::min(begin, at)) + " of the data";
        at += size;
    }
    if (at != buffer_bytes)
        return std::to_string(buffer_bytes - at) + " bytes after the last tensor belong to none";
    return "";
}

} // namespace

void SafeTensors::close() {
    if (map_)
        munmap(map_, bytes_);
    map_ = nullptr;
    bytes_ = 0;
    tensors_.clear();
}

std::string SafeTensors::map_file() {
    int file = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return "cannot open " + path_ + ": " + std::strerror(errno) + ".";
    struct stat info{};
    std::string error;
    if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode)) {
        error = path_ + " is not a regular file.";
    } else if (static_cast<uint64_t>(info.st_size) < length_bytes) {
        error = path_ + " is not a safetensors file: it has " + std::to_string(info.st_size) + " bytes, the header length alone takes 8.";
    } else {
        bytes_ = static_cast<uint64_t>(info.st_size);
        void *map = mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, file, 0);
        if (map == MAP_FAILED)
            error = "cannot map " + path_ + ": " + std::strerror(errno) + ".";
        else
            map_ = static_cast<unsigned char *>(map);
    }
    ::close(file);
    return error;
}

std::string SafeTensors::read_header() {
    const std::string foreign = path_ + " is not a safetensors file: ";
    uint64_t header_bytes = 0;
    for (int i = 7; i >= 0; i--)
        header_bytes = header_bytes << 8 | map_[i];
    if (header_bytes > bytes_ - length_bytes || header_bytes > max_header_bytes)
        return foreign + "its header would take " + std::to_string(header_bytes) + " bytes, but " + std::to_string(bytes_ - length_bytes) +
               " follow (is it truncated?).";
    const unsigned char *text = map_ + length_bytes, *buffer = text + header_bytes;
    json header = json::parse(text, buffer, nullptr, /*allow_exceptions=*/false);
    if (!header.is_object())
        return foreign + "its header is not a JSON object.";
    uint64_t buffer_bytes = bytes_ - length_bytes - header_bytes;
    for (const auto &[name, entry] : header.items()) {
        if (name == "__metadata__")
            continue;
        std::string error = read_entry(entry, buffer, buffer_bytes, &tensors_[name]);
        if (!error.empty())
            return path_ + ": tensor " + printable(name) + " " + error + ".";
    }
    std::string error = check_coverage(tensors_, buffer, buffer_bytes);
    return error.empty() ? "" : path_ + ": " + error + ".";
}

std::string SafeTensors::open(const std::string &path) {
    close();
    path_ = path;
    std::string error = map_file();
    if (error.empty())
        error = read_header();
    if (!error.empty())
        close();
    return error;
}

std::string SafeTensors::f32(const std::string &name, const std::vector<uint64_t> &shape, const float **data) const {
    auto it = tensors_.find(name);
    if (it == tensors_.end())
        return path_ + " has no tensor " + printable(name) + ".";
    const StoredTensor &tensor = it->second;
    if (tensor.dtype != "F32" || tensor.shape != shape)
        return path_ + ": tensor " + printable(name) + " is " + printable(tensor.dtype) + " " + shape_text(tensor.shape) +
               ", expected F32 " + shape_text(shape) + ".";
    if (reinterpret_cast<uintptr_t>(tensor.data) % sizeof(float) != 0)
        return path_ + ": tensor " + printable(name) + " does not begin at a multiple of 4 bytes.";
    *data = reinterpret_cast<const float *>(tensor.data);
    return "";
}

} // namespace examples
