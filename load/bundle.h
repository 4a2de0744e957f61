// Ready kernels in one file, as a wheel has it: entries of the disk cache, found by an index.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace polyhead::load {

// The file of this process; none until it is set.
void set_bundle(const std::string &path);
bool has_bundle();

// What the bundle has under this key, unless it is not there or damaged.
std::optional<std::string> find_bundled(const std::string &key);
// Whether it has an entry for it, which is not read.
bool is_in_bundle(const std::string &key);

// The same in a file of this path.
std::optional<std::string> find_in_bundle(const std::string &path, const std::string &key);

// Keys and bytes of the objects of a kernel.
using BundledKernel = std::vector<std::pair<std::string, std::string>>;

// A file of these kernels. Returns a sentence or nothing.
std::string write_bundle(const std::string &path, const std::vector<BundledKernel> &kernels);

} // namespace polyhead::load
