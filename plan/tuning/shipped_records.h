// The files of plan/tuning/records/ inside the program, so that an installed generator needs none of them.
#pragma once

#include <string>
#include <vector>

namespace polyhead::gen {

struct ShippedRecordsFile {
    std::string name, json;
};
// Written by cmake/polyhead_generators.cmake.
const std::vector<ShippedRecordsFile> &shipped_records_files();

} // namespace polyhead::gen
