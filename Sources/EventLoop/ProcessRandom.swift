/// Generator of numbers that others can't foresee, and that differ between processes.
public typealias ProcessRandom = SystemRandomNumberGenerator
