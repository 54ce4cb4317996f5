import DeliveryCore
import EventLoop
import Kafka
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
            notices.log(
                .warning, .takeOverFailed,
                "partitions can't be taken over yet because Kafka doesn't answer or their former owner's transaction is open; retrying",
                metadata: ["partitions": list(numbers), "error": "\(fault)"])
        case .restoring(let numbers):
            logger.info(
                "restore of assigned partitions started; their jobs wait for it",
                metadata: ["partitions": list(numbers)])
        case .copyTooOld(let partition):
            logger.warning(
                "the local copy is older than the start of the changelog; the restore starts from the beginning",
                metadata: ["partition": "\(partition)"])
        case .restoreInterrupted(let partition, let fault):
            notices.log(
                .warning, .restoreInterrupted, of: Int(partition),
                "restore of a partition was interrupted because Kafka doesn't answer; retrying within seconds",
                metadata: ["partition": "\(partition)", "error": "\(fault)"])
        case .metadataNotOurs(let partition, let problem):
            logger.warning(
                "commit metadata can't be used; jobs finished above the committed offset are processed again",
                metadata: ["partition": "\(partition)", "problem": "\(problem)"])
        case .logWentBack(let partition, let from, let to):
            logger.warning(
                "the partition's offsets went back; check whether its topic was deleted and recreated",
                metadata: ["partition": "\(partition)", "from": "\(from)", "to": "\(to)"])
        case .tailLost(let partition, let committed, let from):
            logger.error(
                "the partition's log has lost its end, as after an unclean leader election; reading goes on behind what was read",
                metadata: [
                    "partition": "\(partition)", "committed": "\(committed)", "from": "\(from)",
                ])
        case .offsetUnexplained(let partition, let committed, let logEnd):
            logger.error(
                "the partition is not read: the group's offset lies beyond the end of its log, and nothing shows whether the log is new or has lost its end; stop the workers and set the group's offset with kafka-consumer-groups --reset-offsets, or delete the offset",
                metadata: [
                    "partition": "\(partition)", "committed": "\(committed)", "log-end": "\(logEnd)",
                ])
        case .secondOutcome(let partition, let offset):
            notices.log(
                .error, .secondOutcome, of: Int(partition),
                "a record has a second outcome",
                metadata: ["partition": "\(partition)", "offset": "\(offset)"])
        case .membershipInDoubt(let partitions):
            notices.log(
                .warning, .membershipInDoubt,
                "the process was stopped for long, or its Kafka thread was held up; nothing is sent until the group confirms its partitions",
                metadata: ["partitions": "\(partitions)"])
        case .pushesHeld(let uncommitted, let awaitsProducer):
            notices.log(
                .error, .pushesHeld,
                awaitsProducer
                    ? "Kafka gives the transactional producer no identifier; no push is begun before"
                    : "outcomes can't be committed; no push is begun until a commit succeeds",
                metadata: ["uncommitted": "\(uncommitted)"])
        case .pushesResumed:
            notices.log(.notice, .pushesResumed, "commits succeed again; pushes are begun again")
        case .invariantBroken(let problem):
            notices.log(
                .error, .invariantBroken,
                "an invariant of the worker is broken; report this as a bug, and restart the worker when convenient",
                metadata: ["state": "\(problem)"])
        case .catchUpCut(let partition, let readTo, let logEnd):
            logger.info(
                "pushes are sent before all uncommitted records of the partition were taken in, because there is no room for more or it took too long",
                metadata: [
                    "partition": "\(partition)", "read-to": "\(readTo)", "log-end": "\(logEnd)",
                ])
        case .pausedForWindow, .pausedForShare, .pausedForLimit: logPause(note)
        case .partitionStopped(let partition, let offset, let topic, let fault):
            logger.error(
                "a partition stopped: Kafka takes the outcome or dead letter of a record in no form, however small; let the topic take it, for instance by a larger max.message.bytes, and restart this worker",
                metadata: [
                    "partition": "\(partition)", "offset": "\(offset)", "topic": "\(topic)",
                    "error": "\(fault)",
                ])
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

    /// Logs an error of the producer that it gets over by itself. Loop's thread only.
    func warn(ofProducer error: KafkaError) {
        notices.log(
            .warning, .producerError, of: Int(error.code), "Kafka producer reported an error",
            metadata: ["error": "\(error)"])
    }

    private func logPause(_ note: WorkerNote) {
        switch note {
        case .pausedForWindow(let partition, let watermark, let finishedAbove):
            notices.log(
                .warning, .windowFull, of: Int(partition),
                "partition paused until the unfinished job that holds its watermark back is finished",
                metadata: [
                    "partition": "\(partition)", "offset": "\(watermark)",
                    "finished-above": "\(finishedAbove)",
                ])
        case .pausedForShare(let partition, let jobs, let bytes):
            notices.log(
                .warning, .shareUsedUp, of: Int(partition),
                "partition paused because its long-held jobs take more than its share of the limits",
                metadata: ["partition": "\(partition)", "jobs": "\(jobs)", "bytes": "\(bytes)"])
        case .pausedForLimit(let jobs, let bytes):
            notices.log(
                .info, .limitReached,
                "partitions paused because the limit of jobs or bytes in flight is reached",
                metadata: ["jobs": "\(jobs)", "bytes": "\(bytes)"])
        default: break
        }
    }

    private func logCommit(_ note: WorkerNote) {
        switch note {
        case .commitFailed(let fault):
            notices.log(
                .warning, .commitFailed, "offsets were not committed; retrying",
                metadata: ["error": "\(fault)"])
        case .lastCommitFailed:
            logger.error(
                "the last commit failed; jobs finished since the previous commit will be processed again")
        case .lastOffsetsUnsafe:
            logger.error(
                "the last offsets are not committed because changes of the store did not reach the changelog; their jobs will be processed again"
            )
        case .transactionStepFailed(let result):
            notices.log(
                .warning, .transactionStepFailed,
                "a step of the transaction failed",
                metadata: [
                    "step": "\(result.step)", "error": "\(result.failure.map { "\($0.fault)" } ?? "")",
                ])
        case .transactionAborted(let fault):
            notices.log(
                .warning, .transactionAborted,
                "transaction aborted; its records are produced again", metadata: ["error": "\(fault)"])
        case .lastTransactionOpen:
            logger.error("the last transaction is not committed; its jobs will be processed again")
        default: break
        }
    }

    private func logStore(_ note: WorkerNote) {
        switch note {
        case .storeFailed:
            notices.log(
                .error, .storeFailed,
                "the store failed; nothing is read until it works again",
                metadata: storeFailure.map { ["error": "\($0)"] } ?? [:])
        case .storeWorks: notices.log(.notice, .storeWorks, "the store works again; reading resumes")
        case .storeIsBehind:
            notices.log(
                .notice, .storeIsBehind, "the store is behind; nothing is read until it has caught up")
        case .storeHasCaughtUp:
            notices.log(.notice, .storeHasCaughtUp, "the store has caught up; reading resumes")
        default: break
        }
    }

    private func logEnd(_ note: WorkerNote) {
        switch note {
        case .draining(let jobs):
            stopNote.note(at: .read())
            logger.info("the worker is draining; it takes no new jobs", metadata: ["jobs": "\(jobs)"])
        case .drainDeadline(let jobs):
            logger.warning(
                "the drain deadline has passed; jobs in flight will be processed again",
                metadata: ["jobs": "\(jobs)"])
        case .failed(let fault):
            logger.critical(
                "the worker stops because of a failure", metadata: ["reason": "\(describe(fault))"])
        case .stopsAtOnce(let fault):
            stopNote.note(at: .read())
            logger.critical(
                "the worker stops at once because of a failure", metadata: ["reason": "\(describe(fault))"])
        default: break
        }
    }

    /// Returns text for people: the fault, its place, and the remedy.
    func describe(_ failure: WorkerFault) -> String {
        let error = failure.fault.map { "\($0)" } ?? ""
        switch failure.cause {
        case .other(let text): return text
        case .consumer: return "the Kafka consumer failed: \(error)"
        case .instanceTaken:
            return
                "another worker of the group has the same kafka.instance-id (or POD_NAME); give each worker its own: \(error)"
        case .producer: return "the Kafka producer failed: \(error)"
        case .fenced:
            return """
                another worker has the same transactional identifier, or Kafka aborted a transaction that was open for longer \
                than transaction.timeout.ms; give each worker its own store.directory, because the identifier is made of the \
                group and the store's identity: \(error)
                """
        case .transactions where failure.fault?.name == "INVALID_TXN_STATE":
            return """
                Kafka has already ended the open transaction, for example while the process was stopped; its jobs are \
                processed again: \(error)
                """
        case .transactions:
            return """
                transactions failed; if Kafka refuses them, give the worker the rights to write and describe its \
                transactional identifiers, which begin with the group's name: \(error)
                """
        case .refusedRecord(let topic):
            return """
                Kafka refuses a record for \(topic): \(error); give the worker the right to write to the topic, or \
                raise the topic's max.message.bytes
                """
        case .commitMetadata:
            return """
                the brokers refuse the metadata of commits, which has up to \(CommitMetadata.maximumBytes) bytes; set \
                the brokers' offset.metadata.max.bytes to at least that number: \(error)
                """
        case .store:
            return """
                the store fails until it is opened anew; the worker restarts: \
                \(storeFailure.map { "\($0)" } ?? "")
                """
        case .changelog: return "a change of the store did not reach the changelog: \(error)"
        case .logWentBack(let partition):
            return """
                the offsets of partition \(partition) of the jobs topic went back because the topic was recreated or the \
                group's offsets were reset; the worker restarts from the committed offsets so that no outcome is repeated
                """
        case .tailLost(let partition):
            return """
                the offsets of partition \(partition) of the jobs topic went back and its log isn't new, as after an unclean \
                leader election; the worker ends what is in flight, commits, and starts over
                """
        case .offsetTooHigh(let partition, let offset):
            return """
                partition \(partition) of the jobs topic has a record with offset \(offset), above \
                \(OutcomeSource.offsets.upperBound), the highest supported offset; produce to a new topic
                """
        }
    }
}
