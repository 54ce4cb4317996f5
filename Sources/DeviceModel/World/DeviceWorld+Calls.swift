import SluiceModel

/// VoIP pushes, which reach the app only. The app must report a call.
extension DeviceWorld {
    mutating func arriveCall(_ push: TransitPush, now: Int64) {
        let reports = appTable[push.app].backgroundModes?.contains("voip") ?? true
        let unreported = with(push.device, push.app) { installation -> UInt8 in
            installation.unreportedCalls =
                reports ? 0 : installation.unreportedCalls &+ (installation.unreportedCalls < 200 ? 1 : 0)
            return installation.unreportedCalls
        }
        guard reports else {
            // The number of failures that stops the launches is not published.
            if let unreported, unreported > 3 {
                note(.voipStopped, push.number, now: now)
                return conclude(.dropped, push.number, device: push.device, app: push.app, now: now)
            }
            note(.voipNotReported, push.number, now: now)
            return conclude(.dropped, push.number, device: push.device, app: push.app, now: now)
        }
        note(.voipCall, push.number, now: now)
        devices[Int(push.device)]?.call = Device.Call(
            app: push.app, push: push.number, at: now, payload: push.payload)
        conclude(.woken, push.number, device: push.device, app: push.app, now: now)
        report(.call, device: push.device, app: push.app, push: push.number, now: now)
    }
}
