// What Halide does in another process: the request and the answer. That process works in the folder of the files that it makes, so that
// neither Halide nor LLVM, which take '%' and bytes beyond UTF-8 for their own, sees the name of a user's folder.
#pragma once

#include <string>
#include <vector>

#include "../plan/plan.h"
#include "../plan/variant_facts.h"

namespace polyhead::tools {

// C++ behind an expression: its file, its text, and the shared object made of it. All empty: there is none.
struct ExpressionSource {
    std::string file, text, library;
};

struct CompileJob {
    polyhead_problem problem{}; // complete
    gen::VariantPlan plan;
    std::string symbol, object_path;
    std::vector<std::string> listings;
    ExpressionSource source;
    bool compares = false; // what only serves comparisons is not refused
};

// A file of Halide's: the archive of these objects, or without objects the runtime of the target.
struct FileJob {
    std::string path, target;
    std::vector<std::string> objects; // of the same folder
};

std::string job_text(const CompileJob &job);
// Everything of a job that decides the bytes of the object.
std::string job_key(const CompileJob &job);
std::string job_text(const FileJob &job);
// What functions does this source define, and what do they read?
std::string job_text(const ExpressionSource &source);
// The sentence of an answer; empty when the file was made.
std::string read_answer(const std::string &answer);
// What the other process answered; a sentence in *error when it refused, or when this is no answer.
gen::CompiledVariant read_answer(const CompileJob &job, const std::string &answer, std::string *error);
// Of a source: texts of this process may name it then, and *text does. Returns a sentence or nothing.
std::string read_source_answer(const std::string &answer, std::string *text);

} // namespace polyhead::tools
