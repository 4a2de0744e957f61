// Bundles of kernels: what is found in one, and what is not found in a damaged one.
#include <cstdlib>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include "load/bundle.h"
#include "support/catch.h"

using namespace polyhead;

namespace {

std::string bytes_of(int number) {
    std::string text(size_t(3000 + number * 37 % 500), 0);
    for (size_t i = 0; i < text.size(); i++) {
        text[i] = char((i * i + size_t(number)) % 251);
    }
    return text;
}

constexpr int entries = 40, of_kernel = 4;

struct File {
    File() : path(new_path()) {
        std::vector<load::BundledKernel> kernels;
        for (int i = 0; i < entries; i++) {
            if (i % of_kernel == 0) {
                kernels.emplace_back();
            }
            kernels.back().emplace_back("key " + std::to_string(i), bytes_of(i));
        }
        REQUIRE(load::write_bundle(path, kernels).empty());
    }
    explicit File(const std::string &text) : path(new_path()) { std::ofstream(path, std::ios::binary) << text; }
    ~File() { ::unlink(path.c_str()); }
    std::string text() const {
        std::stringstream stream;
        stream << std::ifstream(path, std::ios::binary).rdbuf();
        return stream.str();
    }
    static std::string new_path() {
        static int number = 0; // the block that was read last is remembered by its place
        return "/tmp/polyhead_bundle_" + std::to_string(getpid()) + "_" + std::to_string(number++);
    }
    std::optional<std::string> find(int number) const { return load::find_in_bundle(path, "key " + std::to_string(number)); }
    std::string path;
};

} // namespace

TEST_CASE("bundle: each entry is found by its key, in any order, and no other") {
    const File file;
    for (int i = entries - 1; i >= -3; i -= 2) {
        CHECK(file.find(i) == (i < 0 ? std::nullopt : std::optional(bytes_of(i))));
    }
    for (int i = 0; i < entries; i++) {
        CHECK(file.find(i) == bytes_of(i));
    }
    CHECK(!file.find(entries));
    CHECK(file.text().size() < size_t(entries) * 1500); // compressed
    CHECK(!load::find_in_bundle("/dev/null/nowhere", "key 0"));
    CHECK(load::write_bundle("/dev/null/nowhere/bundle", {}).find("cannot write '/dev/null/nowhere/bundle': ") == 0);
    REQUIRE(load::write_bundle(file.path, {}).empty());
    CHECK(!file.find(0));
}

TEST_CASE("bundle: a damaged file gives what it holds or nothing") {
    const File file;
    const std::string whole = file.text();
    std::mt19937 random(3);
    int found = 0;
    for (int i = 0; i < 400; i++) {
        std::string text = whole;
        if (i % 4 == 0) {
            text.resize(random() % text.size());
        } else {
            text[random() % (i % 4 == 1 ? 200 : text.size())] = char(random());
        }
        const File damaged(text);
        const int number = int(random() % entries);
        const std::optional<std::string> bytes = damaged.find(number);
        if (bytes) {
            REQUIRE(*bytes == bytes_of(number));
            found++;
        }
    }
    CHECK(found > 0);
    CHECK(found < 400);
}
