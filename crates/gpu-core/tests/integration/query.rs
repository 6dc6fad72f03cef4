//! The queries of a backend, one by one.

use crate::fixture::*;
use gpu_core::*;
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

type Answer<T> = Box<dyn Fn() -> Result<T> + Send + Sync>;

/// A backend with one device, and the number of queries of it.
struct Backend {
    driver: Answer<Driver>,
    devices: Answer<Vec<DeviceInfo>>,
    sample: Answer<DeviceSample>,
    processes: Answer<Vec<DeviceProcess>>,
    mig: Answer<Vec<Partition>>,
    details: Answer<DeviceDetails>,
    queries: AtomicU32,
}

impl Backend {
    fn new() -> Self {
        Backend {
            driver: Box::new(|| Ok(Driver { version: Ok("1".into()), cuda: Ok("2".into()) })),
            devices: Box::new(|| Ok(vec![info(0)])),
            sample: Box::new(|| Ok(sample(7, 0))),
            processes: Box::new(|| Ok(vec![listed(7, 1, Some(0))])),
            mig: Box::new(|| Ok(vec![mig(1, 0)])),
            details: Box::new(|| {
                Ok(DeviceDetails { product: Some(Product::default()), ..Default::default() })
            }),
            queries: AtomicU32::new(0),
        }
    }

    fn asked<T>(&self, answer: &Answer<T>) -> Result<T> {
        self.queries.fetch_add(1, Ordering::Relaxed);
        answer()
    }

    /// Returns its only device, and the number of queries to it.
    fn seen(self, groups: Groups) -> (DeviceState, u32) {
        let mut inventory = self.inventory(groups);
        (inventory.devices.remove(0), self.queries.load(Ordering::Relaxed))
    }
}

impl GpuBackend for Backend {
    fn origin(&self) -> Origin {
        Origin::Live
    }

    fn driver(&self) -> Result<Driver> {
        (self.driver)()
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        (self.devices)()
    }

    fn sample(&self, _: &DeviceId) -> Result<DeviceSample> {
        self.asked(&self.sample)
    }

    fn processes(&self, _: &DeviceId) -> Result<Vec<DeviceProcess>> {
        self.asked(&self.processes)
    }

    fn partitions(&self, _: &DeviceId) -> Result<Vec<Partition>> {
        self.asked(&self.mig)
    }

    fn details(&self, _: &DeviceId, _: Groups) -> Result<DeviceDetails> {
        self.asked(&self.details)
    }

    fn topology(&self) -> Result<Topology> {
        Err(failing("query the topology"))
    }

    fn events(&self, _: Duration) -> Result<Vec<DeviceEvent>> {
        Err(failing("wait for events"))
    }

    fn reset(&self, _: &DeviceId, _: &ActToken) -> Result<()> {
        Err(failing("reset"))
    }
}

fn failing(what: &str) -> Error {
    Error::new(ErrorKind::Unsupported, what)
}

fn fails<T>(kind: impl Into<ErrorKind>) -> Answer<T> {
    let kind = kind.into();
    Box::new(move || Err(Error::new(kind, "ask")))
}

#[test]
fn every_query_fills_its_field() {
    let (device, queries) = Backend::new().seen(Groups::NONE);
    assert_eq!((device.info, device.sample), (info(0), Ok(sample(7, 0))));
    assert_eq!(device.processes, Ok(vec![listed(7, 1, Some(0))]));
    assert_eq!(
        (device.partitions, device.details),
        (Ok(vec![mig(1, 0)]), Ok(DeviceDetails::default()))
    );
    assert_eq!(queries, 3, "no details were requested");
    let (device, _) = Backend::new().seen(Groups::all());
    assert!(device.details.unwrap().product.is_some());
    assert!(Backend::new().helpers().is_empty());
}

#[test]
fn device_is_not_queried_again_after_a_hang() {
    for kind in [ErrorKind::TimedOut, MachineFault::Blocked.into()] {
        for (backend, expected) in [
            (Backend { sample: fails(kind), ..Backend::new() }, 1),
            (Backend { processes: fails(kind), ..Backend::new() }, 2),
            (Backend { mig: fails(kind), ..Backend::new() }, 3),
        ] {
            let (device, queries) = backend.seen(Groups::all());
            assert_eq!(queries, expected);
            assert_eq!(device.details.unwrap_err().kind, kind);
        }
    }
    let (_, queries) =
        Backend { sample: fails(DeviceFault::Lost), ..Backend::new() }.seen(Groups::all());
    assert_eq!(queries, 4, "other values may be readable");
}

#[test]
fn machine_is_not_queried_further_if_its_driver_does_not_answer() {
    for kind in [MachineFault::DriverNotLoaded.into(), ErrorKind::TimedOut] {
        let inventory = Backend { driver: fails(kind), ..Backend::new() }.inventory(Groups::NONE);
        assert_eq!(inventory.driver.unwrap_err().kind, kind);
        assert!(inventory.devices.is_empty());
        let inventory = Backend { devices: fails(kind), ..Backend::new() }.inventory(Groups::NONE);
        assert_eq!(inventory.driver.unwrap_err().kind, kind);
    }
    let backend = Backend { driver: fails(Absent::NotSupported), ..Backend::new() };
    assert_eq!(backend.inventory(Groups::NONE).devices.len(), 1, "its version alone is unknown");
}

#[test]
fn idle_processes_of_busy_device_are_implausible() {
    let seen = |busy: u64, shares: &[Option<u64>]| {
        let processes: Vec<DeviceProcess> =
            (7..).zip(shares).map(|(pid, share)| listed(pid, 1, *share)).collect();
        let backend = Backend {
            sample: Box::new(move || Ok(sample(7, busy))),
            processes: Box::new(move || Ok(processes.clone())),
            ..Backend::new()
        };
        let listed = backend.seen(Groups::NONE).0.processes.unwrap();
        listed.iter().map(|process| process.utilization.map(Percent::get)).collect::<Vec<_>>()
    };
    let odd = Err(Absent::Implausible);
    assert_eq!(seen(1, &[Some(0), Some(0)]), [odd, odd]);
    assert_eq!(seen(0, &[Some(0), Some(0)]), [Ok(0), Ok(0)]);
    assert_eq!(seen(50, &[Some(0), Some(3)]), [Ok(0), Ok(3)]);
    assert_eq!(seen(50, &[Some(0), None]), [Ok(0), Err(Absent::NotSupported)]);
}

#[test]
fn query_is_repeated_only_if_it_may_succeed_this_time() {
    let tries = |kind: ErrorKind, failures: u32| {
        let count = Cell::new(0);
        let answer = ask(|| {
            count.set(count.get() + 1);
            if count.get() <= failures { Err(Error::new(kind, "ask")) } else { Ok(7) }
        });
        (count.get(), answer.ok())
    };
    assert_eq!(tries(ErrorKind::Again, 0), (1, Some(7)));
    assert_eq!(tries(ErrorKind::Again, 3), (4, Some(7)));
    assert_eq!(tries(ErrorKind::Again, 4), (4, None));
    assert_eq!(tries(ErrorKind::Io, 1), (1, None));
}

#[test]
fn failed_inventory_has_no_devices() {
    let error = Error::new(MachineFault::DriverNotLoaded, "initialise NVML");
    let inventory = Inventory::failed(&error);
    assert_eq!((inventory.driver, inventory.devices), (Err(error.fault()), vec![]));
    let hang = Fault { kind: ErrorKind::TimedOut, text: "ask".into() };
    let device = DeviceState::unanswered(info(0), Groups::all(), &hang);
    assert_eq!((device.sample, device.details), (Err(hang.clone()), Err(hang.clone())));
    let plain = DeviceState::unanswered(info(0), Groups::NONE, &hang);
    assert_eq!(plain.details, Ok(DeviceDetails::default()));
}
