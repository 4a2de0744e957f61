// Notes of what a test ran and could not run.
#include "not_run.h"

#include <cstdio>
#include <cstdlib>
#include <set>

namespace polyhead::test {

namespace {

bool something_ran = false;

void say_if_nothing_ran() {
    if (!something_ran) {
        std::printf("NOT RUN: the whole test: nothing of it runs on this machine\n");
    }
}

} // namespace

void note_run() {
    something_ran = true;
}

void note_not_run(const std::string &what, const std::string &why) {
    static std::set<std::string> *const noted = [] {
        std::atexit(say_if_nothing_ran);
        return new std::set<std::string>;
    }();
    if (noted->insert(what).second) {
        std::printf("NOT RUN: %s: %s\n", what.c_str(), why.c_str());
    }
}

} // namespace polyhead::test
