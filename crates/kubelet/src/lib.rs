//! The pods of a Kubernetes node, from the kubelet, and their names for the processes of a snapshot.
//!
//! The main decision is to query only the kubelet of this node, over its sockets. This needs no
//! credentials, network or API server, and takes milliseconds, but the kubelet knows less. Its list
//! of resources assigns devices to containers, but has neither UIDs nor PIDs, and a cgroup path has
//! only UIDs. The pod of a process is therefore found by UID if the kubelet serves its pods, and
//! otherwise by its devices if these identify a single pod. Each name keeps its evidence
//! ([`PodEvidence`](gpu_core::PodEvidence)), because a program that deletes pods needs the UID.
//!
//! Two gRPC messages need no framework: libraries provide HTTP/2 and protobuf, and the rest is a
//! five-byte prefix and a status. See `PROTOCOL-HTTP2.md` of gRPC, and `podresources/v1` and
//! `pods/v1alpha1` of the kubelet's interfaces.
//!
//! ```no_run
//! use gpu_core::Snapshot;
//! use gpu_kubelet::{Kubelet, name_pods};
//!
//! fn with_pods(mut snapshot: Snapshot) -> Snapshot {
//!     let (pods, errors) = Kubelet::at("/var/lib/kubelet", &[0]).pods();
//!     errors.iter().for_each(|error| eprintln!("failed to {error}"));
//!     name_pods(&mut snapshot, &pods);
//!     snapshot
//! }
//! ```

mod call;
mod kubelet;
mod messages;
mod names;
mod pods;

pub use kubelet::Kubelet;
pub use names::name_pods;
pub use pods::{Assignment, DeviceName, KnownPod, Pods};

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
