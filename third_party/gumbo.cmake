# Gumbo: HTML parser that follows the standard's error recovery. Debian 12: libgumbo-dev 0.10. Used in docs/reader_html.cc.
find_package(PkgConfig REQUIRED)
pkg_check_modules(gumbo REQUIRED IMPORTED_TARGET gumbo>=0.10)
add_library(cento_gumbo INTERFACE)
target_link_libraries(cento_gumbo INTERFACE PkgConfig::gumbo)
