// Objects are compiled by a process of their own, and kept on the disk under everything that decides them.
#include "maker.h"

#include <chrono>
#include <cstdio>
#include <vector>

#include "../contract/problem_fields.h"
#include "../contract/verbose.h"
#include "../plan/text.h"
#include "../plan/tuning/tuned_records.h"
#include "../tools/compile_process.h"
#include "../tools/elf_symbols.h"
#include "../tools/job_json.h"
#include "build_id.h"
#include "bundle.h"
#include "disk_cache.h"
#include "loaded_code.h"
#include "temporary_folder.h"

namespace polyhead::load {
namespace {

using tools::Json;

// The job, the compiler that does it, and what it is linked to. Empty where the compiler is not known: then nothing is kept.
std::string key_of(const tools::CompileJob &job) {
    const std::string compiler = compiler_id(tools::compiler_program());
    return compiler.empty() ? "" : compiler + "\n" + tools::job_key(job);
}

// The same for a bundle, which is made and read by one version.
std::string bundle_key_of(const tools::CompileJob &job) {
    return std::string("polyhead ") + polyhead_version() + ", Halide " + gen::halide_version() + "\n" + tools::job_key(job);
}

std::string entry_of(const Made &made) {
    return tools::text_of(
        {{"facts", tools::facts_json(made.facts)}, {"object", Json::binary(std::vector<uint8_t>(made.object.begin(), made.object.end()))}});
}

bool read_entry(const std::string &entry, Made *made) {
    const Json j = tools::json_of(entry);
    try {
        tools::read_facts(j.at("facts"), &made->facts);
        const auto &bytes = j.at("object").get_binary();
        made->object.assign(bytes.begin(), bytes.end());
        return true;
    } catch (const Json::exception &) {
        return false;
    }
}

Failure compile(tools::CompileJob job, const tools::Limits &limits, Made *made) {
    const TemporaryFolder folder;
    if (!folder.error().empty()) {
        return internal(folder.error());
    }
    std::string error;
    job.object_path = folder.path() + "/kernel.o";
    made->facts = tools::compile_apart(job, limits, &error);
    if (!error.empty() && lacks_halide(tools::compiler_program())) {
        error = "this kernel was not compiled yet, and its compiler needs Halide 21: pip install 'polyhead[generate]'";
    }
    error = error.empty() ? tools::claim_symbols(job.object_path, false) : error; // the process looks for the entry by its name
    if (error.empty() && !gen::read_file(job.object_path, &made->object)) {
        error = "the object of the compiler cannot be read";
    }
    return internal(error);
}

// A line about an object, where the user wants to know (contract/verbose.h).
class Told {
public:
    explicit Told(const tools::CompileJob &job) : job_(job) {}
    Failure say(const std::string &what) const {
        if (contract::is_verbose) {
            const auto time = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin_).count();
            std::fprintf(stderr, "polyhead: %s: %s for %s, frame %s (%s), %lld ms\n", what.c_str(), job_.symbol.c_str(),
                         job_.plan.target.c_str(), job_.plan.frame->name(), contract::flags_of(job_.problem).c_str(),
                         static_cast<long long>(time));
        }
        return {};
    }

private:
    const tools::CompileJob &job_;
    const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

} // namespace

Failure make_object(tools::CompileJob job, const tools::Limits &limits, Made *made) {
    const Told told(job);
    if (has_bundle()) {
        const std::optional<std::string> entry = find_bundled(bundle_key_of(job));
        if (entry && read_entry(*entry, made)) {
            return told.say("ready in the bundle");
        }
    }
    const std::optional<std::string> folder = cache_folder();
    const std::string key = folder ? key_of(job) : "";
    if (folder && !key.empty()) {
        const std::optional<std::string> entry = find_cached(*folder, key);
        if (entry && read_entry(*entry, made)) {
            return told.say("found on the disk");
        }
    }
    const Failure failure = compile(job, limits, made);
    told.say(failure ? failure.sentence : "compiled");
    if (!failure && folder && !key.empty()) {
        store_cached(*folder, key, entry_of(*made));
    }
    return failure;
}

bool is_bundled(const tools::CompileJob &job) {
    return has_bundle() && is_in_bundle(bundle_key_of(job));
}

Failure make_entry(const tools::CompileJob &job, const tools::Limits &limits, std::pair<std::string, std::string> *entry) {
    Made made;
    const TemporaryFolder folder;
    if (Failure failure = folder.error().empty() ? make_object(job, limits, &made) : internal(folder.error())) {
        return failure;
    }
    std::string error = shrink_object(folder.path(), job.symbol + "_argv", &made.object);
    *entry = {bundle_key_of(job), entry_of(made)};
    return internal(error);
}

Failure make_listing(tools::CompileJob job, const std::string &kind, const tools::Limits &limits, std::string *text) {
    const TemporaryFolder folder;
    if (!folder.error().empty()) {
        return internal(folder.error());
    }
    std::string error;
    const std::string stem = folder.path() + "/kernel";
    job.object_path = stem + ".o";
    job.listings = {kind};
    tools::compile_apart(job, limits, &error);
    if (error.empty() && !gen::read_file(stem + (kind == "stmt" ? ".stmt" : ".s"), text)) {
        error = "the listing of " + job.symbol + " cannot be read";
    }
    return internal(error);
}

} // namespace polyhead::load
