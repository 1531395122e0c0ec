// Brings blobs up into RAM before their turn and keeps them there until it is over (DESIGN 6): for requests that wait
// in a queue and sessions that somebody has opened.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "kv/tier_ram.h"

namespace cento {

class LookAhead {
 public:
  using Ticket = uint64_t;

  // `below`: where blobs are looked for, in this order. All tiers must outlive it. Starts a thread.
  LookAhead(RamTier& ram, std::vector<Tier*> below);
  ~LookAhead();  // lets go of everything
  LookAhead(const LookAhead&) = delete;
  LookAhead& operator=(const LookAhead&) = delete;

  struct Wanted {
    Hash name;
    double cost_ms = 0;
  };
  // Fetches them in the order given, behind what was asked for earlier. Blobs that are nowhere, that cannot be read or
  // that find no room are left out: whoever wants them finds a miss, or reads them from where they are.
  Ticket fetch(std::vector<Wanted> wanted);
  // Its turn is over, or it was given up: from now on they may be evicted.
  void release(Ticket ticket);

  void wait_until_idle();
  uint64_t fetched() const { return fetched_; }  // blobs, since the start

 private:
  struct Job {
    Ticket ticket;
    Wanted wanted;
  };
  void run();
  bool bring(const Wanted& wanted);

  RamTier* ram_;
  std::vector<Tier*> below_;
  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::map<Ticket, std::vector<Hash>> held_;  // pinned for open tickets
  Ticket last_ticket_ = 0;
  bool busy_ = false, stop_ = false;
  std::atomic<uint64_t> fetched_{0};
  std::thread thread_;
};

}  // namespace cento
