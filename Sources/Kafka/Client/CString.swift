import Glibc

@inline(__always)
func cStringLength(_ text: UnsafePointer<CChar>) -> Int { Int(strlen(text)) }
