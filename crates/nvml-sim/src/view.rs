//! The state of a machine at one time. Every call reads from it, so its cost does not depend on the
//! size of the machine.

use crate::code::{Answer, Code};
use crate::pointer::Handle;
use gpu_core::{
    Accounting, Activity, ApplicationClocks, Clocks, DeviceProcess, DeviceSample, DeviceState,
    Driver, Engines, Fabric, Fault, GpuBackend, Groups, GspFirmware, Inforom, MemoryErrors,
    MemoryHealth, MemoryInfo, Modes, ModulePower, NvLink, OperationModes, Partition, Pcie,
    PcieThroughput, Platform, Power, PowerReadings, Product, ProtectedMemory, RareModes, Reading,
    ResetStatus, Result, SramErrors, SupportedClocks, Thermal, ThrottleTimes, Topology,
    VirtualGpus,
};
use gpu_sim::Simulation;

/// A whole machine.
pub(crate) struct View {
    /// The driver, or why it does not answer.
    pub(crate) driver: Result<Driver, Fault>,
    /// The topology.
    pub(crate) topology: Reading<Topology>,
    devices: Vec<DeviceState>,
}

/// A device, or one of its MIG instances.
#[derive(Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub(crate) view: &'a View,
    pub(crate) state: &'a DeviceState,
    pub(crate) mig: Option<&'a Partition>,
}

impl View {
    /// Takes a snapshot of a machine.
    ///
    /// Runs one query at a time instead of `GpuBackend::inventory`, because the caller interprets the
    /// answers.
    pub(crate) fn take(simulation: &Simulation) -> Self {
        let driver = simulation.driver().map_err(|error| error.fault());
        let infos = simulation.devices().unwrap_or_default();
        let devices = infos.into_iter().map(|info| DeviceState {
            sample: simulation.sample(&info.id).map_err(|error| error.fault()),
            processes: simulation.processes(&info.id).map_err(|error| error.fault()),
            partitions: simulation.partitions(&info.id).map_err(|error| error.fault()),
            details: simulation.details(&info.id, Groups::all()).map_err(|error| error.fault()),
            info,
        });
        View {
            driver,
            devices: devices.collect(),
            topology: simulation.topology().map_err(|error| error.kind().absent()),
        }
    }

    /// Returns the number of devices.
    pub(crate) fn count(&self) -> u32 {
        self.devices.len() as u32
    }

    /// Returns every device.
    pub(crate) fn subjects(&self) -> impl Iterator<Item = Subject<'_>> {
        self.devices.iter().map(|state| Subject { view: self, state, mig: None })
    }

    /// Returns the device with this index.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if there is no such device.
    pub(crate) fn subject_at(&self, index: u32) -> Answer<Subject<'_>> {
        let mut subjects = self.subjects();
        subjects.find(|subject| subject.index() == index).ok_or(Code::INVALID_ARGUMENT)
    }

    /// Returns the subject of a handle.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for an unknown handle.
    pub(crate) fn subject(&self, handle: Handle) -> Answer<Subject<'_>> {
        let (index, mig) = handle.parts()?;
        let gpu = self.subject_at(index)?;
        match mig {
            None => Ok(gpu),
            Some(number) => {
                let found = gpu.instances()?.iter().find(|mig| mig.index == number);
                Ok(Subject { mig: Some(found.ok_or(Code::INVALID_ARGUMENT)?), ..gpu })
            }
        }
    }
}

/// Returns a group of details; `NOT_SUPPORTED` if the machine lacks it.
fn group<T>(group: &Option<T>) -> Answer<&T> {
    group.as_ref().ok_or(Code::NOT_SUPPORTED)
}

/// Defines an accessor per group of details.
macro_rules! groups {
    ($($name:ident: $type:ty),* $(,)?) => { $(
        pub(crate) fn $name(self) -> Answer<&'a $type> {
            group(&self.state.details.as_ref()?.$name)
        }
    )* };
}

impl<'a> Subject<'a> {
    groups! {
        product: Product,
        modes: Modes,
        inforom: Inforom,
        gsp_firmware: GspFirmware,
        virtual_gpus: VirtualGpus,
        reset_status: ResetStatus,
        operation_modes: OperationModes,
        rare_modes: RareModes,
        activity: Activity,
        throttle_times: ThrottleTimes,
        engines: Engines,
        clocks: Clocks,
        application_clocks: ApplicationClocks,
        supported_clocks: SupportedClocks,
        power: Power,
        power_readings: PowerReadings,
        module_power: ModulePower,
        thermal: Thermal,
        pcie: Pcie,
        pcie_throughput: PcieThroughput,
        protected_memory: ProtectedMemory,
        memory_health: MemoryHealth,
        memory_errors: Box<MemoryErrors>,
        sram_errors: SramErrors,
        nvlinks: Vec<NvLink>,
        fabric: Fabric,
        platform: Platform,
        accounting: Accounting,
    }

    pub(crate) fn index(self) -> u32 {
        self.state.info.id.index
    }

    pub(crate) fn handle(self) -> Handle {
        match self.mig {
            None => Handle::of_gpu(self.index()),
            Some(mig) => Handle::of_mig(self.index(), mig.index),
        }
    }

    /// Returns the device and its MIG instances.
    pub(crate) fn with_instances(self) -> impl Iterator<Item = Subject<'a>> {
        let instances = self.instances().unwrap_or_default().iter();
        [self].into_iter().chain(instances.map(move |mig| Subject { mig: Some(mig), ..self }))
    }

    /// Checks that the device responds.
    ///
    /// # Errors
    /// The failure of the device, such as `GPU_IS_LOST`.
    pub(crate) fn check(self) -> Answer {
        self.sample().map(|_| ())
    }

    /// Returns the state of the device.
    pub(crate) fn sample(self) -> Answer<&'a DeviceSample> {
        Ok(self.state.sample.as_ref()?)
    }

    /// Returns the MIG instances of the device.
    pub(crate) fn instances(self) -> Answer<&'a [Partition]> {
        Ok(self.state.partitions.as_ref()?)
    }

    /// Returns the memory of the device or the instance.
    pub(crate) fn memory(self) -> Answer<MemoryInfo> {
        match self.mig {
            Some(mig) => Ok(mig.memory),
            None => Ok(self.sample()?.memory),
        }
    }

    /// Returns the processes on the device or in the instance.
    pub(crate) fn processes(self) -> Answer<impl Iterator<Item = &'a DeviceProcess>> {
        let all = self.state.processes.as_ref()?.iter();
        Ok(all.filter(move |process| {
            self.mig.is_none_or(|mig| {
                let (gpu, compute) = (process.gpu_instance, process.compute_instance);
                gpu == mig.gpu_instance && (compute.is_none() || compute == mig.compute_instance)
            })
        }))
    }

    /// Returns the UUID of the device or the instance.
    pub(crate) fn uuid(self) -> Answer<String> {
        let uuid = self.mig.map_or(&self.state.info.id.uuid, |mig| &mig.uuid);
        Ok(uuid.as_ref().map_err(|absent| *absent)?.0.clone())
    }
}
