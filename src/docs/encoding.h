// The bytes of a file -> clean UTF-8 text, or the reason why they are no text.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace cento {

struct DecodedText {
  std::string text;      // as clean_text leaves it
  std::string encoding;  // "utf-8", "utf-16le", "utf-16be", "utf-32le", "utf-32be", "windows-1252"
};

// Reads UTF-8 with or without byte order mark (broken sequences become U+FFFD), UTF-16 with a mark or with the zero
// bytes that give it away, UTF-32 with a mark, and Windows-1252 (of which Latin-1's text is a part). Anything else is
// an Error(kInput) whose message says what the bytes look like: "a PNG picture", "binary data", ...
Result<DecodedText> decode_text(std::string_view bytes);

// Valid UTF-8 in, valid UTF-8 out. CRLF and CR become LF, so that lines count as an editor counts them; form feed,
// vertical tab, NEL, LS and PS become a space, no-break spaces too. Dropped: other control characters, whole terminal
// escape sequences, soft hyphens, byte order marks, bidirectional overrides, invisible tag characters, noncharacters.
std::string clean_text(std::string_view utf8);

// Cuts the long payloads of "data:...;base64," addresses out of `text`: a picture's bytes are no words.
std::string without_data_urls(std::string text);

}  // namespace cento
