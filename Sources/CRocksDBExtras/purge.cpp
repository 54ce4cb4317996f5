// A compaction after which no file has a removed value. RocksDB's C interface of 7.8 can neither force the collection of
// blob files, nor name the blob files of a column family.
#include "purge.h"

#include <rocksdb/metadata.h>

#include <cstring>

#include "handles.h"

void sluice_rewrite_column_family(
    rocksdb_t *database, rocksdb_column_family_handle_t *family, char **failure) {
    rocksdb::CompactRangeOptions options;
    // Writers don't wait. With a single thread for compactions, those of other column families wait for one piece.
    options.exclusive_manual_compaction = false;
    options.allow_write_stall = false;
    // Without this value, files of the last level stay as they are.
    options.bottommost_level_compaction = rocksdb::BottommostLevelCompaction::kForce;
    // All blob files count as old: each value in use moves, and the old file has no value in use any more.
    options.blob_garbage_collection_policy = rocksdb::BlobGarbageCollectionPolicy::kForce;
    options.blob_garbage_collection_age_cutoff = 1.0;
    rocksdb::Status status = database->rep->CompactRange(options, family->rep, nullptr, nullptr);
    if (!status.ok()) *failure = strdup(status.ToString().c_str());
}

void sluice_delete_obsolete_files(rocksdb_t *database, char **failure) {
    rocksdb::Status status = database->rep->DisableFileDeletions();
    // Ends with a search of the whole directory. Other searches omit logs of earlier processes for six hours.
    if (status.ok()) status = database->rep->EnableFileDeletions();
    if (!status.ok()) *failure = strdup(status.ToString().c_str());
}

void sluice_visit_files(
    rocksdb_t *database, rocksdb_column_family_handle_t *family, void (*visit)(void *context, const char *name),
    void *context) {
    rocksdb::ColumnFamilyMetaData data;
    database->rep->GetColumnFamilyMetaData(family->rep, &data);
    for (const auto &level : data.levels)
        for (const auto &file : level.files) visit(context, file.relative_filename.c_str());
    // Names of blob files begin with a slash.
    for (const auto &file : data.blob_files) {
        const char *name = file.blob_file_name.c_str();
        visit(context, *name == '/' ? name + 1 : name);
    }
}
