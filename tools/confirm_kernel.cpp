// Runs one kernel that was made ahead of time on arrays from files: what ./polyhead tune confirms its winners with. Compiled with
// KERNEL_HEADER and KERNEL defined; prints the shortest and the median milliseconds of a call and writes out.bin.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "contract/dtypes.h"
#include "contract/tensors.h"
#include KERNEL_HEADER

namespace {

using Bytes = std::vector<char>;

Bytes read_file(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    return Bytes(std::istreambuf_iterator<char>(file), {});
}

polyhead_tensor tensor_of(std::istringstream &line, Bytes *bytes, const std::string &folder) {
    polyhead_tensor t{};
    std::string file;
    line >> t.dtype >> t.rank;
    for (int i = 0; i < t.rank; i++) {
        line >> t.shape[i];
    }
    line >> file;
    for (int i = t.rank - 1; i >= 0; i--) {
        t.stride[i] = i == t.rank - 1 ? 1 : t.stride[i + 1] * t.shape[i + 1];
    }
    *bytes = read_file(folder + "/" + file);
    t.data = bytes->data();
    return t;
}

// Where a tensor of this name goes; null when it is a weight.
polyhead_tensor *place_of(const std::string &name, polyhead_args *args) {
    for (const polyhead::contract::TensorRow &row : polyhead::contract::tensors) {
        if (name == row.name || name == polyhead::contract::said_of(row)) {
            return &(args->*row.tensor);
        }
    }
    return nullptr;
}

polyhead_tensor *weight_of(const std::string &name, polyhead_weight_tensors *weights) {
    const std::map<std::string, polyhead_tensor polyhead_weight_tensors::*> all = {
        {"query", &polyhead_weight_tensors::query},       {"key", &polyhead_weight_tensors::key},
        {"value", &polyhead_weight_tensors::value},       {"query_bias", &polyhead_weight_tensors::query_bias},
        {"key_bias", &polyhead_weight_tensors::key_bias}, {"value_bias", &polyhead_weight_tensors::value_bias},
        {"out_proj", &polyhead_weight_tensors::out_proj}, {"out_bias", &polyhead_weight_tensors::out_bias}};
    const auto found = all.find(name);
    return found == all.end() ? nullptr : &(weights->*(found->second));
}

// "tensor NAME dtype rank extents file", "weight ...", "softcap 30", "window 256 0": one per line of call.txt.
bool read_call(const std::string &folder, polyhead_args *args, polyhead_weight_tensors *weights, std::map<std::string, Bytes> *memory) {
    std::ifstream file(folder + "/call.txt");
    for (std::string text; std::getline(file, text);) {
        std::istringstream line(text);
        std::string kind, name;
        line >> kind;
        const auto *const number = std::find_if(std::begin(polyhead::contract::numbers), std::end(polyhead::contract::numbers),
                                                [&](const polyhead::contract::NumberRow &row) { return row.given && kind == row.name; });
        if (number != std::end(polyhead::contract::numbers)) {
            line >> args->*number->given;
        } else if (kind == "window") {
            args->has_window = 1;
            line >> args->window_left >> args->window_right;
        } else {
            line >> name;
            polyhead_tensor *const place = kind == "weight" ? weight_of(name, weights) : place_of(name, args);
            if (!place) {
                std::fprintf(stderr, "call.txt: unknown tensor '%s'\n", name.c_str());
                return false;
            }
            *place = tensor_of(line, &(*memory)[text], folder);
        }
    }
    return true;
}

// The same call on copies of its keys and values, so that those of the next call are in no cache (decoding).
std::vector<polyhead_args> copies_of(const polyhead_args &args, int count, const std::map<std::string, Bytes> &memory,
                                     std::vector<Bytes> *copies) {
    std::vector<polyhead_args> calls(size_t(std::max(count, 1)), args);
    for (size_t i = 1; i < calls.size(); i++) {
        for (const auto member : {&polyhead_args::key, &polyhead_args::value}) {
            for (const auto &[line, bytes] : memory) {
                if (bytes.data() == (args.*member).data) {
                    copies->push_back(bytes);
                    (calls[i].*member).data = copies->back().data();
                }
            }
        }
    }
    return calls;
}

int failed(const polyhead_status &status) {
    std::fprintf(stderr, "%s\n", status.message);
    return 1;
}

} // namespace

int main(int argc, char **argv) {
    const std::string folder = argc > 1 ? argv[1] : ".";
    const double seconds = argc > 2 ? std::atof(argv[2]) : 0.1;
    polyhead_set_num_threads(argc > 3 ? std::atoi(argv[3]) : 1);
    const polyhead_kernel &kernel = KERNEL;
    polyhead_args args = polyhead_args_of(kernel.problem.op);
    polyhead_weight_tensors tensors = polyhead_weight_tensors_of();
    polyhead_weights weights{};
    std::map<std::string, Bytes> memory;
    if (!read_call(folder, &args, &tensors, &memory)) {
        return 1;
    }
    const size_t bytes = polyhead_weights_bytes(&kernel);
    void *const packed = bytes > 0 ? std::aligned_alloc(512, (bytes + 511) / 512 * 512) : nullptr;
    if (bytes > 0) {
        const polyhead_status status = polyhead_pack(&kernel, &tensors, packed, &weights);
        if (status.code != POLYHEAD_OK) {
            return failed(status);
        }
        args.weights = &weights;
    }
    std::vector<Bytes> copies;
    const std::vector<polyhead_args> calls = copies_of(args, argc > 4 ? std::atoi(argv[4]) : 1, memory, &copies);
    using Clock = std::chrono::steady_clock;
    std::vector<double> taken;
    const auto start = Clock::now();
    do {
        const auto before = Clock::now();
        const polyhead_status status = polyhead_run(&kernel, &calls[taken.size() % calls.size()]);
        taken.push_back(std::chrono::duration<double, std::milli>(Clock::now() - before).count());
        if (status.code != POLYHEAD_OK) {
            return failed(status);
        }
    } while (taken.size() < 3 || std::chrono::duration<double>(Clock::now() - start).count() < seconds);
    int64_t size = polyhead::contract::dtype_bytes(args.out.dtype);
    for (int i = 0; i < args.out.rank; i++) {
        size *= args.out.shape[i];
    }
    std::ofstream(folder + "/out.bin", std::ios::binary).write(static_cast<const char *>(args.out.data), size);
    std::sort(taken.begin(), taken.end());
    std::printf("%.6f %.6f\n", taken.front(), taken[taken.size() / 2]);
    std::free(packed);
    return 0;
}
