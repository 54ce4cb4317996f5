// swift-format-ignore-file: AlwaysUseLowerCamelCase

import Glibc

// Handles of the C interface are pointers to retained objects.

@inline(__always)
func handle(_ object: AnyObject) -> OpaquePointer { OpaquePointer(Unmanaged.passRetained(object).toOpaque()) }

@inline(__always)
package func object<Object: AnyObject>(_ handle: OpaquePointer, _: Object.Type = Object.self) -> Object {
    Unmanaged<Object>.fromOpaque(UnsafeRawPointer(handle)).takeUnretainedValue()
}

@inline(__always)
func release(_ handle: OpaquePointer) { Unmanaged<AnyObject>.fromOpaque(UnsafeRawPointer(handle)).release() }

typealias Failure = UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>

/// Passes a failure to the caller, who frees its text; nil: there was none.
func report(_ text: String?, _ failure: Failure) { if let text { failure.pointee = strdup(text) } }

package func rocksdb_free(_ text: UnsafeMutableRawPointer) { free(text) }

func bytes(_ start: UnsafePointer<CChar>?, _ count: Int) -> UnsafeRawBufferPointer {
    UnsafeRawBufferPointer(start: start, count: count)
}
