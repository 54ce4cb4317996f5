/// Memory of the records that are in memory of their own, counted by the simulation.
enum OwnMemory {
    static func allocate(byteCount: Int, alignment: Int) -> UnsafeMutableRawPointer {
        let block = UnsafeMutableRawPointer.allocate(byteCount: byteCount, alignment: alignment)
        if let kafka = KafkaCluster.known {
            kafka.memory.copies += 1
            kafka.blocks[block] = kafka.memory
        }
        return block
    }

    static func free(_ block: UnsafeMutableRawPointer) {
        KafkaCluster.known?.blocks.removeValue(forKey: block)?.copies -= 1
        block.deallocate()
    }
}
