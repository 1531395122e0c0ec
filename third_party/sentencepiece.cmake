# sentencepiece: SentencePiece models built from GGUF vocabularies. Debian 12: libsentencepiece-dev 0.1.97. Header stops in model/tokenizer_spm.cc.
find_package(PkgConfig REQUIRED)
pkg_check_modules(sentencepiece REQUIRED IMPORTED_TARGET sentencepiece>=0.1.97)
add_library(cento_sentencepiece INTERFACE)
target_link_libraries(cento_sentencepiece INTERFACE PkgConfig::sentencepiece)
