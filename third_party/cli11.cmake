# CLI11: flags and the configuration file. Debian 12: libcli11-dev 2.1.2. Header stops in app/.
find_package(CLI11 2.1 REQUIRED)
add_library(cento_cli11 INTERFACE)
target_link_libraries(cento_cli11 INTERFACE CLI11::CLI11)
