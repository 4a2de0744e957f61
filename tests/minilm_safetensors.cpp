// Hostile safetensors and .npy files: each gives one sentence, never a crash; a good file gives its tensors.
#if __has_include(<catch2/catch_test_macros.hpp>)
#include <catch2/catch_test_macros.hpp>
#else
#include <catch2/catch.hpp>
#endif

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "../examples/common/npy.h"
#include "../examples/common/safetensors.h"

namespace {

using examples::SafeTensors;

// A file that is removed at the end of the test.
class TempFile {
public:
    explicit TempFile(const std::string &content) {
        const char *folder = std::getenv("TMPDIR");
        path_ = std::string(folder ? folder : "/tmp") + "/polyhead-test-XXXXXX";
        int file = mkstemp(path_.data());
        REQUIRE(file >= 0);
        close(file);
        std::ofstream(path_, std::ios::binary) << content;
    }
    ~TempFile() { std::remove(path_.c_str()); }
    const std::string &path() const { return path_; }

private:
    std::string path_;
};

std::string with_length(uint64_t length, const std::string &rest) {
    std::string file;
    for (int i = 0; i < 8; i++)
        file += static_cast<char>(length >> (8 * i) & 255);
    return file + rest;
}

std::string stored(std::string header, size_t data_bytes) {
    while (header.size() % 8)
        header += ' ';
    return with_length(header.size(), header + std::string(data_bytes, '\1'));
}

std::string error_of(const std::string &content) {
    TempFile file(content);
    SafeTensors tensors;
    std::string error = tensors.open(file.path());
    CHECK(tensors.tensors().empty() == !error.empty());
    return error;
}

bool is_sentence(const std::string &text) {
    return text.size() > 10 && text.size() < 400 && text.back() == '.' && text.find('\n') == std::string::npos;
}

const std::string good = R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                         R"("b":{"dtype":"I64","shape":[1],"data_offsets":[24,32]}})";

} // namespace

TEST_CASE("a good safetensors file is read", "[minilm][safetensors]") {
    TempFile file(stored(good, 32));
    SafeTensors tensors;
    REQUIRE(tensors.open(file.path()) == "");
    REQUIRE(tensors.tensors().size() == 2);
    const float *data = nullptr;
    REQUIRE(tensors.f32("a", {2, 3}, &data) == "");
    REQUIRE(data != nullptr);
    CHECK(is_sentence(tensors.f32("a", {3, 2}, &data)));
    CHECK(is_sentence(tensors.f32("b", {1}, &data)));
    CHECK(is_sentence(tensors.f32("absent", {1}, &data)));
}

TEST_CASE("every truncation of a safetensors file is refused", "[minilm][safetensors]") {
    const std::string whole = stored(good, 32);
    for (size_t size = 0; size < whole.size(); size++) {
        INFO("first " << size << " bytes");
        CHECK(is_sentence(error_of(whole.substr(0, size))));
    }
    CHECK(is_sentence(error_of(whole + "x")));
}

TEST_CASE("foreign and hostile safetensors files are refused", "[minilm][safetensors]") {
    auto one = [](const std::string &entry) { return stored("{\"a\":" + entry + "}", 8); };
    const std::vector<std::string> files = {
        std::string("\x7f"
                    "ELF\2\1\1\0\0\0\0\0\0\0\0\0",
                    16),
        "PK\3\4 a zip archive of some kind",
        std::string(64, '\0'),
        std::string(64, '\xff'),
        with_length(~uint64_t(0), "{}"),
        with_length(uint64_t(1) << 63, "{}"),
        stored("[]", 0),
        stored("{", 0),
        stored("{\"a\":\xff\xfe}", 0),
        stored(std::string(200000, '['), 0),
        stored(std::string(100000, '[') + std::string(100000, ']'), 0),
        stored("{\"a\":" + std::string(100000, '{'), 0),
        one("7"),
        one("{}"),
        one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,9]})"),
        one(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})"),
        one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551615]})"),
        one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,99999999999999999999999]})"),
        one(R"({"dtype":"F32","shape":[2],"data_offsets":[-8,0]})"),
        one(R"({"dtype":"F32","shape":[2],"data_offsets":[0]})"),
        one(R"({"dtype":"F32","shape":[2],"data_offsets":"0,8"})"),
        one(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})"),
        one(R"({"dtype":"F32","shape":[2.0],"data_offsets":[0,8]})"),
        one(R"({"dtype":"F32","shape":[4611686018427387906],"data_offsets":[0,8]})"),
        one(R"({"dtype":"F32","shape":[4294967296,4294967296,2],"data_offsets":[0,8]})"),
        one(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})"),
        one(R"({"dtype":"F33","shape":[2],"data_offsets":[0,8]})"),
        one(R"({"dtype":7,"shape":[2],"data_offsets":[0,8]})"),
        one(R"({"dtype":"F32","shape":2,"data_offsets":[0,8]})"),
        stored(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", 12),
        stored(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8),
        stored("{\"" + std::string(5000, '\x01') + "\":1}", 8),
        stored("{\"" + std::string(5000, 'n') + "\\n\":1}", 8),
    };
    for (size_t i = 0; i < files.size(); i++) {
        INFO("file " << i);
        std::string error = error_of(files[i]);
        INFO(error);
        CHECK(is_sentence(error));
    }
    SafeTensors tensors;
    CHECK(is_sentence(tensors.open("/nonexistent/model.safetensors")));
    CHECK(is_sentence(tensors.open("/")));
}

TEST_CASE("random damage to a safetensors file never crashes", "[minilm][safetensors]") {
    const unsigned seed = 20240611;
    std::mt19937 random(seed);
    INFO("seed " << seed);
    for (int i = 0; i < 2000; i++) {
        std::string file = stored(good, 32);
        for (unsigned n = 1 + random() % 4; n > 0; n--)
            file[random() % (file.size() - 32)] = static_cast<char>(random());
        TempFile damaged(file);
        SafeTensors tensors;
        std::string error = tensors.open(damaged.path());
        if (error.empty()) { // the damage hit a name or a blank: what is left must still lie inside the file
            for (const auto &entry : tensors.tensors())
                CHECK(entry.second.bytes <= 32);
        } else if (!is_sentence(error)) {
            FAIL("not a sentence: " << error);
        }
    }
}

TEST_CASE("a misaligned f32 tensor is refused when it is asked for", "[minilm][safetensors]") {
    std::string header = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
    while (header.size() % 4 != 1)
        header += ' ';
    TempFile file(with_length(header.size(), header + std::string(8, '\1')));
    SafeTensors tensors;
    REQUIRE(tensors.open(file.path()) == "");
    const float *data = nullptr;
    CHECK(is_sentence(tensors.f32("a", {2}, &data)));
}

TEST_CASE(".npy files are read or refused", "[minilm][npy]") {
    auto npy = [](std::string header, size_t bytes) {
        while ((header.size() + 10) % 64)
            header += ' ';
        std::string file = std::string("\x93NUMPY\1\0", 8) + static_cast<char>(header.size() & 255) + static_cast<char>(header.size() >> 8);
        return file + header + std::string(bytes, '\0');
    };
    auto error_of_npy = [](const std::string &content) {
        TempFile file(content);
        std::vector<int64_t> shape;
        std::vector<int32_t> values;
        std::string error = examples::read_npy(file.path(), &shape, &values);
        if (error.empty())
            CHECK(values.size() == 6);
        return error;
    };
    const std::string header = "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 3), }", whole = npy(header, 24);
    CHECK(error_of_npy(whole) == "");
    for (size_t size = 0; size < whole.size(); size++)
        CHECK(is_sentence(error_of_npy(whole.substr(0, size))));
    for (const char *bad :
         {"{'descr': '<i8', 'fortran_order': False, 'shape': (2, 3), }", "{'descr': '<i4', 'fortran_order': True, 'shape': (2, 3), }",
          "{'descr': '<i4', 'fortran_order': False, 'shape': (2, -3), }", "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 3",
          "{'descr': '<i4', 'fortran_order': False, 'shape': (999999999999999999999, 3), }",
          "{'descr': '<i4', 'fortran_order': False, 'shape': (1000000000000, 1000000000000), }", "{'descr': '<i4'}", "'descr'", ""})
        CHECK(is_sentence(error_of_npy(npy(bad, 24))));
}
