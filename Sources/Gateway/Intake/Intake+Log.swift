import DeliveryCore
import EventLoop
import Logging

/// Logs the machine's notes.
extension Intake {
    func log(_ note: WorkerNote) {
        switch note {
        case .partitionsAssigned(let numbers):
            logger.info("partitions assigned", metadata: ["partitions": list(numbers)])
        case .partitionsRevoked(let numbers, let isLost):
            logger.log(
                level: isLost ? .warning : .info, isLost ? "partitions lost" : "partitions revoked",
                metadata: ["partitions": list(numbers)])
        case .takeOverFailed(let numbers, let fault):
            logger.warning(
                "partitions can't be taken over yet: Kafka doesn't answer, or a transaction of their former owner is open; tried again",
                metadata: ["partitions": list(numbers), "error": "\(fault)"])
        case .restoring(let numbers):
            logger.info(
                "partitions come; what is held is restored first", metadata: ["partitions": list(numbers)])
        case .copyTooOld(let partition):
            logger.warning(
                "the local copy is older than the changelog; it begins anew",
                metadata: ["partition": "\(partition)"])
        case .restoreInterrupted(let partition, let fault):
            logger.warning(
                "Kafka doesn't answer for a partition of the changelog; it is asked again within seconds",
                metadata: ["partition": "\(partition)", "error": "\(fault)"])
        case .metadataNotOurs(let partition, let problem):
            logger.warning(
                "the commit's metadata is not ours; what was finished above it is done again",
                metadata: ["partition": "\(partition)", "problem": "\(problem)"])
        case .logWentBack(let partition, let from, let to):
            logger.warning(
                "the partition's offsets went back: was its topic made anew?",
                metadata: ["partition": "\(partition)", "from": "\(from)", "to": "\(to)"])
        case .secondOutcome(let partition, let offset):
            logger.error(
                "a second outcome for one record",
                metadata: ["partition": "\(partition)", "offset": "\(offset)"])
        case .membershipInDoubt(let partitions):
            logger.warning(
                "this process was stopped for a while, or its Kafka thread was held up: nothing is sent until the group confirms its partitions",
                metadata: ["partitions": "\(partitions)"])
        case .invariantBroken(let problem):
            logger.error(
                "the worker is in a state that can't be: report it, and restart the worker when it suits",
                metadata: ["state": "\(problem)"])
        case .pausedForWindow, .pausedForShare, .pausedForLimit: logPause(note)
        case .commitFailed, .lastCommitFailed, .lastOffsetsUnsafe, .transactionStepFailed,
            .transactionAborted, .lastTransactionOpen:
            logCommit(note)
        case .storeFailed, .storeWorks, .storeIsBehind, .storeHasCaughtUp: logStore(note)
        case .draining, .drainDeadline, .failed, .stopsAtOnce: logEnd(note)
        }
    }

    private func list(_ numbers: [Int32]) -> Logger.MetadataValue {
        "\(numbers.sorted().map { "\($0)" }.joined(separator: ","))"
    }

    private func logPause(_ note: WorkerNote) {
        switch note {
        case .pausedForWindow(let partition, let watermark, let finishedAbove):
            logger.warning(
                "a job holds its partition's watermark; the partition is paused until it is finished",
                metadata: [
                    "partition": "\(partition)", "offset": "\(watermark)",
                    "finished-above": "\(finishedAbove)",
                ])
        case .pausedForShare(let partition, let jobs, let bytes):
            logger.warning(
                "one partition's jobs are held for long and take too much room; it is paused alone",
                metadata: ["partition": "\(partition)", "jobs": "\(jobs)", "bytes": "\(bytes)"])
        case .pausedForLimit(let jobs, let bytes):
            logger.info(
                "at the limit of jobs in flight; partitions paused",
                metadata: ["jobs": "\(jobs)", "bytes": "\(bytes)"])
        default: break
        }
    }

    private func logCommit(_ note: WorkerNote) {
        switch note {
        case .commitFailed(let fault):
            logger.warning("offsets were not committed; tried again", metadata: ["error": "\(fault)"])
        case .lastCommitFailed:
            logger.error("the last commit failed; the jobs finished since the one before will be done again")
        case .lastOffsetsUnsafe:
            logger.error(
                "the last offsets are not committed, as changes of the store did not reach the changelog; what they stand for will be done again"
            )
        case .transactionStepFailed(let result):
            logger.warning(
                "a step of the transaction did not succeed",
                metadata: [
                    "step": "\(result.step)", "error": "\(result.failure.map { "\($0.fault)" } ?? "")",
                ])
        case .transactionAborted(let fault):
            logger.warning(
                "a transaction was aborted; what it held is produced again", metadata: ["error": "\(fault)"])
        case .lastTransactionOpen:
            logger.error("the last transaction is not committed; its jobs will be done again")
        default: break
        }
    }

    private func logStore(_ note: WorkerNote) {
        switch note {
        case .storeFailed:
            logger.error(
                "the store failed; nothing is read until it works again",
                metadata: storeFailure.map { ["error": "\($0)"] })
        case .storeWorks: logger.notice("the store works again; reading goes on")
        case .storeIsBehind: logger.notice("the store is behind; nothing is read until it has caught up")
        case .storeHasCaughtUp: logger.notice("the store has caught up; reading goes on")
        default: break
        }
    }

    private func logEnd(_ note: WorkerNote) {
        switch note {
        case .draining(let jobs):
            stopNote.note(at: .read())
            logger.info("draining", metadata: ["jobs": "\(jobs)"])
        case .drainDeadline(let jobs):
            logger.warning(
                "the drain deadline has come; jobs in flight will be done again",
                metadata: ["jobs": "\(jobs)"])
        case .failed(let fault):
            logger.critical("the worker stops", metadata: ["reason": "\(describe(fault))"])
        case .stopsAtOnce(let fault):
            stopNote.note(at: .read())
            logger.critical("the worker stops at once", metadata: ["reason": "\(describe(fault))"])
        default: break
        }
    }

    /// Returns text for people: the fault, its place, and the remedy.
    func describe(_ failure: WorkerFault) -> String {
        let error = failure.fault.map { "\($0)" } ?? ""
        switch failure.cause {
        case .other(let text): return text
        case .consumer: return "the consumer has failed: \(error)"
        case .instanceTaken:
            return
                "another worker of the group has this one's kafka.instance-id (or POD_NAME); give each its own: \(error)"
        case .producer: return "the producer has failed: \(error)"
        case .fenced:
            return """
                another worker has this one's transactional identifier (the group and the identity of the store: each \
                worker needs a store directory of its own), or Kafka has aborted a transaction that was open for longer \
                than transaction.timeout.ms: \(error)
                """
        case .transactions where failure.fault?.name == "INVALID_TXN_STATE":
            return """
                Kafka has ended the open transaction already, for example while the process was stopped; its jobs are \
                done again: \(error)
                """
        case .transactions:
            return """
                transactions have failed; where Kafka refuses them, the worker needs the rights to write and describe \
                its transactional identifiers, which begin with the group's name: \(error)
                """
        case .refusedRecord(let topic):
            return """
                Kafka refuses a record for \(topic): \(error); give the worker the right to write there, or raise \
                max.message.bytes of the topic
                """
        case .commitMetadata:
            return """
                the brokers refuse the metadata of commits, which has up to \(CommitMetadata.maximumBytes) bytes; set \
                offset.metadata.max.bytes of the brokers to at least that: \(error)
                """
        case .changelog: return "a change of the store did not reach the changelog: \(error)"
        case .logWentBack(let partition):
            return """
                the offsets of partition \(partition) of the jobs topic went back, because the topic was made anew or the \
                group's offsets were set back: the worker starts over from what is committed, so that no outcome comes twice
                """
        case .offsetTooHigh(let partition, let offset):
            return """
                partition \(partition) of the jobs topic has a record with offset \(offset), above \
                \(OutcomeSource.offsets.upperBound), the highest that is handled: produce to a topic that was made anew
                """
        }
    }
}
