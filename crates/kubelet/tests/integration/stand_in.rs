//! A fake kubelet: a gRPC server on a Unix socket that answers correctly or not, as requested.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response};
use prost::Message;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::UnixListener;

/// `v1.PodResources`, with fields that are never read.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct PodResources {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) namespace: String,
    #[prost(message, repeated, tag = "3")]
    pub(crate) containers: Vec<Container>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Container {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) devices: Vec<Devices>,
    #[prost(int64, repeated, tag = "3")]
    pub(crate) cpu_ids: Vec<i64>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) dynamic: Vec<Dynamic>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Devices {
    #[prost(string, tag = "1")]
    pub(crate) resource_name: String,
    #[prost(string, repeated, tag = "2")]
    pub(crate) device_ids: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Dynamic {
    #[prost(string, tag = "2")]
    pub(crate) claim_name: String,
    #[prost(message, repeated, tag = "4")]
    pub(crate) resources: Vec<ClaimResource>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ClaimResource {
    #[prost(string, tag = "2")]
    pub(crate) driver_name: String,
    #[prost(string, tag = "3")]
    pub(crate) pool_name: String,
    #[prost(string, tag = "4")]
    pub(crate) device_name: String,
}

/// `List` and `ListPods` both answer with a list as field 1.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct List {
    #[prost(bytes = "vec", repeated, tag = "1")]
    pub(crate) items: Vec<Vec<u8>>,
}

/// `k8s.io.api.core.v1.Pod`, with a phase.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Pod {
    #[prost(message, optional, tag = "1")]
    pub(crate) metadata: Option<Metadata>,
    #[prost(message, optional, tag = "3")]
    pub(crate) status: Option<Status>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Metadata {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "3")]
    pub(crate) namespace: String,
    #[prost(string, tag = "5")]
    pub(crate) uid: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Status {
    #[prost(string, tag = "1")]
    pub(crate) phase: String,
    #[prost(message, repeated, tag = "8")]
    pub(crate) containers: Vec<ContainerStatus>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ContainerStatus {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "8")]
    pub(crate) container_id: String,
}

/// Returns a container with these devices of a resource.
pub(crate) fn container(name: &str, resource: &str, ids: &[&str]) -> Container {
    let device_ids = ids.iter().map(|id| (*id).to_owned()).collect();
    let devices = vec![Devices { resource_name: resource.to_owned(), device_ids }];
    Container { name: name.to_owned(), devices, cpu_ids: vec![3], dynamic: Vec::new() }
}

/// Returns a pod of the resource list.
pub(crate) fn resources(namespace: &str, name: &str, containers: Vec<Container>) -> PodResources {
    PodResources { name: name.to_owned(), namespace: namespace.to_owned(), containers }
}

/// Returns a pod with its UID and container IDs.
pub(crate) fn pod(namespace: &str, name: &str, uid: &str, containers: &[(&str, &str)]) -> Pod {
    let containers = containers.iter().map(|(name, id)| ContainerStatus {
        name: (*name).to_owned(),
        container_id: format!("containerd://{id}"),
    });
    let containers = containers.collect();
    let (name, namespace, uid) = (name.to_owned(), namespace.to_owned(), uid.to_owned());
    Pod {
        metadata: Some(Metadata { name, namespace, uid }),
        status: Some(Status { phase: "Running".to_owned(), containers }),
    }
}

/// How a socket answers.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// This message for these methods; other methods do not exist.
    Message(Vec<u8>, &'static [&'static str]),
    /// These bytes as the body, with a success status.
    Body(Vec<u8>),
    /// An endless body.
    Endless,
    /// An error in the headers.
    Error(&'static str, &'static str),
    /// An HTTP status.
    Http(u16),
    /// A message without trailers.
    NoTrailers(Vec<u8>),
    /// Accepts the connection and sends nothing.
    Silent,
    /// Sends bytes that are not HTTP/2.
    Noise,
    /// Closes the connection.
    Closed,
}

impl Answer {
    pub(crate) fn list(items: Vec<impl Message>, methods: &'static [&'static str]) -> Self {
        let items = items.iter().map(Message::encode_to_vec).collect();
        Answer::Message(List { items }.encode_to_vec(), methods)
    }
}

pub(crate) const LIST: &[&str] = &["/v1.PodResourcesLister/List"];
pub(crate) const ALPHA: &[&str] = &["/v1alpha1.Pods/ListPods"];
pub(crate) const BETA: &[&str] = &["/v1beta1.Pods/ListPods"];

/// A kubelet's directory, with sockets that are served until the end of the test.
pub(crate) struct StandIn {
    dir: tempfile::TempDir,
    calls: Arc<AtomicUsize>,
    runtime: Option<tokio::runtime::Runtime>,
}

impl StandIn {
    pub(crate) fn new(resources: Option<Answer>, pods: Option<Answer>) -> Self {
        let dir = tempfile::tempdir().expect("temporary directory");
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        runtime.worker_threads(1).enable_all();
        let stand_in = StandIn {
            dir,
            calls: Arc::default(),
            runtime: Some(runtime.build().expect("a runtime")),
        };
        if let Some(answer) = resources {
            stand_in.serve("pod-resources/kubelet.sock", answer);
        }
        if let Some(answer) = pods {
            stand_in.serve("pods-api/pods-api.sock", answer);
        }
        stand_in
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the number of gRPC calls so far.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    fn serve(&self, socket: &str, answer: Answer) {
        let path: PathBuf = self.dir.path().join(socket);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        let runtime = self.runtime.as_ref().expect("it runs");
        let _inside = runtime.enter();
        let listener = UnixListener::bind(&path).expect("a socket");
        let calls = Arc::clone(&self.calls);
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(connection(stream, answer.clone(), Arc::clone(&calls)));
            }
        });
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.runtime.take().into_iter().for_each(tokio::runtime::Runtime::shutdown_background);
    }
}

async fn connection(stream: tokio::net::UnixStream, answer: Answer, calls: Arc<AtomicUsize>) {
    match answer {
        Answer::Silent => std::future::pending().await,
        Answer::Closed => return,
        Answer::Noise => {
            let _ = stream.writable().await;
            let _ = stream.try_write(&[b'x'; 4096]);
            return;
        }
        _ => {}
    }
    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
    while let Some(Ok((request, respond))) = connection.accept().await {
        calls.fetch_add(1, Ordering::SeqCst);
        tokio::spawn(respond_to(request, respond, answer.clone()));
    }
}

async fn respond_to(
    request: http::Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
    answer: Answer,
) {
    let is_grpc = request.headers().get("content-type").is_some_and(|it| it == "application/grpc");
    assert!(is_grpc && request.method() == http::Method::POST, "{request:?}");
    let mut body = request.into_parts();
    let mut asked = Vec::new();
    while let Some(Ok(chunk)) = body.1.data().await {
        asked.extend_from_slice(&chunk);
    }
    assert_eq!(asked, [0; 5], "a message without fields");
    let path = body.0.uri.path().to_owned();
    let ok = || Response::builder().header("content-type", "application/grpc");
    let failed = |status: &str, message: &str| {
        let head = ok().header("grpc-status", status).header("grpc-message", message);
        head.body(()).expect("a response")
    };
    let framed = |message: &[u8]| {
        let length = u32::try_from(message.len()).expect("a short message").to_be_bytes();
        [&[0], &length[..], message].concat()
    };
    let (body, trailers) = match answer {
        Answer::Message(_, methods) if !methods.contains(&path.as_str()) => {
            let _ = respond.send_response(failed("12", "unknown method"), true);
            return;
        }
        Answer::Error(status, message) => {
            let _ = respond.send_response(failed(status, message), true);
            return;
        }
        Answer::Http(status) => {
            let head = Response::builder().status(status).body(()).expect("a response");
            let _ = respond.send_response(head, true);
            return;
        }
        Answer::Endless => {
            let head = ok().body(()).expect("a response");
            let Ok(mut stream) = respond.send_response(head, false) else { return };
            let piece = Bytes::from(vec![0; 64 << 10]);
            loop {
                stream.reserve_capacity(piece.len());
                let room = std::future::poll_fn(|context| stream.poll_capacity(context)).await;
                let Some(Ok(room)) = room else { return };
                if stream.send_data(piece.slice(..room.min(piece.len())), false).is_err() {
                    return;
                }
            }
        }
        Answer::Message(message, _) => (framed(&message), true),
        Answer::Body(body) => (body, true),
        Answer::NoTrailers(message) => (framed(&message), false),
        Answer::Silent | Answer::Noise | Answer::Closed => return,
    };
    let head = ok().body(()).expect("a response");
    let Ok(mut stream) = respond.send_response(head, false) else { return };
    let _ = stream.send_data(Bytes::from(body), !trailers);
    if trailers {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        let _ = stream.send_trailers(trailers);
    }
}
