# Catch2: the test framework (single header, version 2). Debian 12: catch2 2.13.10. Used in tests/ only.
find_package(Catch2 2.13 REQUIRED)
