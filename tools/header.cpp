// Writes NAME.h: the constant table of variants, valid in C and in C++. The tables are local to each file that includes it: one table of a
// name for the whole process would be the first one that is loaded, also for another kernel of that name in another library.
#include <cinttypes>

#include "../contract/problem_fields.h"
#include "../plan/text.h"
#include "library.h"

namespace polyhead::tools {
namespace {

std::string quoted(const std::string &text) {
    return '"' + text + '"'; // names, targets, tilings, expressions on one line: nothing that C would read otherwise
}

std::string entry_of(const LibraryVariant &variant) {
    return variant.compiled.symbol + "_argv";
}

std::string term_text(const polyhead_scratch_term &term) {
    gen::TextWriter text;
    text << "{INT64_C(" << term.bytes << "), " << term.row_block << ", " << term.key_block << ", " << term.in_window << ", "
         << term.query_bytes << "}";
    return text.str();
}

std::string scratch_text(const polyhead_scratch &scratch) {
    gen::TextWriter text;
    text << "{INT64_C(" << scratch.per_thread << "), " << term_text(scratch.thread_keys) << ", {";
    const char *separator = "";
    for (const polyhead_scratch_term &term : scratch.terms) {
        if (term.bytes > 0) {
            text << separator << term_text(term);
            separator = ", ";
        }
    }
    text << (*separator ? "" : term_text({})) << "}}";
    return text.str();
}

// The initialiser of one polyhead_variant, field by field in the order of c_api.h.
std::string variant_text(const LibraryVariant &v, uint32_t weight_layout) {
    gen::TextWriter text;
    text << "{" << quoted(v.name) << ", " << quoted(v.plan.target) << ",\n     " << quoted(v.plan.text()) << ",\n     " << entry_of(v)
         << ", ";
    contract::for_each_first_requirement(v.compiled, [&](const char *, auto value) {
        text << (sizeof value > sizeof(int32_t) ? "UINT64_C(" : "") << value << (sizeof value > sizeof(int32_t) ? "), " : ", ");
    });
    text << v.plan.min_seq_len_q << ", " << v.plan.max_seq_len_q << ", " << scratch_text(v.compiled.scratch) << ", " << weight_layout
         << "u, " << POLYHEAD_ABI_VERSION << "u, " << v.plan.min_group_size << ", " << v.plan.max_group_size;
    contract::for_each_later_requirement(v.compiled, [&](const char *, auto value) { text << ", " << value; });
    text << "}";
    return text.str();
}

// The initialiser of polyhead_problem, in the order of c_problem.h.
std::string problem_text(const polyhead_problem &p, const char *null) {
    std::string text = "{sizeof(polyhead_problem), "; // of the machine that compiles the header
    const std::string expression = contract::one_line(p.expression), words = expression.empty() ? null : quoted(expression);
    bool behind = false; // the expression
    for (const contract::ProblemField *field : contract::fields_by_offset()) {
        if (!behind && contract::offset_of(*field) > ptrdiff_t(offsetof(polyhead_problem, expression))) {
            text += words + ", ";
            behind = true;
        }
        text += std::to_string(p.*field->value) + ", ";
    }
    return behind ? text.substr(0, text.size() - 2) + "}" : text + words + "}";
}

std::string declarations_text(const Library &library, const char *storage, const char *null) {
    std::string text = std::string(storage) + " polyhead_declaration " + library.name + "_declarations[] = {\n";
    for (const gen::ExpressionTensor &tensor : library.expression.tensors()) {
        text += "    {" + quoted(tensor.name) + ", " + std::to_string(tensor.dtype) + ", " + std::to_string(tensor.rank);
        const char *separator = ", {";
        for (const int extent : tensor.extents) {
            text += separator + std::to_string(extent);
            separator = ", ";
        }
        const bool has_gradient = tensor.gradient && contract::is_backward(library.problem);
        text += "}, " + (has_gradient ? quoted(tensor.gradient_name()) : null) + "},\n";
    }
    return text + "};\n";
}

std::string tables_text(const Library &library, const char *storage, const char *null) {
    std::string text = std::string(storage) + " polyhead_variant " + library.name + "_variants[] = {\n";
    for (const LibraryVariant &variant : library.variants) {
        text += "    " + variant_text(variant, contract::weight_layout_id(library.problem)) + ",\n";
    }
    return text + "};\n" + (library.expression.tensors().empty() ? "" : declarations_text(library, storage, null));
}

std::string kernel_text(const Library &library, const char *null) {
    const size_t declarations = library.expression.tensors().size();
    return "{POLYHEAD_SIZES, " + problem_text(library.problem, null) + ", " + quoted(library.name) + ", " + library.name + "_variants, " +
           (declarations > 0 ? library.name + "_declarations" : null) + ", " + std::to_string(library.variants.size()) + ", " +
           std::to_string(declarations) + ", " + std::to_string(library.expression.facts()) + ", 0}";
}

} // namespace

std::string header_text(const Library &library) {
    const std::string guard = "POLYHEAD_KERNEL_" + library.name + "_H";
    gen::TextWriter text;
    text << "/* The kernel " << library.name << ", generated by polyhead " << POLYHEAD_VERSION << ":\n   polyhead generate " << library.name
         << " " << contract::flags_of(library.problem) << " */\n"
         << "#ifndef " << guard << "\n#define " << guard << "\n\n#include <polyhead/c_api.h>\n\n"
         << "#if POLYHEAD_ABI_VERSION < " << POLYHEAD_ABI_VERSION << " || POLYHEAD_ABI_LOWEST > " << POLYHEAD_ABI_VERSION << "\n#error \""
         << library.name << " was generated for polyhead ABI " << POLYHEAD_ABI_VERSION
         << "; generate it again\"\n#endif\n\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n";
    for (const LibraryVariant &variant : library.variants) {
        text << "int " << entry_of(variant) << "(void **argv);\n";
    }
    text << "#ifdef __cplusplus\n}\n\n#include <polyhead/polyhead.h>\n\n"
         << tables_text(library, "constexpr", "nullptr") << "constexpr polyhead::Kernel " << library.name << "{polyhead_kernel"
         << kernel_text(library, "nullptr") << "};\n\n#else\n\n"
         << tables_text(library, "static const", "NULL") << "static const polyhead_kernel " << library.name << " = "
         << kernel_text(library, "NULL") << ";\n\n#endif\n#endif\n";
    return text.str();
}

} // namespace polyhead::tools
