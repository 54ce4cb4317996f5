// swift-format-ignore-file: AlwaysUseLowerCamelCase

import CRocksDB
import Glibc

package func sluice_create_column_families(
    _ database: OpaquePointer, _: Int, _ options: [OpaquePointer?], _ names: [UnsafePointer<CChar>?],
    _ handles: UnsafeMutablePointer<OpaquePointer?>,
    _ failure: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>
) { Extras.make(database, options, names, handles, failure) }

package func sluice_drop_column_families(
    _ database: OpaquePointer, _: Int, _ families: [OpaquePointer?], _ left: UnsafeMutablePointer<Bool>,
    _ failure: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>
) { Extras.drop(database, families, left, failure) }

package func sluice_rewrite_column_family(
    _ database: OpaquePointer, _ family: OpaquePointer,
    _ failure: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>
) { Extras.rewrite(database, family, failure) }

package func sluice_delete_obsolete_files(
    _ database: OpaquePointer, _: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>
) { Extras.deleteOldFiles(database) }

package func sluice_visit_files(
    _: OpaquePointer, _ family: OpaquePointer,
    _ visit: @convention(c) (UnsafeMutableRawPointer?, UnsafePointer<CChar>?) -> Void,
    _ context: UnsafeMutableRawPointer?
) { for name in Extras.names(family) { name.withCString { visit(context, $0) } } }

package func sluice_set_info_log(_: OpaquePointer, _ directory: String?) {}

private nonisolated(unsafe) let version = UnsafePointer(strdup("simulated")!)
package func sluice_rocksdb_version() -> UnsafePointer<CChar> { version }
