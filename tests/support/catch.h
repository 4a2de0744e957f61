// Includes Catch2, version 3 or 2, whichever is installed.
#ifndef POLYHEAD_TESTS_CATCH_H
#define POLYHEAD_TESTS_CATCH_H

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif

#endif
