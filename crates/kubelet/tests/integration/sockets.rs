//! Which answers of a socket are accepted.

use crate::stand_in::{
    ALPHA, Answer, BETA, ClaimResource, Dynamic, LIST, StandIn, container, pod, resources,
};
use gpu_core::{Error, ErrorKind};
use gpu_kubelet::{DeviceName, Kubelet, Pods};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};
use std::time::Duration;

const UID: &str = "2f44e1c1-8a5b-4c0e-9d0e-5f3b6a7c8d9e";

/// Returns the user who runs the test, and therefore serves the sockets.
fn own_uid() -> u32 {
    std::fs::metadata("/proc/self").expect("/proc").uid()
}

fn asked(stand_in: &StandIn) -> (Pods, Vec<Error>) {
    Kubelet::at(stand_in.dir(), &[own_uid()]).with_deadline(Duration::from_secs(20)).pods()
}

fn honest() -> Answer {
    let train = container("train", "nvidia.com/gpu", &["GPU-1", "GPU-2::3"]);
    let other = container("side", "example.com/nic", &["7"]);
    Answer::list(vec![resources("lab", "job-0", vec![train, other])], LIST)
}

#[test]
fn devices_and_pods_are_read() {
    let pods = Answer::list(vec![pod("lab", "job-0", UID, &[("train", "4c01")])], ALPHA);
    let stand_in = StandIn::new(Some(honest()), Some(pods));
    let kubelet = Kubelet::at(stand_in.dir(), &[own_uid()]);
    assert!(kubelet.is_there());
    let (pods, errors) = asked(&stand_in);
    assert!(errors.is_empty(), "{errors:?}");
    let [assigned] = &pods.assigned[..] else { panic!("{pods:?}") };
    assert_eq!((&*assigned.namespace, &*assigned.pod), ("lab", "job-0"));
    assert_eq!((&*assigned.container, assigned.devices.len()), ("train", 2));
    let [known] = &pods.known[..] else { panic!("{pods:?}") };
    assert_eq!((&*known.uid, &*known.name), (UID, "job-0"));
    assert_eq!(known.containers, [("4c01".to_owned(), "train".to_owned())]);
    // The first version requested does not exist here.
    assert_eq!(stand_in.calls(), 3);
}

#[test]
fn requests_newest_pod_version_first() {
    let pods = Answer::list(vec![pod("lab", "job-0", UID, &[])], BETA);
    let stand_in = StandIn::new(None, Some(pods));
    assert_eq!(asked(&stand_in).0.known.len(), 1);
    assert_eq!(stand_in.calls(), 1);
}

#[test]
fn machine_without_kubelet_is_not_an_error() {
    let stand_in = StandIn::new(None, None);
    assert!(!Kubelet::at(stand_in.dir(), &[own_uid()]).is_there());
    assert!(
        matches!(asked(&stand_in), (pods, errors) if pods == Pods::default() && errors.is_empty())
    );
    // A kubelet leaves its socket behind when it exits.
    let socket = stand_in.dir().join("pod-resources/kubelet.sock");
    std::fs::create_dir_all(socket.parent().unwrap()).unwrap();
    drop(UnixListener::bind(&socket).unwrap());
    assert!(asked(&stand_in).1.is_empty());
}

#[test]
fn rejects_socket_of_another_user() {
    let stand_in = StandIn::new(Some(honest()), None);
    let (pods, errors) = Kubelet::at(stand_in.dir(), &[own_uid() + 1]).pods();
    assert_eq!(pods, Pods::default());
    let [error] = &errors[..] else { panic!("{errors:?}") };
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let text = error.fault().text;
    assert!(text.contains(&format!("served by user {}, not by root", own_uid())), "{text}");
    assert!(text.contains("kubelet.sock"), "{text}");
    assert_eq!(stand_in.calls(), 0, "it is not asked either");
}

#[test]
fn reports_invalid_answers_without_using_them() {
    let named = |namespace: &str, name: &str, container: &str| {
        let container = crate::stand_in::container(container, "nvidia.com/gpu", &["GPU-1"]);
        let honest = crate::stand_in::container("c", "nvidia.com/gpu", &["GPU-0"]);
        let pods = vec![
            resources("lab", "honest", vec![honest]),
            resources(namespace, name, vec![container]),
        ];
        Answer::list(pods, LIST)
    };
    let message = |bytes: &[u8]| Answer::Message(bytes.to_vec(), LIST);
    for (answer, expected) in [
        (named("lab", "a\u{1b}[2J", "c"), "has a pod name that Kubernetes does not allow"),
        (named("lab", "--all", "c"), "has a pod name that Kubernetes does not allow"),
        (named("", "job", "c"), "has a pod name that Kubernetes does not allow"),
        (named("lab", "job", &"c".repeat(300)), "has a pod name that Kubernetes does not allow"),
        (message(&[0xff; 64]), "failed to decode"),
        (message(&[0x0a, 0x7f, 1]), "failed to decode"),
        // A name that is not UTF-8.
        (message(&[0x0a, 0x04, 0x0a, 0x02, 0xc3, 0x28]), "failed to decode"),
        (Answer::Body(Vec::new()), "has no message"),
        (Answer::Body(vec![1, 0, 0, 0, 0]), "not one message"),
        (Answer::Body(vec![0, 0, 0, 0, 9, 1]), "not one message"),
        (Answer::Body(vec![0; 10]), "not one message"),
        (Answer::Body(vec![0, 0xff, 0xff, 0xff, 0xff, 1]), "not one message"),
        (Answer::Endless, "longer than 16 MiB"),
        (Answer::Error("7", "go\taway"), "gRPC status 7"),
        (Answer::Http(404), "HTTP status 404"),
        (Answer::NoTrailers(Vec::new()), "ends without a status"),
        (Answer::Noise, "does not speak gRPC"),
        (Answer::Closed, "does not speak gRPC"),
    ] {
        let what = format!("{answer:?}");
        let what = &what[..what.len().min(200)];
        let (pods, errors) = asked(&StandIn::new(Some(answer), None));
        assert_eq!(pods, Pods::default(), "{what}");
        let [error] = &errors[..] else { panic!("{what}: {errors:?}") };
        assert_eq!(error.kind(), ErrorKind::Invalid, "{what}");
        let text = error.fault().text;
        assert!(text.contains(expected), "{what}: {text}");
        assert!(!text.contains(['\t', '\u{1b}']), "{what}: {text}");
    }
}

#[test]
fn reads_answer_up_to_16_mib() {
    let Answer::Message(list, methods) = honest() else { unreachable!("a message") };
    let answer = |size: usize| {
        // An unknown field: its tag, its length in a varint of four bytes, and its content.
        let content = size - list.len() - 5;
        let length = [0, 7, 14, 21].map(|shift| (content >> shift) as u8 | 0x80);
        let head = [&list[..], &[0x7a], &length[..3], &[length[3] & 0x7f]].concat();
        Answer::Message([head, vec![0; content]].concat(), methods)
    };
    let (pods, errors) = asked(&StandIn::new(Some(answer(16 << 20)), None));
    assert_eq!((pods.assigned.len(), errors.len()), (1, 0), "{errors:?}");
    let (pods, errors) = asked(&StandIn::new(Some(answer((16 << 20) + 1)), None));
    assert_eq!(pods, Pods::default());
    assert!(errors[0].fault().text.contains("longer than 16 MiB"), "{errors:?}");
}

#[test]
fn reads_devices_of_dynamic_allocation_from_one_driver() {
    let mut container = container("train", "example.com/nic", &["7"]);
    let resource = |driver: &str, device: &str| ClaimResource {
        driver_name: driver.to_owned(),
        pool_name: "node".to_owned(),
        device_name: device.to_owned(),
    };
    let resources_of_claim =
        vec![resource("gpu.nvidia.com", "gpu-3"), resource("nic.example.com", "gpu-4")];
    container.dynamic =
        vec![Dynamic { claim_name: "gpu".to_owned(), resources: resources_of_claim }];
    let answer = Answer::list(vec![resources("lab", "job-0", vec![container])], LIST);
    let (pods, errors) = asked(&StandIn::new(Some(answer), None));
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(pods.assigned[0].devices, [DeviceName::Minor(3)]);
}

#[test]
fn rejects_pod_without_uid() {
    let pods = Answer::list(vec![pod("lab", "job", "*", &[])], ALPHA);
    let (pods, errors) = asked(&StandIn::new(Some(honest()), Some(pods)));
    assert_eq!(
        (pods.assigned.len(), pods.known.len()),
        (1, 0),
        "the other socket's answer is used"
    );
    assert!(errors[0].fault().text.contains("lists a pod without a UID"), "{errors:?}");
}

#[test]
fn silent_kubelet_takes_at_most_its_deadline() {
    let stand_in = StandIn::new(Some(Answer::Silent), None);
    let kubelet = Kubelet::at(stand_in.dir(), &[own_uid()]);
    let (pods, errors) = kubelet.with_deadline(Duration::from_millis(50)).pods();
    assert_eq!(pods, Pods::default());
    assert_eq!(errors[0].kind(), ErrorKind::TimedOut);
    assert!(errors[0].fault().text.contains("no answer within 0.1 s"), "{errors:?}");
}

#[test]
fn regular_file_in_place_of_socket_yields_no_pods() {
    let stand_in = StandIn::new(None, None);
    let socket = stand_in.dir().join("pod-resources/kubelet.sock");
    std::fs::create_dir_all(socket.parent().unwrap()).unwrap();
    std::fs::write(&socket, "not a socket").unwrap();
    assert_eq!(asked(&stand_in).0, Pods::default());
}

#[test]
fn understands_reference_grpc_server() {
    let python = std::env::var_os("GPUWS_PYTHON").unwrap_or_else(|| "python3".into());
    let dir = tempfile::tempdir().unwrap();
    let serve = |socket: &str, answer: Answer| {
        let Answer::Message(message, [method, ..]) = answer else { unreachable!("a message") };
        let path = dir.path().join(socket);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let hex: String = message.iter().map(|byte| format!("{byte:02x}")).collect();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/integration/grpcio.py");
        let mut server = Command::new(&python);
        server.arg(script).arg(&path).args([method, hex.as_str()]);
        let mut server = server.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
        let mut line = String::new();
        BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        (line.trim() == "serves").then_some(server)
    };
    let pods = Answer::list(vec![pod("lab", "job-0", UID, &[("train", "4c01")])], ALPHA);
    let servers =
        [serve("pod-resources/kubelet.sock", honest()), serve("pods-api/pods-api.sock", pods)];
    let [Some(resources), Some(pods)] = servers else {
        let _ = writeln!(std::io::stderr(), "skipped: GPUWS_PYTHON has no package 'grpcio'");
        return;
    };
    let kubelet = Kubelet::at(dir.path(), &[own_uid()]).with_deadline(Duration::from_secs(20));
    let (read, errors) = kubelet.pods();
    for mut server in [resources, pods] {
        drop(server.stdin.take());
        assert!(server.wait().unwrap().success());
    }
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!((read.assigned.len(), read.known.len()), (1, 1));
}
