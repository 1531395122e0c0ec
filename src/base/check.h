// CHECK stops the program on our own mistakes, in every build. No input, however bad, may reach one.
#pragma once

namespace cento {
[[noreturn]] void check_failed(const char* condition, const char* file, int line);
}

// For headers: Catch2 has a macro CHECK of its own, which a test's translation unit means.
#define CENTO_CHECK(condition) ((condition) ? (void)0 : ::cento::check_failed(#condition, __FILE__, __LINE__))

#ifndef CATCH_VERSION_MAJOR
#define CHECK(condition) CENTO_CHECK(condition)
#endif

#ifdef NDEBUG
#define DCHECK(condition) ((void)sizeof(!(condition)))
#else
#define DCHECK(condition) CENTO_CHECK(condition)
#endif
