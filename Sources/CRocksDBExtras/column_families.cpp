// Creation and removal of many column families at once. For each call RocksDB writes the options of all column families
// to a file and reads the file back. The C++ interface does so once for many (RocksDB's pull request 2248). The C
// interface of 7.8 accepts a single column family in a call. Later C interfaces accept many with the same options only
// (issue 12887). Such calls took 3 s in a worker that took over 40 partitions, with 120 column families.
#include "column_families.h"

#include <cstring>
#include <vector>

#include "handles.h"

namespace {

void report(const rocksdb::Status &status, char **failure) {
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
    report(status, failure);
}

void sluice_drop_column_families(
    rocksdb_t *database, size_t count, rocksdb_column_family_handle_t *const *handles, bool *left, char **failure) {
    std::vector<rocksdb::ColumnFamilyHandle *> dropped;
    for (size_t index = 0; index < count; index++) dropped.push_back(handles[index]->rep);
    rocksdb::Status status = database->rep->DropColumnFamilies(dropped);
    // The call ends at the first column family that can't be dropped.
    bool is_any_left = false;
    for (size_t index = 0; index < count; index++) {
        left[index] = false;
        if (status.ok()) continue;
        rocksdb::Status one = database->rep->DropColumnFamily(dropped[index]);
        // A column family that was dropped before is an invalid argument.
        left[index] = !one.ok() && !one.IsInvalidArgument();
        is_any_left = is_any_left || left[index];
    }
    if (is_any_left) report(status, failure);
}
