import DeliveryCore
import SluiceModel
import StreamScheduling

/// Present faults of APNs, Kafka and the store.
struct Weather {
    /// By topic: whether APNs refuses its credential.
    var isTopicBroken: [Bool]
    /// By topic: whether a wrong setting makes every token wrong.
    var isTopicWrong: [Bool]
    /// By token: whether APNs accepts no more pushes for it.
    var isBusy: [Bool]
    /// Whether the endpoint answers 500 and 503 mostly.
    var isEndpointDown = false
    var isStoreBroken = false
    var isKafkaSlow = false

    init(_ scenario: Scenario) {
        isTopicBroken = [Bool](repeating: false, count: scenario.topics)
        isTopicWrong = isTopicBroken
        isBusy = [Bool](repeating: false, count: scenario.tokens)
    }
}

/// Sending of pushes, and APNs' answers.
extension World {
    // MARK: Requests

    func sendSome(_ count: Int) {
        let worker = anyWorker()
        _ = sendAll(worker, worker.shards[draw.below(worker.shards.count)], atMost: count)
    }

    /// Sends as many pushes as the connections accept. Returns the number of pushes tried.
    func sendAll(_ worker: WorkerModel, _ shard: ShardModel, atMost: Int) -> Int {
        var count = 0
        for (number, pool) in shard.pools.enumerated() where violation == nil {
            var gate = shard.machine.poolGate(UInt16(number), at: now(worker))
            if gate == .closed { continue }
            while count < atMost, violation == nil,
                let place = pool.scheduler.nextAssignment(now: monotonic, urgentOnly: gate == .urgentOnly)
            {
                count += 1
                guard send(place, worker, shard, pool), gate == .probe else { continue }
                shard.machine.probed(UInt16(number), at: now(worker))
                gate = shard.machine.poolGate(UInt16(number), at: now(worker))
                if gate == .closed { break }
            }
            if draw.chance(500) { pool.scheduler.endRun() }
        }
        return count
    }

    /// - Returns: whether the push has left.
    private func send(
        _ place: StreamScheduler.Assignment, _ worker: WorkerModel, _ shard: ShardModel, _ pool: PoolModel
    ) -> Bool {
        let slot = place.slot
        let index = Int(place.connection)
        let now = now(worker)
        let copy = shard.copies[Int(slot)]
        guard copy.isLive else {
            broken(.sound, "slot \(slot) is to be sent, and is empty")
            return false
        }
        if !shard.machine.beginAttempt(slot, at: now) {
            happened(.notBegun)
            pool.scheduler.withdrawn(slot: slot, now: monotonic)
            pool.report(index)
            drain(worker, shard)
            return false
        }
        checkBegin(copy, slot, worker, shard, pool, index)
        if !isHealthy, draw.chance(10) {
            happened(.notSent)
            note(worker, shard, "push # isn't taken by its connection", copy.job)
            pool.scheduler.withdrawn(slot: slot, now: monotonic)
            pool.report(index)
            shard.copies[Int(slot)].retrySteps = -1
            shard.machine.notSent(slot, at: now)
            // The moment of the first attempt is undone, unless the push was sent before.
            if shard.machine.info(slot).progress.firstSentMilliseconds == 0 {
                shard.copies[Int(slot)].firstSent = 0
            }
            drain(worker, shard)
            return false
        }
        happened(.sent)
        note(worker, shard, "sends push # on connection #, offset #", copy.job, index, Int(copy.epoch))
        began(slot, index, worker, shard, pool)
        return true
    }

    // MARK: Answers

    func answerSome() {
        let worker = anyWorker()
        let shard = worker.shards[draw.below(worker.shards.count)]
        let pool = shard.pools[draw.below(shard.pools.count)]
        let first = draw.below(pool.connections.count)
        for offset in pool.connections.indices {
            let index = (first + offset) % pool.connections.count
            guard !pool.connections[index].streams.isEmpty else { continue }
            let stream = draw.below(pool.connections[index].streams.count)
            return answer(pool.connections[index].streams[stream], worker, shard, pool)
        }
    }

    func answer(_ slot: UInt32, _ worker: WorkerModel, _ shard: ShardModel, _ pool: PoolModel) {
        let copy = shard.copies[Int(slot)]
        let token = tokens[copy.address]
        if token.invalidSince > 0 {
            refuse(
                slot, isHealthy || draw.chance(900) ? .unregistered : .badDeviceToken,
                since: token.invalidSince, worker,
                shard, pool)
        } else if isHealthy {
            accept(slot, worker, shard, pool)
        } else if weather.isTopicBroken[jobs[copy.job].topic] {
            refuse(slot, draw.chance(500) ? .topicDisallowed : .invalidProviderToken, worker, shard, pool)
        } else if weather.isTopicWrong[jobs[copy.job].topic] {
            let wrong: Reason = draw.chance(500) ? .badDeviceToken : .deviceTokenNotForTopic
            refuse(slot, draw.chance(100) ? .payloadTooLarge : wrong, worker, shard, pool)
        } else if weather.isBusy[copy.address] {
            refuse(
                slot, .tooManyRequests, retryAfter: draw.chance(400) ? draw.spread(1...60) : 0, worker, shard,
                pool)
        } else if draw.chance(weather.isEndpointDown ? 850 : scenario.badAnswerPerMille) {
            let reasons: [Reason] = [
                .internalServerError, .serviceUnavailable, .serviceUnavailable, .shutdown,
                .expiredProviderToken,
                .idleTimeout, .tooManyProviderTokenUpdates, .payloadTooLarge, .badTopic, .badDeviceToken,
                .tooManyRequests,
                .topicDisallowed, .unregistered, .forbidden,
            ]
            let reason = reasons[draw.below(weather.isEndpointDown ? 4 : reasons.count)]
            refuse(
                slot, reason, retryAfter: draw.chance(300) ? draw.spread(1...60) : 0,
                since: reason == .unregistered ? trueMilliseconds - Int64(draw.below(60_000)) : 0, worker,
                shard, pool)
        } else {
            accept(slot, worker, shard, pool)
        }
    }

    private func accept(_ slot: UInt32, _ worker: WorkerModel, _ shard: ShardModel, _ pool: PoolModel) {
        let copy = shard.copies[Int(slot)]
        happened(.accepted)
        note(worker, shard, "push # is accepted", copy.job)
        land(slot, worker, shard, pool)
        seen(copy)
        heard(slot, .accepted, worker, shard)
        shard.machine.accepted(slot, at: now(worker))
        drain(worker, shard)
        if jobs[copy.job].facts.delivery != .confirm { checkEnded(slot, copy, shard, "was accepted") }
    }

    private func refuse(
        _ slot: UInt32, _ reason: Reason, retryAfter seconds: Int = 0, since: Int64 = 0,
        _ worker: WorkerModel,
        _ shard: ShardModel, _ pool: PoolModel
    ) {
        let copy = shard.copies[Int(slot)]
        var answer = AttemptAnswer(
            class: reason.class, reason: reason, retryAfterMilliseconds: Int64(seconds) * 1000,
            mustWait: reason.class == .connection && draw.chance(300))
        if since > 0 { answer.invalidSinceMilliseconds = since }
        count(reason)
        note(
            worker, shard, "push # is refused with reason #, Retry-After #", copy.job, Int(reason.rawValue),
            seconds)
        land(slot, worker, shard, pool)
        heard(slot, answer, worker, shard)
        if reason == .tooManyProviderTokenUpdates { rest(copy.pool, worker) }
        shard.machine.answered(slot, answer, at: now(worker))
        drain(worker, shard)
        afterRefusal(slot, copy, answer, worker, shard)
    }

    /// Lets the pool rest on all shards, because they share its key.
    private func rest(_ pool: Int, _ worker: WorkerModel) {
        happened(.poolRests)
        let until = monotonic + 10_000_000_000
        for shard in worker.shards {
            shard.restUntil[pool] = until
            shard.machine.rest(UInt16(pool), until: until, at: now(worker))
        }
    }

    private func count(_ reason: Reason) {
        switch reason.class {
        case .token: happened(.rejectedToken)
        case .job: happened(.rejectedJob)
        case .authentication: happened(.authentication)
        case .configuration: happened(.configuration)
        case .connection: happened(.connectionAnswer)
        default: happened(reason == .tooManyRequests ? .tooManyRequests : .later)
        }
    }

    /// Ends a request without an answer.
    func fail(
        _ slot: UInt32, processed: Bool, _ worker: WorkerModel, _ shard: ShardModel, _ pool: PoolModel
    ) {
        let copy = shard.copies[Int(slot)]
        let avoids = jobs[copy.job].facts.duplicates == .avoid || jobs[copy.job].facts.isOnce
        happened(processed ? (avoids ? .unknownAvoided : .unknown) : .unprocessed)
        note(
            worker, shard, processed ? "push # is lost with its connection" : "push # isn't processed",
            copy.job)
        land(slot, worker, shard, pool)
        // APNs may have processed the request all the same.
        if processed, draw.chance(500), tokens[copy.address].invalidSince == 0 { seen(copy) }
        heard(slot, processed ? .unknown : .unprocessed, worker, shard)
        shard.machine.failed(slot, processed: processed, at: now(worker))
        drain(worker, shard)
        if processed, avoids {
            checkEnded(slot, copy, shard, "may have been delivered and must not be doubled")
        }
        if !processed || !avoids { waits(slot, copy, 0, worker, shard) }
    }

    // MARK: Connections

    /// Ends a connection with all its streams, or sends its GOAWAY.
    func breakConnection() {
        let worker = anyWorker()
        let shard = worker.shards[draw.below(worker.shards.count)]
        let pool = shard.pools[draw.below(shard.pools.count)]
        let index = draw.below(pool.connections.count)
        let isGoAway = draw.chance(500)
        happened(isGoAway ? .goAway : .connectionLost)
        note(worker, shard, isGoAway ? "GOAWAY on connection #" : "connection # is lost", index)
        let streams = pool.connections[index].streams
        // Requests above the last stream were not processed. They fail last first, so that they keep their order.
        let last = draw.below(streams.count + 1)
        pool.connections[index].isDraining = true
        pool.report(index)
        for number in streams.indices.reversed() where violation == nil {
            if number >= last {
                fail(streams[number], processed: false, worker, shard, pool)
            } else if !isGoAway {
                fail(streams[number], processed: true, worker, shard, pool)
            }
        }
        reopen(index, pool)
    }

    /// Replaces an ended connection.
    func reopen(_ index: Int, _ pool: PoolModel) {
        guard pool.connections[index].isDraining, pool.connections[index].streams.isEmpty else { return }
        pool.connections[index] = ConnectionModel(limit: scenario.streams)
        pool.report(index)
    }

    /// Changes the server's stream limit, sometimes to less than the open streams.
    func flapLimit() {
        let worker = anyWorker()
        let shard = worker.shards[draw.below(worker.shards.count)]
        let pool = shard.pools[draw.below(shard.pools.count)]
        let index = draw.below(pool.connections.count)
        let limit = pool.connections[index].limit
        pool.connections[index].limit =
            limit == 1 ? scenario.streams : draw.chance(700) ? 1 : draw.among(1...scenario.streams)
        pool.report(index)
        happened(.limitFlap)
        note(worker, shard, "connection # may have # streams", index, pool.connections[index].limit)
    }

    func changeWeather() {
        switch draw.below(7) {
        case 0:
            let topic = draw.below(scenario.topics)
            weather.isTopicBroken[topic] = !weather.isTopicBroken[topic] && draw.chance(500)
        case 1, 2:
            let token = devices[draw.below(devices.count)].token
            weather.isBusy[token] = !weather.isBusy[token]
            note(weather.isBusy[token] ? "token # is busy" : "token # is not busy any more", token)
        case 3: weather.isEndpointDown = !weather.isEndpointDown && draw.chance(400)
        case 6:
            let topic = draw.below(scenario.topics)
            weather.isTopicWrong[topic] = !weather.isTopicWrong[topic] && draw.chance(500)
        case 4: weather.isStoreBroken = !weather.isStoreBroken && draw.chance(500)
        default: weather.isKafkaSlow = !weather.isKafkaSlow && draw.chance(400)
        }
        counts.events += 1
    }
}
