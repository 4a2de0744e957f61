// User expressions: where a score reads tensors whose gradient is wanted, and how the gradient of each can be added up.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "../problem.h"
#include "program.h"

namespace polyhead::gen::language {

// What the element that a read takes depends on, beside batch row and head. A gradient is a sum over the pairs of a head that read an
// element: where elements follow one coordinate, first over all pairs of a key, of a query or of a diagonal.
enum class Follows {
    nothing,
    keys,
    queries,
    diagonals, // kv - q: the same element for the next key of the next query
    pairs,
};

struct TableRead {
    const Node *node; // an element
    size_t tensor;
    Follows follows;
    // Of pairs: what the number of elements of each dimension is, outermost first; 1 where batch row and head decide.
    int extents[4];
    int elements() const;
};

// Of the score, each node once, in the order of the text; the problem fixes extents.
std::vector<TableRead> table_reads(const Program &program, const Problem &problem);
// One sentence where a gradient that the text asks for cannot be made, or "".
std::string table_refusal(const Program &program, const Problem &problem);

} // namespace polyhead::gen::language
