// APNSSimulator
