import Gateway
import RetryStore

/// Answer to `/store`: counts that cost nothing to read.
enum StoreDocument {
    static func response(
        _ snapshot: WorkerSnapshot, _ statistics: StoreStatistics, _ purges: PurgeStatus,
        isChangelogBacked: Bool, _ keys: StoreKeyReport? = nil
    ) -> AdminResponse {
        let totals = snapshot.totals
        let intake = snapshot.intake ?? IntakeSnapshot()
        var document: [String: Any] = [
            "partitions": statistics.estimatedItemsByPartition.sorted { $0.key < $1.key }.map {
                ["partition": Int($0.key), "estimated-items": $0.value]
            },
            "estimated-items": statistics.estimatedItems,
            "resident-items": totals.residentItems,
            "devices-in-store": totals.evictedDevices,
            "devices-awaiting-turn": totals.devicesAwaitingTurn,
            "failing": intake.isStoreFailing,
            "queued-bytes": statistics.queuedBytes,
            "disk-bytes": statistics.diskBytes,
            "blob-bytes": statistics.blobBytes,
            "memtable-bytes": statistics.memtableBytes,
            "cache-bytes": statistics.cacheBytes,
            "table-bytes": statistics.tableBytes,
            "pending-compaction-bytes": statistics.pendingCompactionBytes,
            "background-errors": statistics.backgroundErrors,
            "writes-stopped": statistics.isWriteStopped,
            "counters": [
                "puts": totals.store.puts, "removals": totals.store.removals, "loads": totals.store.loads,
                "loaded": totals.store.loaded, "forgotten": totals.store.forgotten,
                "damaged": totals.store.damaged, "undecryptable": totals.store.undecryptable,
                "unsendable": totals.store.unsendable,
                "failures": intake.counters.storeFailures,
            ],
        ]
        document["purges"] = of(purges)
        if isChangelogBacked {
            document["copies"] =
                [
                    "partitions": statistics.copies.map { Int($0) }, "disk-bytes": statistics.copyDiskBytes,
                ] as [String: Any]
        }
        if let keys {
            var encryption: [String: Any] = [
                "encrypts": keys.encrypts ? keys.names.first ?? "" : "", "decrypt": keys.names,
                "kept": keys.kept,
                "renewals": keys.renewals, "renewal-failures": keys.renewalFailures,
            ]
            if let fault = keys.fault { encryption["fault"] = fault }
            document["encryption"] = encryption
        }
        if let changelog = intake.changelog {
            document["restore"] = RestoreDocument.of(intake)
            document["changelog"] =
                [
                    "ends": Dictionary(
                        uniqueKeysWithValues: changelog.ends.map { ("\($0.key)", Int($0.value)) }),
                    "unacknowledged": changelog.unacknowledged,
                ] as [String: Any]
        }
        if let transactions = intake.transactions {
            document["transactions"] =
                [
                    "state": transactions.state, "begun": transactions.begun, "aborted": transactions.aborted,
                    "committed": intake.counters.commits,
                ] as [String: Any]
        }
        return .json(200, document)
    }

    /// Purges: rewriting of files, after which no file has removed data of erased devices.
    static func of(_ purges: PurgeStatus) -> [String: Any] {
        var document: [String: Any] = [
            "opening": purges.opening,
            "pending": purges.pending.sorted { $0.key < $1.key }.map { partition, pending -> [String: Any] in
                var need: [String: Any] = [
                    "partition": Int(partition), "since": StoreSummary.time(pending.since),
                    "requested": pending.isRequested, "failures": pending.failures,
                ]
                if let since = pending.failingSince { need["failing-since"] = StoreSummary.time(since) }
                return need
            },
            "completed": purges.completed, "failed": purges.failed,
            "dropped": purges.dropped.sorted { $0.key < $1.key }.map {
                ["partition": Int($0.key), "purges": $0.value]
            },
        ]
        if let current = purges.current { document["current"] = Int(current) }
        if let last = purges.last {
            var end: [String: Any] = [
                "partition": Int(last.partition), "ended": StoreSummary.time(last.milliseconds),
                "seconds": Double(last.duration) / 1e3,
            ]
            switch last.outcome {
            case .purged: break
            case .dropped: end["dropped"] = true
            case .failed(let failure): end["error"] = "\(failure)"
            }
            document["last"] = end
        }
        return document
    }
}
