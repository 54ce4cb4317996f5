// Each time that a column family is made or dropped, RocksDB writes the options of all of them to a file and reads it again to
// check it. Its C++ interface does that once for many (RocksDB's pull request 2248); its C interface, as of 7.8, takes one at a
// time, and later ones take many with the same options only (issue 12887). A worker that took 40 partitions over, with 120
// column families, spent 3 s with it.
#include "column_families.h"

#include <rocksdb/db.h>
#include <rocksdb/version.h>

#include <cstring>
#include <vector>

// What a handle of the C interface is (RocksDB's db/c.cc): a pointer, or an object, as its first member. Libraries of another
// minor version have another name, so what this was compiled and tested with is what it runs with.
struct rocksdb_t {
    rocksdb::DB *rep;
};
struct rocksdb_options_t {
    rocksdb::Options rep;
};
struct rocksdb_column_family_handle_t {
    rocksdb::ColumnFamilyHandle *rep;
#if ROCKSDB_MAJOR > 9 || (ROCKSDB_MAJOR == 9 && ROCKSDB_MINOR > 1)
    // Of the default column family's handle, which is not to be destroyed (RocksDB's pull request 12514).
    bool immortal = false;
#endif
};

namespace {

void tell(const rocksdb::Status &status, char **failure) {
    if (!status.ok()) *failure = strdup(status.ToString().c_str());
}

}  // namespace

void sluice_create_column_families(
    rocksdb_t *database, size_t count, const rocksdb_options_t *const *options, const char *const *names,
    rocksdb_column_family_handle_t **handles, char **failure) {
    std::vector<rocksdb::ColumnFamilyDescriptor> descriptors;
    for (size_t index = 0; index < count; index++) descriptors.emplace_back(names[index], options[index]->rep);
    std::vector<rocksdb::ColumnFamilyHandle *> made;
    rocksdb::Status status = database->rep->CreateColumnFamilies(descriptors, &made);
    for (size_t index = 0; index < count; index++)
        handles[index] = index < made.size() ? new rocksdb_column_family_handle_t{made[index]} : nullptr;
    tell(status, failure);
}

void sluice_drop_column_families(
    rocksdb_t *database, size_t count, rocksdb_column_family_handle_t *const *handles, bool *left, char **failure) {
    std::vector<rocksdb::ColumnFamilyHandle *> dropped;
    for (size_t index = 0; index < count; index++) dropped.push_back(handles[index]->rep);
    rocksdb::Status status = database->rep->DropColumnFamilies(dropped);
    // It ends with the first that can't be dropped.
    bool is_any_left = false;
    for (size_t index = 0; index < count; index++) {
        left[index] = false;
        if (status.ok()) continue;
        rocksdb::Status one = database->rep->DropColumnFamily(dropped[index]);
        // One that was dropped before is an invalid argument.
        left[index] = !one.ok() && !one.IsInvalidArgument();
        is_any_left = is_any_left || left[index];
    }
    if (is_any_left) tell(status, failure);
}
