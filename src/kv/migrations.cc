#include "kv/migrations.h"

#include <string>

namespace cento {
namespace {

// The version now, if it is one that `steps` can start from or has reached.
int64_t checked_version(Db& db, size_t n_steps) {
  const int64_t version = db.pragma("user_version");
  if (version > static_cast<int64_t>(n_steps)) {
    throw Error{Code::kInput,
                "store has schema version " + std::to_string(version) + ", this cento knows versions up to " +
                    std::to_string(n_steps),
                db.path(), "use a newer cento, or another --store"};
  }
  if (version < 0) throw Error{Code::kInput, "store is damaged: schema version " + std::to_string(version), db.path()};
  return version;
}

// Foreign keys cannot be switched inside a transaction (SQLite, "PRAGMA foreign_keys").
class ForeignKeysOff {
 public:
  explicit ForeignKeysOff(Db& db) : db_(&db) { db.exec("PRAGMA foreign_keys=OFF"); }
  ~ForeignKeysOff() {
    try {
      db_->exec("PRAGMA foreign_keys=ON");
    } catch (const Error&) {
      // Setting a flag of the connection fails for want of memory only, and the constructor's owner gives up then.
    }
  }
  ForeignKeysOff(const ForeignKeysOff&) = delete;
  ForeignKeysOff& operator=(const ForeignKeysOff&) = delete;

 private:
  Db* db_;
};

// One step, unless another process was faster. The version is read again under the write lock.
void take_step(Db& db, std::span<const char* const> steps, int32_t application_id) {
  Transaction transaction(db);
  const int64_t version = checked_version(db, steps.size());
  if (version == static_cast<int64_t>(steps.size())) return;
  try {
    db.exec(steps[static_cast<size_t>(version)]);
  } catch (const Error& error) {
    if (error.code() != Code::kInternal) throw;
    // The step is right for what has this version: tables that are there already, or are not.
    throw Error{Code::kInput,
                "store is damaged: it has schema version " + std::to_string(version) + ", but not the tables of that",
                db.path(), "remove the store; `cento index` builds it again"};
  }
  if (db.prepare("PRAGMA foreign_key_check").step()) {
    throw Error{Code::kInput,
                "store cannot be brought from schema version " + std::to_string(version) +
                    " to the next: rows refer to others that are not there",
                db.path(), "remove the store; `cento index` builds it again"};
  }
  db.exec("PRAGMA user_version=" + std::to_string(version + 1));
  db.exec("PRAGMA application_id=" + std::to_string(application_id));
  transaction.commit();
}

}  // namespace

void migrate(Db& db, std::span<const char* const> steps, int32_t application_id) {
  const auto newest = static_cast<int64_t>(steps.size());
  const int64_t version = checked_version(db, steps.size());
  if (version == newest) return;
  if (db.read_only()) {
    throw Error{
        Code::kInput,
        "store has schema version " + std::to_string(version) + ", version " + std::to_string(newest) + " is needed",
        db.path(), "run any cento command on it once where it can be written"};
  }
  const ForeignKeysOff off(db);
  while (checked_version(db, steps.size()) < newest) take_step(db, steps, application_id);
}

}  // namespace cento
