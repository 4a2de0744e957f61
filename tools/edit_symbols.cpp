// polyhead-symbols, a program of the build: hide ARCHIVE, show ARCHIVE COPY (elf_symbols.h).
#include <cstdio>
#include <cstring>
#include <string>

#include "elf_symbols.h"

int main(int argc, char **argv) {
    std::string error = "expected hide ARCHIVE, or show ARCHIVE COPY";
    if (argc == 3 && std::strcmp(argv[1], "hide") == 0) {
        error = polyhead::tools::hide_symbols(argv[2]);
    } else if (argc == 4 && std::strcmp(argv[1], "show") == 0) {
        error = polyhead::tools::show_symbols(argv[2], argv[3]);
    }
    if (!error.empty()) {
        std::fprintf(stderr, "polyhead-symbols: %s\n", error.c_str());
    }
    return error.empty() ? 0 : 1;
}
