#include "kv/look_ahead.h"

#include <new>

#include "base/log.h"

namespace cento {
namespace {

Result<std::vector<std::byte>> whole(Tier& tier, const Hash& name) {
  const auto file = tier.open(name);
  if (!file) return file.error();
  const auto size = (*file)->size();
  if (!size) return size.error();
  try {
    std::vector<std::byte> bytes(*size);
    if (auto s = (*file)->read_at(0, bytes); !s) return s.error();
    return bytes;
  } catch (const std::bad_alloc&) {
    return Error{Code::kResource, "not enough memory to read it"};
  }
}

}  // namespace

LookAhead::LookAhead(RamTier& ram, std::vector<Tier*> below)
    : ram_(&ram), below_(std::move(below)), thread_([this] { run(); }) {}

LookAhead::~LookAhead() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    jobs_.clear();
  }
  changed_.notify_all();
  thread_.join();
  for (const auto& [ticket, names] : held_) {
    for (const Hash& name : names) ram_->unpin(name);
  }
}

LookAhead::Ticket LookAhead::fetch(std::vector<Wanted> wanted) {
  Ticket ticket = 0;
  {
    const std::lock_guard lock(mutex_);
    ticket = ++last_ticket_;
    held_.try_emplace(ticket);
    for (Wanted& w : wanted) jobs_.push_back({ticket, w});
  }
  changed_.notify_all();
  return ticket;
}

void LookAhead::release(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  const auto held = held_.find(ticket);
  if (held == held_.end()) return;
  for (const Hash& name : held->second) ram_->unpin(name);
  held_.erase(held);
  std::erase_if(jobs_, [&](const Job& job) { return job.ticket == ticket; });
}

void LookAhead::wait_until_idle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return jobs_.empty() && !busy_; });
}

void LookAhead::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
    if (stop_) return;
    const Job job = jobs_.front();
    jobs_.pop_front();
    busy_ = true;
    lock.unlock();
    const bool pinned = bring(job.wanted);
    lock.lock();
    busy_ = false;
    if (const auto held = held_.find(job.ticket); pinned && held != held_.end()) {
      held->second.push_back(job.wanted.name);
    } else if (pinned) {
      ram_->unpin(job.wanted.name);  // released meanwhile
    }
    changed_.notify_all();
  }
}

// True: it is in RAM, pinned once more.
bool LookAhead::bring(const Wanted& wanted) {
  if (ram_->pin(wanted.name)) return true;
  for (Tier* tier : below_) {
    auto bytes = whole(*tier, wanted.name);
    if (!bytes) continue;
    if (auto s = ram_->put_pinned(wanted.name, std::move(*bytes), wanted.cost_ms); !s) {
      log_debug("stored KV " + wanted.name.short_hex() + " is not brought up: " + s.error().message());
      return false;
    }
    ++fetched_;
    return true;
  }
  return false;
}

}  // namespace cento
