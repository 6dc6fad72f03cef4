//! The kubelet's messages, reduced to the fields that are read.

use prost::Message;

/// `v1.ListPodResourcesResponse`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ListPodResources {
    #[prost(message, repeated, tag = "1")]
    pub(crate) pods: Vec<PodResources>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PodResources {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) namespace: String,
    #[prost(message, repeated, tag = "3")]
    pub(crate) containers: Vec<ContainerResources>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ContainerResources {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) devices: Vec<ContainerDevices>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) dynamic: Vec<DynamicResource>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ContainerDevices {
    #[prost(string, tag = "1")]
    pub(crate) resource: String,
    #[prost(string, repeated, tag = "2")]
    pub(crate) ids: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DynamicResource {
    #[prost(message, repeated, tag = "4")]
    pub(crate) claims: Vec<ClaimResource>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ClaimResource {
    #[prost(string, tag = "2")]
    pub(crate) driver: String,
    #[prost(string, tag = "4")]
    pub(crate) device: String,
}

/// `v1alpha1.ListPodsResponse`: pods as the API server encodes them.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ListPods {
    #[prost(message, repeated, tag = "1")]
    pub(crate) pods: Vec<Pod>,
}

/// `k8s.io.api.core.v1.Pod`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Pod {
    #[prost(message, optional, tag = "1")]
    pub(crate) metadata: Option<ObjectMeta>,
    #[prost(message, optional, tag = "3")]
    pub(crate) status: Option<PodStatus>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ObjectMeta {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "3")]
    pub(crate) namespace: String,
    #[prost(string, tag = "5")]
    pub(crate) uid: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PodStatus {
    #[prost(message, repeated, tag = "8")]
    pub(crate) containers: Vec<ContainerStatus>,
    #[prost(message, repeated, tag = "10")]
    pub(crate) init_containers: Vec<ContainerStatus>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ContainerStatus {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    /// `containerd://ID`.
    #[prost(string, tag = "8")]
    pub(crate) id: String,
}
