import DequeModule

/// The connection to the group's coordinator, which reads requests one after the other.
struct KafkaGroupLink {
    enum Request {
        case join(Int, PartitionSet, Int32)
        case sync(Int, Int32, Int32)
        case heartbeat(Int, Int32, Int32)
        case leave(Int)
        case commit(Int, Int, Int32, [KafkaModel.OffsetCommit])
        case fetch(Int, PartitionSet, Bool)
    }

    enum Answer {
        case joined(Int, Int32, KafkaModel.Failure?, Int32)
        case synced(PartitionSet, KafkaModel.Failure?, Int32)
        case heartbeat(KafkaModel.Failure?, Int32)
        case committed(Int, KafkaModel.Failure?, KafkaModel.Membership)
        case fetched(Int, [KafkaModel.CommittedOffset], KafkaModel.Failure?)
    }

    /// Requests on their way to the coordinator, and answers on their way back.
    var requests = Deque<Request>()
    var answers = Deque<Answer>()
    var requestAt: UInt64 = 0
    var answerAt: UInt64 = 0
    /// Number that voids requests and answers from before the coordinator became unreachable.
    var epoch: Int32 = 0
    /// True while a join or sync waits for other members; requests behind it aren't read.
    var isHeld = false
    var heldEpoch: Int32 = 0
    var held = Deque<Request>()
}

extension KafkaModel {
    func send(_ client: Client, _ request: KafkaGroupLink.Request) {
        client.link.requestAt = max(now + drawDelay(), client.link.requestAt + 1)
        client.link.requests.append(request)
        timers.add(.groupRequest, at: client.link.requestAt, client: client.id, epoch: client.link.epoch)
    }

    func answer(_ client: Client, _ answer: KafkaGroupLink.Answer) {
        client.link.isHeld = false
        guard !client.isDead else { return }
        client.link.answerAt = max(now + drawDelay(), client.link.answerAt + 1)
        client.link.answers.append(answer)
        timers.add(.groupAnswer, at: client.link.answerAt, client: client.id, epoch: client.link.epoch)
    }

    func groupRequest(_ client: Client, _ epoch: Int32) {
        guard client.link.epoch == epoch, let request = client.link.requests.popFirst() else { return }
        guard !group.isAway else { return refuse(client, request) }
        if client.link.isHeld { return client.link.held.append(request) }
        serve(client, request)
    }

    func serveHeld(_ client: Client) {
        while !client.link.isHeld, let request = client.link.held.popFirst() { serve(client, request) }
    }

    private func serve(_ client: Client, _ request: KafkaGroupLink.Request) {
        switch request {
        case .join(let member, let owned, let epoch): joinArrives(client, member, owned, epoch)
        case .sync(let member, let generation, let epoch): syncArrives(client, member, generation, epoch)
        case .heartbeat(let member, let generation, let epoch):
            heartbeatArrives(client, member, generation, epoch)
        case .leave(let member): leaveArrives(member)
        case .commit(let reference, let member, let generation, let offsets):
            let membership = Membership(member: member, generation: generation)
            commitArrives(client, reference, membership, offsets)
        case .fetch(let reference, let partitions, let requireStable):
            fetchArrives(client, reference, partitions, requireStable)
        }
    }

    private func refuse(_ client: Client, _ request: KafkaGroupLink.Request) {
        switch request {
        case .join(_, _, let epoch): answer(client, .joined(0, 0, .coordinatorAway, epoch))
        case .sync(_, _, let epoch): answer(client, .synced([], .coordinatorAway, epoch))
        case .heartbeat(_, _, let epoch): answer(client, .heartbeat(.coordinatorAway, epoch))
        case .leave: break
        case .commit(let reference, let member, let generation, _):
            answer(
                client,
                .committed(
                    reference, .coordinatorAway, Membership(member: member, generation: generation)))
        case .fetch(let reference, _, _): answer(client, .fetched(reference, [], .coordinatorAway))
        }
    }

    /// Drops all requests and answers under way, because the coordinator is unreachable.
    func disconnect(_ client: Client) {
        client.link.epoch &+= 1
        let isHeld = client.link.isHeld
        client.link.isHeld = false
        let answers = client.link.answers.takeAll()
        let requests = client.link.held.takeAll() + client.link.requests.takeAll()
        guard !client.isDead else { return }
        for lost in answers {
            switch lost {
            case .joined(_, _, _, let epoch): answer(client, .joined(0, 0, .coordinatorAway, epoch))
            case .synced(_, _, let epoch): answer(client, .synced([], .coordinatorAway, epoch))
            case .heartbeat(_, let epoch): answer(client, .heartbeat(.coordinatorAway, epoch))
            case .committed(let reference, _, let membership):
                answer(client, .committed(reference, .coordinatorAway, membership))
            case .fetched(let reference, _, _): answer(client, .fetched(reference, [], .coordinatorAway))
            }
        }
        if isHeld {
            let epoch = client.link.heldEpoch
            // The state distinguishes a join from a sync; the answer to an older request is ignored.
            answer(
                client,
                client.consumer.joinState == .syncing
                    ? .synced([], .coordinatorAway, epoch) : .joined(0, 0, .coordinatorAway, epoch))
        }
        for request in requests { refuse(client, request) }
    }

    func groupAnswer(_ client: Client, _ epoch: Int32) {
        guard client.link.epoch == epoch, let answer = client.link.answers.popFirst() else { return }
        let current = client.consumer.joinEpoch
        switch answer {
        case .joined(let member, let generation, let failure, let epoch):
            if epoch == current, client.consumer.joinState == .joining {
                joined(client, member, generation, failure)
            }
        case .synced(let set, let failure, let epoch):
            if epoch == current, client.consumer.joinState == .syncing { synced(client, set, failure) }
        case .heartbeat(let failure, let epoch):
            client.heartbeats += 1
            if epoch == current { heartbeatAnswered(client, failure) }
        case .committed(let reference, let failure, let membership):
            committed(client, reference, failure, membership)
        case .fetched(let reference, let offsets, let failure):
            client.events.append(.fetchedCommitted(reference: reference, offsets, failure))
        }
    }
}
