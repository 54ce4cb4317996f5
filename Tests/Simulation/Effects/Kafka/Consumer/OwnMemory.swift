/// Memory of the records that are in memory of their own, counted by the simulation.
enum OwnMemory {
    static func allocate(byteCount: Int, alignment: Int) -> UnsafeMutableRawPointer {
        let block = UnsafeMutableRawPointer.allocate(byteCount: byteCount, alignment: alignment)
        if let kafka = KafkaCluster.known {
            kafka.memory.copies += 1
            kafka.memory.bytes += byteCount
            kafka.blocks[block] = (kafka.memory, byteCount)
        }
        return block
    }

    static func free(_ block: UnsafeMutableRawPointer) {
        if let (memory, byteCount) = KafkaCluster.known?.blocks.removeValue(forKey: block) {
            memory.copies -= 1
            memory.bytes -= byteCount
        }
        block.deallocate()
    }
}
