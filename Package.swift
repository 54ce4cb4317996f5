// swift-tools-version: 6.2
import PackageDescription

let strict: [SwiftSetting] = [
    .swiftLanguageMode(.v6),
    .enableUpcomingFeature("ExistentialAny"),
]

/// For the modules that every push passes through: dynamic exclusivity checks add 30 % to the instructions of a push
/// (`Benchmarks/run --before`). Debug builds, and so all tests, keep them.
let hot: [SwiftSetting] =
    strict + [.unsafeFlags(["-enforce-exclusivity=unchecked"], .when(configuration: .release))]

/// Replacements of RocksDB's allocation and checksums, for programs whose store is their bottleneck.
let tuning: Target.Dependency = .target(name: "CRocksDBTuning", condition: .when(traits: ["RocksDBTuning"]))

/// Commit of the sources, which `sluice --version` prints; `make build` gives it. One target has it, so that a commit
/// compiles one file. Context.gitInformation would be that of the first build, because manifests are cached.
let commit = Context.environment["SLUICE_COMMIT"] ?? ""

/// The modules of the gateway. Dependencies point downwards only; everything above the C libraries is
/// pure: no socket, no clock, no file, no thread.
let package = Package(
    name: "sluice",
    products: [
        .executable(name: "sluice", targets: ["sluice"]),
        .executable(name: "sluice-bench", targets: ["sluice-bench"]),
    ],
    traits: [
        .trait(
            name: "RocksDBTuning",
            description:
                "Memtables on huge pages and CRC-32C by instruction, by replacing functions of the process")
    ],
    dependencies: [
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.2"),
        .package(url: "https://github.com/apple/swift-collections", from: "1.6.0"),
        .package(url: "https://github.com/apple/swift-log", from: "1.16.2"),
        .package(url: "https://github.com/jpsim/Yams", from: "6.2.2"),
    ],
    targets: [
        // Pure: values in, values out.
        .target(
            name: "CSimdjson",
            linkerSettings: [.linkedLibrary("simdjson")]),
        .target(name: "SluiceModel", dependencies: ["CSimdjson"], swiftSettings: hot),
        .target(name: "Metrics", swiftSettings: hot),
        .systemLibrary(name: "CPrefetch"),
        .target(
            name: "StreamScheduling", dependencies: ["CPrefetch", "SluiceModel"], swiftSettings: hot),
        .target(
            name: "DeliveryCore",
            dependencies: [
                "CPrefetch", "SluiceModel", "StreamScheduling",
                .product(name: "DequeModule", package: "swift-collections"),
            ],
            exclude: ["README.md"], swiftSettings: hot),

        .target(
            name: "DeviceModel",
            dependencies: [
                "SluiceModel", .product(name: "DequeModule", package: "swift-collections"),
                .product(name: "HeapModule", package: "swift-collections"),
            ], exclude: ["README.md"], swiftSettings: hot),

        .target(name: "Capacity", swiftSettings: strict),
        .target(
            name: "LoadTest", dependencies: ["Configuration", "SluiceModel"], exclude: ["README.md"],
            swiftSettings: strict),

        // C libraries.
        .systemLibrary(
            name: "CNghttp2", pkgConfig: "libnghttp2", providers: [.apt(["libnghttp2-dev"])]),
        .systemLibrary(name: "COpenSSL", pkgConfig: "openssl", providers: [.apt(["libssl-dev"])]),
        .systemLibrary(
            name: "CRdkafka", pkgConfig: "rdkafka", providers: [.apt(["librdkafka-dev"])]),

        .systemLibrary(
            name: "CRocksDB", pkgConfig: "rocksdb", providers: [.apt(["librocksdb-dev"])]),

        // RocksDB's functions that its C interface lacks.
        .target(name: "CRocksDBExtras", dependencies: ["CRocksDB"]),

        // Faster memory and checksums for RocksDB, which replace functions of the whole process: a trait, off by default.
        .target(name: "CRocksDBTuning"),

        .systemLibrary(name: "CEpoll"),

        // Files of the simulator's page, embedded.
        .target(name: "CSimulatorPage"),
        .target(name: "CBuildInfo", cSettings: [.define("SLUICE_COMMIT", to: "\"\(commit)\"")]),

        // Effects.
        .target(name: "EventLoop", dependencies: ["CEpoll", "Metrics"], swiftSettings: hot),
        .target(
            name: "HTTP2",
            dependencies: [
                "EventLoop", "CNghttp2", "COpenSSL", "SluiceModel", "StreamScheduling",
                .product(name: "DequeModule", package: "swift-collections"),
            ],
            exclude: ["README.md"], swiftSettings: hot),
        .target(
            name: "HTTP1",
            dependencies: [
                "EventLoop", "HTTP2", .product(name: "DequeModule", package: "swift-collections"),
            ], exclude: ["README.md"], swiftSettings: strict
        ),
        .target(
            name: "APNS", dependencies: ["EventLoop", "HTTP2", "SluiceModel", "COpenSSL"],
            exclude: ["README.md"], swiftSettings: hot),
        .target(name: "Kafka", dependencies: ["CRdkafka"], swiftSettings: hot),
        .target(name: "StoreEncryption", dependencies: ["COpenSSL", "SluiceModel"], swiftSettings: hot),
        .target(
            name: "RetryStore",
            dependencies: [
                "CRocksDB", "CRocksDBExtras", "EventLoop", "SluiceModel", "StoreEncryption", tuning,
            ],
            exclude: ["README.md"], swiftSettings: hot),
        .target(
            name: "Configuration", dependencies: [.product(name: "Yams", package: "Yams")],
            exclude: ["README.md"], swiftSettings: strict),
        .target(
            name: "Gateway",
            dependencies: [
                "CBuildInfo", "CPrefetch", "Metrics",
                "Configuration", "SluiceModel", "StreamScheduling", "DeliveryCore", "EventLoop", "HTTP2",
                "APNS", "Kafka",
                "RetryStore", "StoreEncryption",
                .product(name: "Logging", package: "swift-log"),
            ],
            exclude: ["README.md"], swiftSettings: hot),
        .target(
            name: "Admin",
            dependencies: [
                "Configuration", "EventLoop", "Gateway", "HTTP1", "HTTP2", "Metrics", "RetryStore",
                "SluiceModel",
                "DeliveryCore",
            ],
            exclude: ["README.md"], swiftSettings: strict),
        .target(
            name: "APNSSimulator",
            dependencies: [
                "COpenSSL", "CSimulatorPage", "Configuration", "DeviceModel", "EventLoop", "HTTP1", "HTTP2",
                "SluiceModel",
            ],
            exclude: ["Page", "README.md"], swiftSettings: strict),
        .executableTarget(
            name: "sluice",
            dependencies: [
                "Admin", "APNS", "Capacity", "Configuration", "DeviceModel", "Gateway", "APNSSimulator",
                "HTTP2", "LoadTest",
                "Kafka", "RetryStore", "StoreEncryption",
                "SluiceModel",
                "StreamScheduling", "DeliveryCore", "EventLoop",
                .product(name: "Logging", package: "swift-log"),
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
            ],
            swiftSettings: strict),

        // Measurements.
        .target(name: "CAllocationCounter", path: "Benchmarks/CAllocationCounter"),
        .executableTarget(
            name: "sluice-bench",
            dependencies: [
                "CAllocationCounter", "CNghttp2", "Configuration", "DeviceModel", "Gateway", "APNS", "HTTP2",
                "EventLoop",
                "Kafka",
                "SluiceModel", "StoreEncryption", "StreamScheduling", "DeliveryCore", "RetryStore",
                .product(name: "Logging", package: "swift-log"),
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
            ],
            path: "Benchmarks/SluiceBench",
            swiftSettings: hot),

        // Tests.
        .target(
            name: "TestSupport", dependencies: ["SluiceModel"], path: "Tests/TestSupport",
            swiftSettings: strict),
        .target(
            name: "KafkaTestSupport", dependencies: ["Kafka", "SluiceModel", "TestSupport"],
            path: "Tests/KafkaTestSupport", swiftSettings: strict),
        .testTarget(
            name: "SluiceModelTests", dependencies: ["SluiceModel", "TestSupport"],
            swiftSettings: strict),
        .testTarget(name: "RepositoryTests", swiftSettings: strict),
        .testTarget(
            name: "StreamSchedulingTests",
            dependencies: ["SluiceModel", "StreamScheduling", "TestSupport"], swiftSettings: strict),
        .testTarget(
            name: "DeliveryCoreTests", dependencies: ["DeliveryCore", "StreamScheduling", "TestSupport"],
            swiftSettings: strict),
        .testTarget(
            name: "EventLoopTests", dependencies: ["EventLoop", "TestSupport"],
            swiftSettings: strict),
        .target(
            name: "FrameFuzzing", dependencies: ["HTTP2", "CNghttp2"], path: "Tests/Fuzz/FrameFuzzing",
            swiftSettings: strict),
        .testTarget(
            name: "HTTP2Tests", dependencies: ["HTTP2", "CNghttp2", "FrameFuzzing", "TestSupport"],
            swiftSettings: strict),
        .testTarget(
            name: "APNSTests", dependencies: ["APNS", "CNghttp2", "EventLoop", "HTTP2", "TestSupport"],
            swiftSettings: strict),
        .testTarget(
            name: "KafkaTests", dependencies: ["DeliveryCore", "Kafka", "TestSupport"], swiftSettings: strict),
        .testTarget(
            name: "StoreEncryptionTests",
            dependencies: ["COpenSSL", "SluiceModel", "StoreEncryption", "TestSupport"],
            swiftSettings: strict),
        .testTarget(
            name: "RetryStoreTests",
            dependencies: [
                "RetryStore", "CRocksDB", "SluiceModel", "StoreEncryption", "TestSupport",
                "sluice-store-writer", tuning,
            ],
            exclude: ["Formats"],
            swiftSettings: strict),
        .executableTarget(
            name: "sluice-store-writer", dependencies: ["RetryStore", "EventLoop", "SluiceModel"],
            path: "Tests/StoreWriter", swiftSettings: strict),
        .testTarget(
            name: "ConfigurationTests", dependencies: ["Configuration", "TestSupport"],
            swiftSettings: strict),
        .testTarget(
            name: "GatewayTests",
            dependencies: [
                "Admin", "APNS", "Configuration", "Gateway", "Metrics", "APNSSimulator", "KafkaTestSupport",
                "StoreEncryption", "TestSupport",
                "sluice",
            ],
            swiftSettings: strict),
        .testTarget(
            name: "DeviceModelTests", dependencies: ["DeviceModel", "SluiceModel", "TestSupport"],
            swiftSettings: strict),
        .testTarget(name: "CapacityTests", dependencies: ["Capacity"], swiftSettings: strict),
        .testTarget(
            name: "LoadTestTests", dependencies: ["Configuration", "LoadTest", "SluiceModel", "TestSupport"],
            swiftSettings: strict),
        .testTarget(
            name: "APNSSimulatorTests",
            dependencies: ["APNSSimulator", "DeviceModel", "HTTP1", "TestSupport"],
            exclude: ["Clients"],
            swiftSettings: strict),
        .testTarget(
            name: "MetricsTests", dependencies: ["Metrics", "SluiceModel", "TestSupport"],
            exclude: ["Clients"],
            swiftSettings: strict),
        .testTarget(name: "DeployTests", dependencies: ["TestSupport", "sluice"], swiftSettings: strict),
        .testTarget(
            name: "ProcessTests",
            dependencies: [
                "sluice", "HTTP2", "Kafka", "LoadTest", "RetryStore", "CRocksDB", "SluiceModel",
                "KafkaTestSupport",
                "TestSupport",
            ],
            swiftSettings: strict),
    ],
    cxxLanguageStandard: .cxx17
)

// MARK: The simulation of whole workers

/// Modules that the simulation builds a second time, from the same sources over simulated effects: module `X` becomes
/// `SimulatedX`. The effects themselves have other sources.
let twins = ["CRocksDB", "CRocksDBExtras", "EventLoop", "HTTP2", "APNS", "Kafka", "RetryStore", "Gateway"]

/// Lets sources import the simulated modules by the names of the real ones. A module's own name is among them, because
/// sources qualify by it.
let simulated: [SwiftSetting] = [
    .unsafeFlags(twins.flatMap { ["-module-alias", "\($0)=Simulated\($0)"] })
]

func overSimulatedEffects(
    _ name: String, _ dependencies: [Target.Dependency], exclude: [String] = []
) -> Target {
    .target(
        name: "Simulated\(name)", dependencies: dependencies, path: "Tests/Simulation/Effects/\(name)",
        exclude: exclude, swiftSettings: hot + simulated)
}

package.targets += [
    overSimulatedEffects(
        "EventLoop",
        [
            "CEpoll", "Metrics", "SluiceModel",
            .product(name: "HeapModule", package: "swift-collections"),
        ]),
    overSimulatedEffects(
        "HTTP2",
        [
            "SimulatedEventLoop", "CNghttp2", "COpenSSL", "SluiceModel", "StreamScheduling",
            .product(name: "DequeModule", package: "swift-collections"),
        ]),
    overSimulatedEffects(
        "APNS", ["SimulatedEventLoop", "SimulatedHTTP2", "SluiceModel", "COpenSSL"],
        exclude: ["README.md"]),
    overSimulatedEffects(
        "Kafka",
        [
            "CRdkafka", "DeliveryCore", "SimulatedEventLoop", "SluiceModel", "StreamScheduling",
            .product(name: "DequeModule", package: "swift-collections"),
        ]),
    overSimulatedEffects("CRocksDB", ["SimulatedEventLoop"]),
    overSimulatedEffects("CRocksDBExtras", ["SimulatedCRocksDB"]),
    overSimulatedEffects(
        "RetryStore",
        [
            "SimulatedCRocksDB", "SimulatedCRocksDBExtras", "SimulatedEventLoop", "SluiceModel",
            "StoreEncryption",
        ], exclude: ["Store/README.md"]),
    .target(
        name: "StoreSteps", dependencies: ["EventLoop", "RetryStore", "SluiceModel"],
        path: "Tests/Simulation/StoreSteps", swiftSettings: strict),
    overSimulatedEffects(
        "StoreSteps", ["SimulatedEventLoop", "SimulatedRetryStore", "SluiceModel"]),
    overSimulatedEffects(
        "Gateway",
        [
            "CBuildInfo", "CPrefetch", "Metrics", "Configuration", "SluiceModel", "StreamScheduling",
            "DeliveryCore", "SimulatedEventLoop", "SimulatedHTTP2", "SimulatedAPNS", "SimulatedKafka",
            "SimulatedRetryStore", "StoreEncryption", .product(name: "Logging", package: "swift-log"),
        ]),
    .target(
        name: "WorkerSimulation",
        dependencies: [
            "Configuration", "DeliveryCore", "SluiceModel", "SimulatedEventLoop", "SimulatedHTTP2",
            "SimulatedKafka", "SimulatedRetryStore", "SimulatedGateway",
            .product(name: "Logging", package: "swift-log"),
        ],
        path: "Tests/Simulation/WorkerSimulation", swiftSettings: hot + simulated),
    .executableTarget(
        name: "sluice-simulate",
        dependencies: [
            "DeliveryCore", "WorkerSimulation",
            .product(name: "ArgumentParser", package: "swift-argument-parser"),
        ], path: "Tests/Simulation/Simulate", swiftSettings: strict),
    .testTarget(
        name: "WorkerSimulationTests",
        dependencies: [
            "SimulatedEventLoop", "SimulatedAPNS", "SimulatedHTTP2", "SimulatedKafka", "SluiceModel",
            "StreamScheduling", "SimulatedRetryStore", "SimulatedStoreSteps", "StoreSteps", "TestSupport",
            "DeliveryCore", "WorkerSimulation",
        ], swiftSettings: strict),
]

// A copy of the package with deliberate mistakes builds only the judges of the mistakes.
if Context.environment["SLUICE_MUTATIONS"] != nil {
    let judges: Set = [
        "StreamSchedulingTests", "DeliveryCoreTests", "HTTP2Tests", "KafkaTests", "GatewayTests",
    ]
    package.targets.removeAll {
        $0.type == .test && !judges.contains($0.name) || $0.path?.hasPrefix("Benchmarks/") == true
    }
    package.products = []
}

// Needs the compiler's fuzzing library at link time: `make fuzz` asks for it.
if Context.environment["SLUICE_FUZZ"] != nil {
    package.targets.append(
        .executableTarget(
            name: "sluice-fuzz-frames", dependencies: ["FrameFuzzing"], path: "Tests/Fuzz/Frames",
            // `main` is the fuzzing library's.
            swiftSettings: strict + [.unsafeFlags(["-parse-as-library"])]))
}
