// A schedule by one of Halide's own autoschedulers.
#include "autoschedule.h"

#include <algorithm>

#include <dlfcn.h>

#include "../plan/text.h"

namespace polyhead::gen {

namespace {

// The plugins lie beside libHalide, wherever that is.
std::string plugin_path(std::string name) {
    std::transform(name.begin(), name.end(), name.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
    Dl_info halide{};
    const bool known = dladdr(reinterpret_cast<void *>(&Halide::load_plugin), &halide) != 0 && halide.dli_fname != nullptr;
    const std::string library = known ? halide.dli_fname : "";
    return library.substr(0, library.rfind('/') + 1) + "libautoschedule_" + name + ".so";
}

} // namespace

void autoschedule(Halide::Pipeline pipeline, const Halide::Target &target, const std::string &words) {
    TextReader text(words);
    Halide::AutoschedulerParams params;
    text >> params.name;
    std::string word;
    while (text >> word) {
        const size_t equals = std::min(word.find('='), word.size());
        params.extra[word.substr(0, equals)] = word.substr(std::min(equals + 1, word.size()));
    }
    Halide::load_plugin(plugin_path(params.name));
    pipeline.apply_autoscheduler(target, params);
}

} // namespace polyhead::gen
