// A value or an Error, for callers that will do something other than give up (STYLE 5).
#pragma once

#include <optional>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/error.h"

namespace cento {

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  // Asking for the side that is not there is our own mistake.
  T& value() & {
    CENTO_CHECK(ok());
    return std::get<0>(state_);
  }
  const T& value() const& {
    CENTO_CHECK(ok());
    return std::get<0>(state_);
  }
  T&& value() && {
    CENTO_CHECK(ok());
    return std::get<0>(std::move(state_));
  }
  const Error& error() const {
    CENTO_CHECK(!ok());
    return std::get<1>(state_);
  }

  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  // The value, or the error thrown: for callers that can only give up.
  T or_throw() && {
    if (!ok()) throw error();
    return std::get<0>(std::move(state_));
  }

 private:
  std::variant<T, Error> state_;
};

// Success or an Error.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)
  static Status done() { return {}; }

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const {
    CENTO_CHECK(!ok());
    return *error_;
  }
  void or_throw() const {
    if (error_) throw *error_;
  }

 private:
  std::optional<Error> error_;
};

}  // namespace cento
