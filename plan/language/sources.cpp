// User expressions written in C++: the names that texts may use.
#include "sources.h"

#include <map>
#include <mutex>

namespace polyhead::gen {
namespace {

struct KnownSources {
    std::mutex mutex;
    std::map<std::string, KnownSource> by_name;

    static KnownSources &all() {
        static auto *const known = new KnownSources; // never destroyed: threads may read texts while the program ends
        return *known;
    }
};

} // namespace

void know_source(const std::string &name, const KnownSource &source) {
    KnownSources &known = KnownSources::all();
    const std::lock_guard<std::mutex> lock(known.mutex);
    known.by_name[name] = source;
}

namespace language {
namespace {

NodePtr source_node(Type type, const std::shared_ptr<const SourceFunction> &function) {
    auto node = std::make_shared<Node>(Node{Op::source, type, {}});
    node->source = function;
    return node;
}

} // namespace

bool add_source(const std::string &name, Program *program) {
    KnownSources &known = KnownSources::all();
    const std::lock_guard<std::mutex> lock(known.mutex);
    const auto found = known.by_name.find(name);
    if (found == known.by_name.end()) {
        return false;
    }
    if (found->second.score) {
        program->score = source_node(Type::real, found->second.score);
    }
    if (found->second.mask) {
        program->mask = source_node(Type::boolean, found->second.mask);
    }
    return true;
}

} // namespace language
} // namespace polyhead::gen
