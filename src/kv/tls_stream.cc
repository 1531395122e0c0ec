#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <arpa/inet.h>

#include <array>

#include "base/check.h"
#include "kv/net_stream.h"

namespace cento {
namespace {

template <auto Free>
struct FreeWith {
  template <class T>
  void operator()(T* p) const noexcept {
    (void)Free(p);
  }
};
using SslCtx = std::unique_ptr<SSL_CTX, FreeWith<SSL_CTX_free>>;
using Ssl = std::unique_ptr<SSL, FreeWith<SSL_free>>;
using Bio = std::unique_ptr<BIO, FreeWith<BIO_free>>;

// The first reason in OpenSSL's queue, which is emptied.
std::string reason() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  const char* text = code == 0 ? nullptr : ERR_reason_error_string(code);
  return text == nullptr ? "unknown reason" : text;
}

bool is_address(const std::string& host) {
  std::array<unsigned char, 16> out;
  return ::inet_pton(AF_INET, host.c_str(), out.data()) == 1 || ::inet_pton(AF_INET6, host.c_str(), out.data()) == 1;
}

}  // namespace

class TlsContext {
 public:
  SslCtx ctx;
};

namespace {

// OpenSSL reads and writes memory; the bytes go through the plain stream, so that its deadlines hold and no signal is
// raised when the other side has gone.
class TlsStream final : public NetStream {
 public:
  TlsStream(std::unique_ptr<NetStream> plain, std::shared_ptr<TlsContext> context, Ssl ssl, BIO* in, BIO* out)
      : plain_(std::move(plain)), context_(std::move(context)), ssl_(std::move(ssl)), in_(in), out_(out) {}

  Status handshake(Deadline deadline) {
    for (;;) {
      ERR_clear_error();
      const int n = SSL_do_handshake(ssl_.get());
      const int why = n == 1 ? SSL_ERROR_NONE : SSL_get_error(ssl_.get(), n);
      if (why == SSL_ERROR_NONE) return send_out(deadline);
      if (why != SSL_ERROR_WANT_READ) {
        const long verified = SSL_get_verify_result(ssl_.get());
        const std::string said = reason();
        (void)send_out(deadline).ok();  // the alert that tells the other side
        return broken(verified == X509_V_OK ? said
                                            : std::string("certificate: ") + X509_verify_cert_error_string(verified));
      }
      if (auto s = exchange(deadline); !s) return s;
    }
  }

  Status write(std::span<const std::byte> bytes, Deadline deadline) override {
    constexpr size_t kPieceBytes = 256 << 10;  // so that no whole copy is made
    while (!bytes.empty()) {
      ERR_clear_error();
      const auto piece = bytes.first(std::min(bytes.size(), kPieceBytes));
      size_t n = 0;
      const int done = SSL_write_ex(ssl_.get(), piece.data(), piece.size(), &n);
      if (done != 1 && SSL_get_error(ssl_.get(), done) != SSL_ERROR_WANT_READ) return broken(reason());
      if (auto s = done == 1 ? send_out(deadline) : exchange(deadline); !s) return s;
      bytes = bytes.subspan(n);
    }
    return Status::done();
  }

  Result<size_t> read(std::span<std::byte> out, Deadline deadline) override {
    for (;;) {
      ERR_clear_error();
      size_t n = 0;
      const int done = SSL_read_ex(ssl_.get(), out.data(), out.size(), &n);
      if (done == 1) return n;
      const int why = SSL_get_error(ssl_.get(), done);
      if (why == SSL_ERROR_ZERO_RETURN) return Error{Code::kResource, "the server closed the connection"};
      if (why != SSL_ERROR_WANT_READ) return broken(reason());
      if (auto s = exchange(deadline); !s) return s.error();
    }
  }

  bool readable() override { return SSL_pending(ssl_.get()) > 0 || BIO_pending(in_) > 0 || plain_->readable(); }

 private:
  static Error broken(const std::string& why) { return Error{Code::kResource, "TLS: " + why}; }

  Status send_out(Deadline deadline) {
    for (;;) {
      const int n = BIO_read(out_, buffer_.data(), static_cast<int>(buffer_.size()));
      if (n <= 0) return Status::done();
      if (auto s = plain_->write(std::span(buffer_).first(static_cast<size_t>(n)), deadline); !s) return s;
    }
  }

  Status exchange(Deadline deadline) {
    if (auto s = send_out(deadline); !s) return s;
    const auto n = plain_->read(buffer_, deadline);
    if (!n) return n.error();
    if (BIO_write(in_, buffer_.data(), static_cast<int>(*n)) != static_cast<int>(*n)) return broken("no memory");
    return Status::done();
  }

  std::unique_ptr<NetStream> plain_;
  std::shared_ptr<TlsContext> context_;
  Ssl ssl_;
  BIO *in_, *out_;  // ssl_'s
  std::array<std::byte, 32 << 10> buffer_;
};

}  // namespace

std::shared_ptr<TlsContext> make_tls_context(const TlsFiles& files) {
  const auto unusable = [](const std::string& file) {
    return Error{Code::kInput, "cannot be used for TLS: " + reason(), file, "a file in PEM format is needed"};
  };
  auto out = std::make_shared<TlsContext>();
  out->ctx.reset(SSL_CTX_new(TLS_client_method()));
  SSL_CTX* ctx = out->ctx.get();
  if (ctx == nullptr || SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) != 1)
    throw Error{Code::kResource, "TLS cannot be set up: " + reason()};
  SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, nullptr);
  if (files.ca.empty()) {
    if (SSL_CTX_set_default_verify_paths(ctx) != 1) throw unusable("the system's certificates");
  } else if (SSL_CTX_load_verify_file(ctx, files.ca.c_str()) != 1) {
    throw unusable(files.ca);
  }
  if (files.cert.empty()) return out;
  if (SSL_CTX_use_certificate_chain_file(ctx, files.cert.c_str()) != 1) throw unusable(files.cert);
  // No terminal is asked for the words that open a key.
  SSL_CTX_set_default_passwd_cb(ctx, [](char*, int, int, void*) { return 0; });
  if (SSL_CTX_use_PrivateKey_file(ctx, files.key.c_str(), SSL_FILETYPE_PEM) != 1) throw unusable(files.key);
  return out;
}

Result<std::unique_ptr<NetStream>> start_tls(std::unique_ptr<NetStream> plain, std::shared_ptr<TlsContext> context,
                                             const std::string& host, Deadline deadline) {
  Ssl ssl(SSL_new(context->ctx.get()));
  Bio in(BIO_new(BIO_s_mem())), out(BIO_new(BIO_s_mem()));
  if (!ssl || !in || !out) return Error{Code::kResource, "TLS: no memory"};
  // Empty memory means "wait for more", not the end.
  BIO_set_mem_eof_return(in.get(), -1);
  BIO_set_mem_eof_return(out.get(), -1);
  BIO *const in_bio = in.get(), *const out_bio = out.get();
  SSL_set_bio(ssl.get(), in.release(), out.release());
  SSL_set_connect_state(ssl.get());
  const bool named = is_address(host) ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl.get()), host.c_str()) == 1
                                      : SSL_set1_host(ssl.get(), host.c_str()) == 1 &&
                                            SSL_set_tlsext_host_name(ssl.get(), host.c_str()) == 1;
  if (!named) return Error{Code::kResource, "TLS: the host's name cannot be checked"};
  auto stream = std::make_unique<TlsStream>(std::move(plain), std::move(context), std::move(ssl), in_bio, out_bio);
  if (auto s = stream->handshake(deadline); !s) return s.error();
  return std::unique_ptr<NetStream>(std::move(stream));
}

}  // namespace cento
