# nlohmann-json: JSON of the command line, the catalogue's settings and HTTP. Debian 12: nlohmann-json3-dev 3.11.
find_package(nlohmann_json 3.11 REQUIRED)
add_library(cento_nlohmann_json INTERFACE)
target_link_libraries(cento_nlohmann_json INTERFACE nlohmann_json::nlohmann_json)
