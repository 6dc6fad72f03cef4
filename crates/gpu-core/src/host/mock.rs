//! A mock of all ports of a [`Host`](super::Host).

use super::{ProcessHandle, ProcessList, ProcessTable};
use crate::absent::Reading;
use crate::device::DeviceInfo;
use crate::device_files::{DeviceFiles, FileActivity};
use crate::driver_message::DriverMessage;
use crate::driver_view::DriverView;
use crate::error::Result;
use crate::file::DeviceFile;
use crate::holder::HolderScan;
use crate::id::{DeviceId, Pid, ProcessKey};
use crate::lease::LeaseId;
use crate::memory_source::HostMemory;
use crate::process::{ProcessDetail, ProcessInfo};
use crate::snapshot::Origin;
use std::sync::Arc;

mockall::mock! {
    #[allow(missing_docs)] // As the ports.
    pub Host {}

    impl ProcessTable for Host {
        fn origin(&self) -> Origin;
        fn hostname(&self) -> Reading<String>;
        fn sees_host_pids(&self) -> Reading<bool>;
        fn is_root(&self) -> Reading<bool>;
        fn account(&self, name: &str) -> Reading<u32>;
        fn process(&self, pid: Pid) -> Result<ProcessInfo>;
        fn processes_of(&self, pids: &[Pid], detail: ProcessDetail) -> Vec<Result<ProcessInfo>>;
        fn processes_again(
            &self,
            known: Vec<Arc<ProcessInfo>>,
            detail: ProcessDetail,
        ) -> Vec<Result<Arc<ProcessInfo>>>;
        fn processes(&self) -> Result<ProcessList>;
        fn pids(&self) -> Result<Vec<Pid>>;
        fn own_ancestry(&self) -> Result<Vec<ProcessKey>>;
        fn inherited_leases(&self) -> Vec<(LeaseId, u32)>;
        fn open(&self, pid: Pid) -> Result<Box<dyn ProcessHandle>>;
    }

    impl DeviceFiles for Host {
        fn device_files(&self) -> Result<Vec<DeviceFile>>;
        fn file_activity(&self, files: &[DeviceFile]) -> Option<Box<dyn FileActivity>>;
        fn holders(&self, files: &[DeviceFile]) -> Result<HolderScan>;
    }

    impl DriverView for Host {
        fn driver_devices(&self) -> Result<Vec<DeviceInfo>>;
        fn host_memory(&self, node: Option<u32>) -> Result<HostMemory>;
        fn sleeping_devices(&self) -> Option<Vec<DeviceId>>;
        fn driver_messages(&self) -> Result<Vec<DriverMessage>>;
    }
}
