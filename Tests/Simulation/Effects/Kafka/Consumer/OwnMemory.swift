/// Memory of the records that are in memory of their own, counted by the simulation.
enum OwnMemory {
    static func allocate(byteCount: Int, alignment: Int) -> UnsafeMutableRawPointer {
        KafkaCluster.known?.liveCopies += 1
        return .allocate(byteCount: byteCount, alignment: alignment)
    }

    static func free(_ block: UnsafeMutableRawPointer) {
        KafkaCluster.known?.liveCopies -= 1
        block.deallocate()
    }
}
