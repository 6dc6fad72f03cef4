//! The pods of a Kubernetes node, from the kubelet, and their names for the processes of a snapshot.
//!
//! The main decision is to ask only the kubelet of this node, over its sockets: that needs no
//! credentials, no network and no server for the API, and answers in milliseconds. It knows less.
//! The list of resources has which container a device is assigned to, but neither UIDs nor PIDs, and
//! a cgroup path has only UIDs. A process is therefore named by its UID where the kubelet serves its
//! pods, and otherwise by its devices, where only one pod can be meant. How a name is known is kept
//! with it ([`PodEvidence`](gpu_core::PodEvidence)): what deletes pods needs the UID.
//!
//! Two messages of gRPC do not need a framework: HTTP/2 and protobuf are libraries, and the rest is
//! a prefix of five bytes and a status. See `PROTOCOL-HTTP2.md` of gRPC, and `podresources/v1` and
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
