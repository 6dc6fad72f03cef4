//! The kubelet of this node.

use crate::call::call;
use crate::messages::{ContainerResources, ListPodResources, ListPods, Pod};
use crate::pods::{Assignment, DeviceName, KnownPod, Pods, is_name, is_uid};
use gpu_core::{Absent, Error, ErrorKind, clean};
use prost::Message;
use std::path::PathBuf;
use std::time::Duration;

/// The time limit for each socket. A kubelet answers from memory, in milliseconds.
const DEADLINE: Duration = Duration::from_secs(1);

const RESOURCES: &str = "pod-resources/kubelet.sock";
const LIST_RESOURCES: &str = "/v1.PodResourcesLister/List";

const PODS: &str = "pods-api/pods-api.sock";
/// The method in each version of the API, newest first.
const LIST_PODS: [&str; 2] = ["/v1beta1.Pods/ListPods", "/v1alpha1.Pods/ListPods"];

/// The resource prefix of NVIDIA's device plugin: `nvidia.com/gpu`, `nvidia.com/mig-1g.5gb`.
const VENDOR: &str = "nvidia.com/";
/// NVIDIA's driver for dynamic resource allocation.
const DRIVER: &str = "gpu.nvidia.com";

/// The kubelet of this node, reached over its sockets.
#[derive(Clone, Debug)]
pub struct Kubelet {
    dir: PathBuf,
    trusted: Vec<u32>,
    deadline: Duration,
}

impl Kubelet {
    /// Returns the kubelet with this directory, usually `/var/lib/kubelet`. Answers are accepted
    /// only from a kubelet that runs as one of the users in `trusted`.
    pub fn at(dir: impl Into<PathBuf>, trusted: &[u32]) -> Self {
        Kubelet { dir: dir.into(), trusted: trusted.to_owned(), deadline: DEADLINE }
    }

    /// Sets the time limit for each socket.
    pub fn with_deadline(self, deadline: Duration) -> Self {
        Kubelet { deadline, ..self }
    }

    /// Returns whether the kubelet's sockets exist, which makes this machine a Kubernetes node.
    pub fn is_there(&self) -> bool {
        [RESOURCES, PODS].iter().any(|socket| self.dir.join(socket).exists())
    }

    /// Returns the pods, and an error for each socket whose pods are missing. A socket that does
    /// not exist is not an error.
    ///
    /// # Errors
    /// Each is about one socket: `TimedOut`, `Process(NotPermitted)` when the caller may not
    /// connect, and `Invalid` when another user serves it or the answer is not what a kubelet
    /// sends. Such an answer is discarded entirely.
    pub fn pods(&self) -> (Pods, Vec<Error>) {
        let mut errors = Vec::new();
        let assigned = self.ask(RESOURCES, &[LIST_RESOURCES], assignments);
        let known = self.ask(PODS, &LIST_PODS, known);
        let pods = Pods {
            assigned: assigned.map_err(|error| errors.push(error)).unwrap_or_default(),
            known: known.map_err(|error| errors.push(error)).unwrap_or_default(),
        };
        (pods, errors)
    }

    /// Calls the first of these methods that the server has; returns `None` if there is no server.
    fn ask<T>(
        &self,
        socket: &str,
        methods: &[&'static str],
        read: fn(&[u8]) -> Result<Vec<T>, String>,
    ) -> Result<Vec<T>, Error> {
        let socket = self.dir.join(socket);
        let mut answer = Ok(Vec::new());
        for method in methods {
            answer = call(&socket, method, &self.trusted, self.deadline);
            if !matches!(&answer, Err(error) if error.kind() == ErrorKind::Unsupported) {
                break;
            }
        }
        match answer {
            Err(error) if error.kind() == Absent::NotFound.into() => Ok(Vec::new()),
            answer => read(&answer?).map_err(|why| {
                let what =
                    format!("understand the kubelet at '{}'", clean(&socket.to_string_lossy()));
                Error::new(ErrorKind::Invalid, what).with_source(why)
            }),
        }
    }
}

/// Rejects names that Kubernetes does not permit. The error does not repeat them.
fn named(names: &[&str]) -> Result<(), String> {
    if names.iter().all(|name| is_name(name)) {
        Ok(())
    } else {
        Err("it has a pod name that Kubernetes does not allow".to_owned())
    }
}

fn assignments(message: &[u8]) -> Result<Vec<Assignment>, String> {
    let list = ListPodResources::decode(message).map_err(|error| error.to_string())?;
    let mut assigned = Vec::new();
    for pod in list.pods {
        for container in pod.containers {
            named(&[&pod.namespace, &pod.name, &container.name])?;
            let devices = devices(&container);
            if !devices.is_empty() {
                let (namespace, name) = (pod.namespace.clone(), pod.name.clone());
                let container = container.name;
                assigned.push(Assignment { namespace, pod: name, container, devices });
            }
        }
    }
    Ok(assigned)
}

/// Returns the NVIDIA devices of a container.
fn devices(container: &ContainerResources) -> Vec<DeviceName> {
    let plugin = container.devices.iter().filter(|devices| devices.resource.starts_with(VENDOR));
    let plugin = plugin.flat_map(|devices| &devices.ids).map(|id| DeviceName::of_plugin(id));
    let claims = container.dynamic.iter().flat_map(|dynamic| &dynamic.claims);
    let driver = claims.filter(|claim| claim.driver == DRIVER);
    let mut all: Vec<DeviceName> =
        plugin.chain(driver.filter_map(|claim| DeviceName::of_driver(&claim.device))).collect();
    all.sort();
    all.dedup();
    all
}

fn known(message: &[u8]) -> Result<Vec<KnownPod>, String> {
    let list = ListPods::decode(message).map_err(|error| error.to_string())?;
    list.pods.into_iter().map(known_pod).collect()
}

fn known_pod(pod: Pod) -> Result<KnownPod, String> {
    let meta = pod.metadata.unwrap_or_default();
    named(&[&meta.namespace, &meta.name])?;
    if !is_uid(&meta.uid) {
        return Err("it lists a pod without a UID".to_owned());
    }
    let status = pod.status.unwrap_or_default();
    let mut containers = Vec::new();
    for container in status.containers.into_iter().chain(status.init_containers) {
        named(&[&container.name])?;
        if let Some((_, id)) = container.id.split_once("://") {
            containers.push((id.to_owned(), container.name));
        }
    }
    Ok(KnownPod { uid: meta.uid, namespace: meta.namespace, name: meta.name, containers })
}
