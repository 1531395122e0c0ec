# PCRE2: pre-tokeniser patterns with Unicode classes and look-ahead. Debian 12: libpcre2-dev 10.42.
find_package(PkgConfig REQUIRED)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8>=10.42)
add_library(cento_pcre2 INTERFACE)
target_link_libraries(cento_pcre2 INTERFACE PkgConfig::pcre2)
