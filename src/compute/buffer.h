// Memory that may live on a device. Nothing but a Device and the Ops that belong to it may touch what a Buffer's
// address points to; the host copies in and out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace cento {

// An address space. Thread-safe.
class Device {
 public:
  virtual ~Device() = default;
  virtual const char* name() const = 0;
  virtual void* allocate(size_t n_bytes) = 0;  // 64-byte aligned, not cleared; throws Error(kResource)
  virtual void release(void* address, size_t n_bytes) noexcept = 0;
  virtual void upload(void* to, const void* host_from, size_t n_bytes) = 0;
  virtual void download(void* host_to, const void* from, size_t n_bytes) = 0;
  virtual void copy(void* to, const void* from, size_t n_bytes) = 0;  // within the device, not overlapping
  virtual void clear(void* to, size_t n_bytes) = 0;                   // zero bytes
  // True where addresses are ordinary host memory, so that mapped weights can be used where they lie.
  virtual bool is_host() const = 0;
  static Device& host();
};

// Owns device memory.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Device& device, size_t n_bytes);  // n_bytes 0: no memory
  ~Buffer();
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer(std::move(other)).swap(*this);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  size_t n_bytes() const { return n_bytes_; }
  Device* device() const { return device_; }
  template <class T>
  T* as(size_t offset = 0) const {  // device address of element `offset`
    return static_cast<T*>(address_) + offset;
  }
  template <class T>
  void upload(std::span<const T> host, size_t offset = 0) {
    if (!host.empty()) device_->upload(as<T>(offset), host.data(), host.size_bytes());
  }
  template <class T>
  void download(std::span<T> host, size_t offset = 0) const {
    if (!host.empty()) device_->download(host.data(), as<T>(offset), host.size_bytes());
  }
  void clear() {
    if (n_bytes_ > 0) device_->clear(address_, n_bytes_);
  }
  // At least n_bytes: grows by a new allocation, content lost; never shrinks.
  void reserve(Device& device, size_t n_bytes) {
    if (n_bytes > n_bytes_) *this = Buffer(device, n_bytes);
  }
  void swap(Buffer& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(address_, other.address_);
    std::swap(n_bytes_, other.n_bytes_);
  }

 private:
  Device* device_ = nullptr;
  void* address_ = nullptr;
  size_t n_bytes_ = 0;
};

}  // namespace cento
