#include "kv/remote_url.h"

#include <charconv>
#include <optional>

#include "base/error.h"
#include "base/text.h"

namespace cento {
namespace {

constexpr int64_t kTimeoutMsMax = 600'000;
constexpr int64_t kTtlMsMin = 1'000, kTtlMsMax = int64_t{10} * 366 * 24 * 3'600'000;
constexpr size_t kNamespaceMax = 64;
constexpr uint32_t kDbMax = 65'535;
constexpr const char* kForms =
    "redis://HOST[:PORT][/DB], rediss://HOST (TLS), redis+unix:///PATH, file:///PATH or a path";

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  RemoteUrl run() {
    if (text_.empty()) fail("no address");
    if (!is_valid_utf8(text_) || text_.find('\0') != std::string_view::npos) fail("not text");
    out_.shown = without_password(text_);
    const size_t scheme_end = text_.find("://");
    if (scheme_end == std::string_view::npos) {
      out_.kind = RemoteUrl::Kind::kFolder;
      out_.folder = text_;
      return std::move(out_);
    }
    const std::string scheme = to_lower_ascii(text_.substr(0, scheme_end));
    std::string_view rest = text_.substr(scheme_end + 3);
    if (rest.find('#') != std::string_view::npos) fail("'#' has no meaning here; write it as %23");
    const size_t question = rest.find('?');
    if (question != std::string_view::npos) parameters_ = rest.substr(question + 1);
    rest = rest.substr(0, question);
    if (scheme == "file") {
      folder(rest);
    } else if (scheme == "redis+unix") {
      unix_socket(rest);
    } else if (scheme == "redis" || scheme == "rediss") {
      out_.tls = scheme == "rediss";
      server(rest);
    } else {
      fail("unknown kind \"" + printable(scheme) + "\"");
    }
    each_parameter();
    if (out_.tls_files.cert.empty() != out_.tls_files.key.empty()) fail("cert and key go together");
    return std::move(out_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error{Code::kUsage, "remote tier: " + what, without_password(text_), kForms};
  }

  std::string decoded(std::string_view s) const {
    const auto digit = [](char c) {
      return c >= '0' && c <= '9'   ? c - '0'
             : c >= 'a' && c <= 'f' ? c - 'a' + 10
             : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                    : -1;
    };
    std::string out;
    for (size_t i = 0; i < s.size(); ++i) {
      if (s[i] != '%') {
        out += s[i];
        continue;
      }
      const int high = i + 2 < s.size() ? digit(s[i + 1]) : -1;
      const int low = i + 2 < s.size() ? digit(s[i + 2]) : -1;
      if (high < 0 || low < 0 || high + low == 0) fail("'%' without two digits behind it; a '%' itself is %25");
      out += static_cast<char>(16 * high + low);
      i += 2;
    }
    return out;
  }

  template <class T>
  std::optional<T> number(std::string_view s, T min, T max) const {
    T value{};
    const auto end = s.data() + s.size();
    const auto parsed = std::from_chars(s.data(), end, value);
    if (parsed.ec != std::errc{} || parsed.ptr != end || value < min || value > max) return std::nullopt;
    return value;
  }

  // Takes "USER:PASSWORD@" off the front. A password may hold anything, "@" too, if there is a later one.
  void credentials(std::string_view& authority) {
    const size_t at = authority.rfind('@');
    if (at == std::string_view::npos) return;
    const std::string_view both = authority.substr(0, at);
    authority.remove_prefix(at + 1);
    const size_t colon = both.find(':');
    if (colon == std::string_view::npos) fail("a user without a password; USER:PASSWORD@, or :PASSWORD@");
    out_.user = decoded(both.substr(0, colon));
    out_.password = decoded(both.substr(colon + 1));
    if (out_.password.empty() && !out_.user.empty()) return;  // it comes from elsewhere
    if (out_.password.empty()) fail("an empty password");
  }

  void server(std::string_view rest) {
    const size_t slash = rest.find('/');
    std::string_view authority = rest.substr(0, slash);
    credentials(authority);
    std::string_view port;
    if (authority.starts_with('[')) {
      const size_t close = authority.find(']');
      if (close == std::string_view::npos) fail("']' is missing");
      out_.address.host = authority.substr(1, close - 1);
      port = authority.substr(close + 1);
      if (!port.empty() && port[0] != ':') fail("only :PORT may follow ']'");
    } else {
      const size_t colon = authority.find(':');
      if (colon != authority.rfind(':')) fail("an IPv6 address is written in [ ]");
      out_.address.host = decoded(authority.substr(0, colon));
      if (colon != std::string_view::npos) port = authority.substr(colon);
    }
    if (out_.address.host.empty()) fail("no host");
    for (const char c : out_.address.host) {
      if (static_cast<unsigned char>(c) <= ' ' || c == '\x7f' || c == '/') fail("not the name of a host");
    }
    out_.address.port = 6379;
    if (!port.empty()) {
      const auto value = number<uint16_t>(port.substr(1), 1, 65'535);
      if (!value) fail("not a port: 1 to 65535");
      out_.address.port = *value;
    }
    if (slash == std::string_view::npos || slash + 1 == rest.size()) return;
    database(rest.substr(slash + 1));
  }

  void database(std::string_view text) {
    const auto value = number<uint32_t>(text, 0, kDbMax);
    if (!value) fail("not the number of a database: \"" + printable(text) + "\"");
    out_.db = *value;
  }

  void unix_socket(std::string_view rest) {
    const size_t slash = rest.find('/');
    std::string_view authority = rest.substr(0, slash);
    // Of "user:pa/ss@/path" the password would end up in the path.
    credentials(authority);
    if (!authority.empty() || slash == std::string_view::npos) fail("a socket's path begins with '/'");
    out_.address.unix_path = decoded(rest.substr(slash));
    if (out_.address.unix_path.size() < 2) fail("no socket");
  }

  void folder(std::string_view rest) {
    out_.kind = RemoteUrl::Kind::kFolder;
    const size_t slash = rest.find('/');
    const std::string_view host = rest.substr(0, slash);
    if (slash == std::string_view::npos || (!host.empty() && host != "localhost"))
      fail("a folder is file:///PATH; mount what is elsewhere");
    out_.folder = decoded(rest.substr(slash));
  }

  void each_parameter() {
    std::string_view rest = parameters_;
    while (!rest.empty()) {
      const size_t end = std::min(rest.find('&'), rest.size());
      const std::string_view item = rest.substr(0, end);
      rest.remove_prefix(std::min(end + 1, rest.size()));
      if (item.empty()) continue;
      const size_t eq = item.find('=');
      if (eq == std::string_view::npos) fail("a parameter is NAME=VALUE");
      parameter(item.substr(0, eq), decoded(item.substr(eq + 1)));
    }
  }

  int64_t duration(std::string_view name, const std::string& value, int64_t min, int64_t max) const {
    const auto ms = parse_duration_ms(value);
    if (!ms || *ms < min || *ms > max) fail(std::string(name) + " is not a time it can be, as in 500ms, 2s, 7d");
    return *ms;
  }

  void parameter(std::string_view name, const std::string& value) {
    if (value.empty()) fail(printable(name) + " has no value");
    if (name == "ttl") {
      out_.ttl_ms = value == "0" ? 0 : duration(name, value, kTtlMsMin, kTtlMsMax);
      return;
    }
    const bool redis = out_.kind == RemoteUrl::Kind::kRedis;
    if (redis && name == "timeout") {
      out_.timeout_ms = duration(name, value, 1, kTimeoutMsMax);
    } else if (redis && name == "connect") {
      out_.connect_ms = duration(name, value, 1, kTimeoutMsMax);
    } else if (redis && name == "ns") {
      const bool good = value.size() <= kNamespaceMax && value.find_first_not_of(
                                                             "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                                             "abcdefghijklmnopqrstuvwxyz"
                                                             "0123456789._-") == std::string::npos;
      if (!good) fail("ns takes up to 64 letters, digits, '.', '_' and '-'");
      out_.ns = value;
    } else if (redis && name == "db" && !out_.address.unix_path.empty()) {
      database(value);
    } else if (out_.tls && name == "ca") {
      out_.tls_files.ca = value;
    } else if (out_.tls && name == "cert") {
      out_.tls_files.cert = value;
    } else if (out_.tls && name == "key") {
      out_.tls_files.key = value;
    } else {
      fail("no parameter \"" + printable(name) + "\" here");
    }
  }

  std::string_view text_, parameters_;
  RemoteUrl out_;
};

}  // namespace

RemoteUrl parse_remote_url(std::string_view text) { return Parser(text).run(); }

std::string without_password(std::string_view url) {
  const size_t scheme_end = url.find("://");
  const size_t from = scheme_end == std::string_view::npos ? 0 : scheme_end + 3;
  const size_t at = url.rfind('@');
  if (scheme_end == std::string_view::npos || at == std::string_view::npos || at < from ||
      url.substr(from).starts_with('/'))
    return std::string(url);
  return std::string(url.substr(0, from)) + "***" + std::string(url.substr(at));
}

}  // namespace cento
