// A bundle begins with a line that says what it is, the number of its entries and the number of its blocks. Two tables follow: of each
// block where it is and how large; of each entry its name, its block and where it is inside, in the order of the names. Then come the
// blocks: the objects of a kernel are compressed together, because they are alike and read together.
#include "bundle.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>

#include <fcntl.h>
#include <lzma.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../plan/text.h"
#include "entry.h"

namespace polyhead::load {
namespace {

constexpr char first_line[] = "polyhead bundle 1\n";
constexpr size_t of_first_line = sizeof first_line - 1, of_number = 16, of_name = 2 * of_number;
constexpr size_t of_head = of_first_line + 2 * of_number, of_block_row = 3 * of_number, of_entry_row = of_name + 3 * of_number;
constexpr uint64_t most_block_bytes = 64 << 20, most_rows = 1 << 20;

// A row of numbers in hexadecimal.
bool read_numbers(std::string_view text, uint64_t *numbers, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        numbers[i] = 0;
        for (const char digit : text.substr(i * of_number, of_number)) {
            const bool letter = digit >= 'a' && digit <= 'f';
            if (!letter && (digit < '0' || digit > '9')) {
                return false;
            }
            numbers[i] = numbers[i] * 16 + uint64_t(letter ? digit - 'a' + 10 : digit - '0');
        }
    }
    return true;
}

class BundleFile {
public:
    explicit BundleFile(const std::string &path) : file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
        struct stat status{};
        bytes_ = file_ >= 0 && ::fstat(file_, &status) == 0 && S_ISREG(status.st_mode) ? uint64_t(status.st_size) : 0;
    }
    ~BundleFile() {
        if (file_ >= 0) {
            ::close(file_);
        }
    }
    BundleFile(const BundleFile &) = delete;
    BundleFile &operator=(const BundleFile &) = delete;

    bool read(uint64_t at, uint64_t bytes, std::string *text) const {
        if (at > bytes_ || bytes > bytes_ - at) {
            return false;
        }
        text->resize(size_t(bytes));
        size_t done = 0;
        for (ssize_t some = 0; done < text->size(); done += size_t(some)) {
            some = ::pread(file_, text->data() + done, text->size() - done, off_t(at + done));
            if (some <= 0) {
                return false;
            }
        }
        return true;
    }

private:
    int file_;
    uint64_t bytes_ = 0;
};

// Where an entry is.
struct EntryPlace {
    uint64_t block_at, block_packed, block_bytes; // in the file, compressed, and not
    uint64_t at, bytes;                           // in the block
};

// False: there is no entry of this name, or a table is damaged.
bool find_place(const BundleFile &file, const std::string &name, EntryPlace *place) {
    std::string head, table, row;
    uint64_t counts[2] = {}, numbers[3] = {}; // entries and blocks
    if (!file.read(0, of_head, &head) || head.compare(0, of_first_line, first_line) != 0 ||
        !read_numbers(std::string_view(head).substr(of_first_line), counts, 2) || counts[0] > most_rows || counts[1] > most_rows ||
        !file.read(of_head + counts[1] * of_block_row, counts[0] * of_entry_row, &table)) {
        return false;
    }
    size_t low = 0, high = size_t(counts[0]);
    while (low < high) {
        const size_t middle = (low + high) / 2;
        const std::string_view entry = std::string_view(table).substr(middle * of_entry_row, of_entry_row);
        const int order = entry.compare(0, of_name, name);
        if (order != 0) {
            (order < 0 ? low : high) = order < 0 ? middle + 1 : middle;
            continue;
        }
        uint64_t in_block[3] = {}; // its number, and where in it
        if (!read_numbers(entry.substr(of_name), in_block, 3) || in_block[0] >= counts[1] ||
            !file.read(of_head + in_block[0] * of_block_row, of_block_row, &row) || !read_numbers(row, numbers, 3)) {
            return false;
        }
        *place = {numbers[0], numbers[1], numbers[2], in_block[1], in_block[2]};
        return true;
    }
    return false;
}

// The machine code of x86 is compressed as such.
bool compressed(const std::string &bytes, std::string *packed) {
    lzma_options_lzma options;
    if (lzma_lzma_preset(&options, 9 | LZMA_PRESET_EXTREME) != 0) {
        return false;
    }
    lzma_filter filters[] = {{LZMA_FILTER_X86, nullptr}, {LZMA_FILTER_LZMA2, &options}, {LZMA_VLI_UNKNOWN, nullptr}};
    size_t size = 0;
    packed->resize(lzma_stream_buffer_bound(bytes.size()));
    const lzma_ret result = lzma_stream_buffer_encode(filters, LZMA_CHECK_CRC32, nullptr, reinterpret_cast<const uint8_t *>(bytes.data()),
                                                      bytes.size(), reinterpret_cast<uint8_t *>(packed->data()), &size, packed->size());
    packed->resize(size);
    return result == LZMA_OK;
}

bool decompressed(const std::string &packed, uint64_t bytes, std::string *text) {
    uint64_t memory = most_block_bytes * 2;
    size_t read = 0, written = 0;
    text->resize(size_t(bytes));
    const lzma_ret result = lzma_stream_buffer_decode(&memory, 0, nullptr, reinterpret_cast<const uint8_t *>(packed.data()), &read,
                                                      packed.size(), reinterpret_cast<uint8_t *>(text->data()), &written, text->size());
    return result == LZMA_OK && written == text->size();
}

// The block that was read last: a kernel has its objects in one.
struct BundleBlock {
    std::string path;
    uint64_t at;
    std::string text;
};

std::shared_ptr<const BundleBlock> &last_block() {
    static auto *const last = new std::shared_ptr<const BundleBlock>; // calls may run while the process ends
    return *last;
}

std::shared_ptr<const BundleBlock> block_of(const std::string &path, const BundleFile &file, const EntryPlace &place) {
    std::shared_ptr<const BundleBlock> last = std::atomic_load(&last_block());
    if (last && last->path == path && last->at == place.block_at) {
        return last;
    }
    std::string packed;
    auto block = std::make_shared<BundleBlock>();
    if (place.block_bytes > most_block_bytes || !file.read(place.block_at, place.block_packed, &packed) ||
        !decompressed(packed, place.block_bytes, &block->text)) {
        return nullptr;
    }
    block->path = path;
    block->at = place.block_at;
    last = block;
    std::atomic_store(&last_block(), last);
    return last;
}

std::atomic<const std::string *> of_process{nullptr}; // never freed: others may be reading it

} // namespace

void set_bundle(const std::string &path) {
    of_process.store(new std::string(path));
}

bool has_bundle() {
    return of_process.load() != nullptr;
}

std::optional<std::string> find_bundled(const std::string &key) {
    const std::string *const path = of_process.load();
    return path ? find_in_bundle(*path, key) : std::nullopt;
}

bool is_in_bundle(const std::string &key) {
    const std::string *const path = of_process.load();
    EntryPlace place{};
    return path && find_place(BundleFile(*path), entry_name(key), &place);
}

std::optional<std::string> find_in_bundle(const std::string &path, const std::string &key) {
    const BundleFile file(path);
    EntryPlace place{};
    if (!find_place(file, entry_name(key), &place)) {
        return std::nullopt;
    }
    const std::shared_ptr<const BundleBlock> block = block_of(path, file, place);
    if (!block || place.at > block->text.size() || place.bytes > block->text.size() - place.at) {
        return std::nullopt;
    }
    return entry_bytes(std::string_view(block->text).substr(size_t(place.at), size_t(place.bytes)), key);
}

std::string write_bundle(const std::string &path, const std::vector<BundledKernel> &kernels) {
    using gen::hexadecimal;
    std::map<std::string, std::string> rows; // of entries, by name
    std::vector<std::string> blocks;
    std::string blocks_table;
    for (const BundledKernel &kernel : kernels) {
        std::string block;
        for (const auto &[key, bytes] : kernel) {
            const std::string text = entry_text(key, bytes);
            rows[entry_name(key)] = hexadecimal(blocks.size()) + hexadecimal(block.size()) + hexadecimal(text.size());
            block += text;
        }
        blocks.emplace_back();
        if (!compressed(block, &blocks.back())) {
            return "the bundle cannot be compressed";
        }
        blocks_table += hexadecimal(block.size()); // its place comes before it
    }
    uint64_t at = of_head + blocks.size() * of_block_row + rows.size() * of_entry_row;
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file << first_line << hexadecimal(rows.size()) << hexadecimal(blocks.size());
    for (size_t i = 0; i < blocks.size(); ++i) {
        file << hexadecimal(at) << hexadecimal(blocks[i].size()) << blocks_table.substr(i * of_number, of_number);
        at += blocks[i].size();
    }
    for (const auto &[name, row] : rows) {
        file << name << row;
    }
    for (const std::string &block : blocks) {
        file << block;
    }
    file.close();
    return file ? "" : "cannot write '" + path + "': " + std::strerror(errno);
}

} // namespace polyhead::load
