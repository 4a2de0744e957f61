// The CPU kernels of kernels/table.txt, each compiled, or taken from the cache on the disk, when it is first asked for.
#ifndef BENCH_TABLE_H
#define BENCH_TABLE_H

#include <string>
#include <vector>

#include <polyhead/polyhead.h>

namespace bench {

// Names, in the order of the file.
const std::vector<std::string> &table_names();
// Of a name of the table.
const polyhead::Problem &table_problem(const std::string &name);
// The kernel of a name, which lives as long as the process. Null with one sentence: no such name, or no code for this machine.
const polyhead::Kernel *kernel_named(const std::string &name, std::string *error);
// The same of a problem.
const polyhead::Kernel *kernel_of(const polyhead::Problem &problem, std::string *error);

} // namespace bench
#endif
