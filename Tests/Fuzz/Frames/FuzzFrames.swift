import FrameFuzzing
import Glibc

// Functions that libFuzzer, whose `main` this program has, calls.

/// `--seeds DIRECTORY` writes the first corpus instead of fuzzing.
@_cdecl("LLVMFuzzerInitialize")
public func initialize(
    _ count: UnsafeMutablePointer<CInt>,
    _ values: UnsafeMutablePointer<UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>>
) -> CInt {
    guard count.pointee == 3, let option = values.pointee[1], let directory = values.pointee[2],
        String(cString: option) == "--seeds"
    else { return 0 }
    for seed in FrameSeeds.all {
        guard let file = fopen("\(String(cString: directory))/\(seed.name)", "w") else {
            perror(directory)
            exit(1)
        }
        fwrite(seed.bytes, 1, seed.bytes.count, file)
        fclose(file)
    }
    exit(0)
}

@_cdecl("LLVMFuzzerTestOneInput")
public func testOneInput(_ data: UnsafePointer<UInt8>?, _ size: Int) -> CInt {
    if let violation = FrameDriver.run(UnsafeRawBufferPointer(start: data, count: size)) {
        print("VIOLATION: \(violation)")
        fflush(nil)
        abort()
    }
    return 0
}
