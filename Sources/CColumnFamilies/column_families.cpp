// Each time that a column family is made or dropped, RocksDB writes the options of all of them to a file and reads it again to
// check it. Its C++ interface does that once for many (RocksDB's pull request 2248); its C interface, as of 7.8, takes one at a
// time, and later ones take many with the same options only (issue 12887). A worker that took 40 partitions over, with 120
// column families, spent 3 s with it.
#include "column_families.h"

#include <rocksdb/db.h>

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
    // Later versions have a flag here: not to be destroyed.
    bool later = false;
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
    rocksdb_t *database, size_t count, rocksdb_column_family_handle_t *const *handles, char **failure) {
    std::vector<rocksdb::ColumnFamilyHandle *> dropped;
    for (size_t index = 0; index < count; index++) dropped.push_back(handles[index]->rep);
    tell(database->rep->DropColumnFamilies(dropped), failure);
}
