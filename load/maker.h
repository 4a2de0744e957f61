// The object of one variant: from the disk, or compiled now.
#pragma once

#include <string>
#include <utility>

#include "../plan/variant_facts.h"
#include "../tools/compile_job.h"
#include "../tools/limits.h"
#include "failure.h"

namespace polyhead::load {

struct Made {
    gen::VariantFacts facts;
    std::string object; // its bytes; what it calls, the runtime of this process has
};

// From the bundle or the disk cache; takes the time of a compilation where no process compiled it before. The job's object_path is not
// read.
Failure make_object(tools::CompileJob job, const tools::Limits &limits, Made *made);
// Whether the bundle has the object of this job.
bool is_bundled(const tools::CompileJob &job);
// What a bundle has of it: key and bytes. The object without what nobody needs of it.
Failure make_entry(const tools::CompileJob &job, const tools::Limits &limits, std::pair<std::string, std::string> *entry);
// A listing of it, "stmt" or "assembly"; always compiled.
Failure make_listing(tools::CompileJob job, const std::string &kind, const tools::Limits &limits, std::string *text);

} // namespace polyhead::load
