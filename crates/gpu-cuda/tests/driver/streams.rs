//! Streams and events on the stand-in.

use crate::stand_in::{StandIn, device, failing, failing_code, log, on, on_each};
use gpu_core::DeviceFault;
use gpu_cuda::CudaStreams;

#[test]
fn streams_are_created_on_their_devices_and_destroyed() {
    let name = "streams::streams_are_created_on_their_devices_and_destroyed";
    on(StandIn::default(), name, || {
        let [first, second] = [0, 1].map(|number| gpu_cuda::open(&device(number)).unwrap());
        let contexts = [first.clone(), second.clone(), first];
        let streams = CudaStreams::open(&contexts).unwrap();
        assert_eq!((streams.len(), streams.is_empty()), (3, false));
        let ordinals = [0, 1, 2].map(|at| streams.stream(at).context().ordinal());
        assert_eq!(ordinals, [0, 1, 0]);
        drop((streams, contexts, second));
        let created = log().iter().filter(|line| line.starts_with("stream ")).count();
        let destroyed = log().iter().filter(|line| line.starts_with("no stream ")).count();
        assert_eq!((created, destroyed), (3, 3));
    });
}

#[test]
fn event_of_one_stream_is_waited_for_by_another() {
    on(StandIn::default(), "streams::event_of_one_stream_is_waited_for_by_another", || {
        let contexts = [0, 1].map(|number| gpu_cuda::open(&device(number)).unwrap());
        let streams = CudaStreams::open(&contexts).unwrap();
        let event = streams.record(0).unwrap();
        streams.wait_event(1, &event).unwrap();
        streams.synchronize().unwrap();
        assert!(event.is_complete());
    });
}

#[test]
fn failure_of_a_stream_is_reported() {
    let name = "streams::failure_of_a_stream_is_reported";
    on_each(&failing(["cuStreamCreate 2 2", "cuStreamSynchronize 1 700"]), name, || {
        let context = gpu_cuda::open(&device(0)).unwrap();
        let streams = CudaStreams::open(&[context.clone(), context]);
        let error = streams.and_then(|streams| streams.synchronize()).unwrap_err();
        let expected = match failing_code() {
            2 => DeviceFault::OutOfMemory,
            code => DeviceFault::Unknown(code),
        };
        assert_eq!(error.kind(), expected.into(), "{error:?}");
    });
}
