// CHECK stops the program on our own mistakes, in every build. No input, however bad, may reach one.
#pragma once

namespace cento {
[[noreturn]] void check_failed(const char* condition, const char* file, int line);
}

#define CHECK(condition) ((condition) ? (void)0 : ::cento::check_failed(#condition, __FILE__, __LINE__))

#ifdef NDEBUG
#define DCHECK(condition) ((void)sizeof(!(condition)))
#else
#define DCHECK(condition) CHECK(condition)
#endif
